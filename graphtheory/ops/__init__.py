"""Pure differentiable functions of tensors and a neighbourhood."""

from graphtheory.ops.attention import attention
from graphtheory.ops.call import BucketedBias
from graphtheory.ops.dispatch import backend_names
from graphtheory.ops.edge import aggregate, edge_dot, edge_softmax

__all__ = ["BucketedBias", "aggregate", "attention", "backend_names", "edge_dot", "edge_softmax"]
