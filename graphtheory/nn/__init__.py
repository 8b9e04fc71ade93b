"""Layers on the core; PyG's contract in `nn.conv`. Their parts are in the modules."""

from typing import TYPE_CHECKING

from graphtheory.lazy import import_when_used

if TYPE_CHECKING:
    from graphtheory.nn.attention import Attention, AttentionMap, attention_maps
    from graphtheory.nn.batches import GraphReadout
    from graphtheory.nn.bias import BucketBias, JointBias, PathEncoding
    from graphtheory.nn.blocks import Block
    from graphtheory.nn.conv import (
        GATConv,
        GatedGCNConv,
        GATv2Conv,
        GCNConv,
        GPSConv,
        ResGatedGraphConv,
        SparseFeatures,
        SPDTransformerConv,
        TransformerConv,
    )
    from graphtheory.nn.graph_encoders import (
        CategoricalEncoder,
        DegreeEmbedding,
        LaplacianEncoding,
        NodeEncoder,
        WalkEncoding,
        feature_encoder,
    )

__all__ = [
    "Attention",
    "AttentionMap",
    "Block",
    "BucketBias",
    "CategoricalEncoder",
    "DegreeEmbedding",
    "GATConv",
    "GATv2Conv",
    "GCNConv",
    "GPSConv",
    "GatedGCNConv",
    "GraphReadout",
    "JointBias",
    "LaplacianEncoding",
    "NodeEncoder",
    "PathEncoding",
    "ResGatedGraphConv",
    "SPDTransformerConv",
    "SparseFeatures",
    "TransformerConv",
    "WalkEncoding",
    "attention_maps",
    "feature_encoder",
]

import_when_used(__name__)
