"""Layers on the core; PyG's contract in `nn.conv`."""

from graphtheory.nn.attention import Attention, AttentionMap, Softmax, attention_maps
from graphtheory.nn.bias import BucketBias
from graphtheory.nn.blocks import MLP, Block, DropPath, LayerScale
from graphtheory.nn.conv import (
    GATConv,
    GATv2Conv,
    GCNConv,
    SPDTransformerConv,
    TransformerConv,
)
from graphtheory.nn.dropout import FeatureDropout
from graphtheory.nn.patch import PatchEmbedding, PatchTokens, PositionEmbedding, from_map, to_map

__all__ = [
    "MLP",
    "Attention",
    "AttentionMap",
    "Block",
    "BucketBias",
    "DropPath",
    "FeatureDropout",
    "GATConv",
    "GATv2Conv",
    "GCNConv",
    "LayerScale",
    "PatchEmbedding",
    "PatchTokens",
    "PositionEmbedding",
    "SPDTransformerConv",
    "Softmax",
    "TransformerConv",
    "attention_maps",
    "from_map",
    "to_map",
]
