"""Networks on the nodes of one graph."""

from graphtheory.models.sampled_gcn import SampledGCN
from graphtheory.models.stack import GraphTransformer, ResidualStack, Stack, StackOptions

__all__ = ["GraphTransformer", "ResidualStack", "SampledGCN", "Stack", "StackOptions"]
