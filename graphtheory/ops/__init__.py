"""Pure differentiable functions of tensors and a neighborhood."""

import graphtheory.ops.backends  # noqa: F401  (registers them)
from graphtheory.ops.additive import additive_score
from graphtheory.ops.additive_attention import additive_attention
from graphtheory.ops.attention import attention, topk_attention
from graphtheory.ops.backend import backend_names
from graphtheory.ops.call import BucketedBias
from graphtheory.ops.edge import aggregate, edge_dot, edge_softmax
from graphtheory.ops.edge_features import EdgeFeatures
from graphtheory.ops.explain import Explanation, explain
from graphtheory.ops.relu_sum import relu_sum
from graphtheory.ops.varlen import varlen_attention, varlen_neighborhood

__all__ = [
    "BucketedBias",
    "EdgeFeatures",
    "Explanation",
    "additive_attention",
    "additive_score",
    "aggregate",
    "attention",
    "backend_names",
    "edge_dot",
    "edge_softmax",
    "explain",
    "relu_sum",
    "topk_attention",
    "varlen_attention",
    "varlen_neighborhood",
]
