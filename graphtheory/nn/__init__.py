"""Layers on the core; PyG's contract in `nn.conv`."""

from graphtheory.nn.attention import Attention, AttentionMap, attention_maps
from graphtheory.nn.bias import BucketBias
from graphtheory.nn.blocks import MLP, Block, DropPath, LayerScale
from graphtheory.nn.centers import (
    AveragePool,
    Centers,
    LearnedCenters,
    MaskPool,
    MaxPool,
    MultiScale,
    OverlapPool,
)
from graphtheory.nn.conv import (
    GATConv,
    GATv2Conv,
    GCNConv,
    SPDTransformerConv,
    TransformerConv,
)
from graphtheory.nn.dropout import FeatureDropout
from graphtheory.nn.grapher import GraphBlock, Grapher, PatchGraph
from graphtheory.nn.heads import (
    MLPHead,
    TransformerHead,
    mlp_head_large,
    mlp_head_small,
    transformer_head_large,
    transformer_head_small,
)
from graphtheory.nn.messages import (
    AttentionMessage,
    EdgeMessage,
    MaxRelative,
    Message,
    SageMessage,
    SumMessage,
)
from graphtheory.nn.nearest import NearestNeighbors
from graphtheory.nn.patch import PatchEmbedding, PatchTokens, PositionEmbedding, from_map, to_map
from graphtheory.nn.reduce import Reducer, Reduction, follow, unmerge
from graphtheory.nn.reducers import Fuse, Keep, Merge
from graphtheory.nn.sequence_position import (
    LearnedPositions,
    PeriodicPositions,
    SinusoidalPositions,
)
from graphtheory.nn.stem import ConvStem
from graphtheory.nn.token_position import (
    ConditionalPosition,
    LearnedPosition,
    NoPosition,
    RelativePosition,
)
from graphtheory.nn.tokens import SemanticTokens

__all__ = [
    "MLP",
    "Attention",
    "AttentionMap",
    "AttentionMessage",
    "AveragePool",
    "Block",
    "BucketBias",
    "Centers",
    "ConditionalPosition",
    "ConvStem",
    "DropPath",
    "EdgeMessage",
    "FeatureDropout",
    "Fuse",
    "GATConv",
    "GATv2Conv",
    "GCNConv",
    "GraphBlock",
    "Grapher",
    "Keep",
    "LayerScale",
    "LearnedCenters",
    "LearnedPosition",
    "LearnedPositions",
    "MLPHead",
    "MaskPool",
    "MaxPool",
    "MaxRelative",
    "Merge",
    "Message",
    "MultiScale",
    "NearestNeighbors",
    "NoPosition",
    "OverlapPool",
    "PatchEmbedding",
    "PatchGraph",
    "PatchTokens",
    "PeriodicPositions",
    "PositionEmbedding",
    "Reducer",
    "Reduction",
    "RelativePosition",
    "SPDTransformerConv",
    "SageMessage",
    "SemanticTokens",
    "SinusoidalPositions",
    "SumMessage",
    "TransformerConv",
    "TransformerHead",
    "attention_maps",
    "follow",
    "from_map",
    "mlp_head_large",
    "mlp_head_small",
    "to_map",
    "transformer_head_large",
    "transformer_head_small",
    "unmerge",
]
