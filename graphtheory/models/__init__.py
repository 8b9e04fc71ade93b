"""Networks."""

from graphtheory.models.graph_transformer import GraphTransformer
from graphtheory.models.sampled_gcn import SampledGCN
from graphtheory.models.shallow import PatternStart, ShallowAttention
from graphtheory.models.stack import ResidualStack, Stack

__all__ = [
    "GraphTransformer",
    "PatternStart",
    "ResidualStack",
    "SampledGCN",
    "ShallowAttention",
    "Stack",
]
