"""Layers on the core; PyG's contract in `nn.conv`."""

from graphtheory.nn.bias import BucketBias
from graphtheory.nn.conv import (
    GATConv,
    GATv2Conv,
    GCNConv,
    SPDTransformerConv,
    TransformerConv,
)
from graphtheory.nn.dropout import FeatureDropout

__all__ = [
    "BucketBias",
    "FeatureDropout",
    "GATConv",
    "GATv2Conv",
    "GCNConv",
    "SPDTransformerConv",
    "TransformerConv",
]
