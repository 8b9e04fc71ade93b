"""Networks on the nodes of one graph."""

from graphtheory.models.graph_transformer import GraphTransformer
from graphtheory.models.sampled_gcn import SampledGCN
from graphtheory.models.stack import LinearOutputStack, ResidualStack, Stack, StackOptions

__all__ = [
    "GraphTransformer", "LinearOutputStack", "ResidualStack", "SampledGCN", "Stack", "StackOptions",
]  # fmt: skip
