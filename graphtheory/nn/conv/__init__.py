"""Layers with the contract of PyG's, on the core."""

from typing import TYPE_CHECKING

from graphtheory.lazy import import_when_used

if TYPE_CHECKING:
    from graphtheory.nn.conv.gat_conv import GATConv, GATv2Conv
    from graphtheory.nn.conv.gated_conv import GatedGCNConv, ResGatedGraphConv
    from graphtheory.nn.conv.gcn_conv import GCNConv
    from graphtheory.nn.conv.gps_conv import GPSConv
    from graphtheory.nn.conv.sparse_features import SparseFeatures
    from graphtheory.nn.conv.spd_transformer_conv import SPDTransformerConv
    from graphtheory.nn.conv.transformer_conv import TransformerConv

__all__ = [
    "GATConv",
    "GATv2Conv",
    "GCNConv",
    "GPSConv",
    "GatedGCNConv",
    "ResGatedGraphConv",
    "SPDTransformerConv",
    "SparseFeatures",
    "TransformerConv",
]

import_when_used(__name__)
