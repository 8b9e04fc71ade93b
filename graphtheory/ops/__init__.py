"""Pure differentiable functions of tensors and a neighborhood."""

import graphtheory.ops.backends  # noqa: F401  (registers them)
from graphtheory.ops.additive import additive_attention, additive_score
from graphtheory.ops.arguments import BucketedBias, EdgeFeatures
from graphtheory.ops.attention import (
    attention,
    topk_attention,
    varlen_attention,
    varlen_neighborhood,
)
from graphtheory.ops.backend import backend_names
from graphtheory.ops.edge import aggregate, edge_dot, edge_softmax, gated_sum, relu_sum
from graphtheory.ops.explain import Explanation, explain

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
    "gated_sum",
    "relu_sum",
    "topk_attention",
    "varlen_attention",
    "varlen_neighborhood",
]
