"""Layers on the core; PyG's contract in `nn.conv`. Their parts are in the modules."""

from graphtheory.nn.attention import Attention, AttentionMap, attention_maps
from graphtheory.nn.bias import BucketBias, JointBias
from graphtheory.nn.blocks import Block
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
    GPSConv,
    SparseFeatures,
    SPDTransformerConv,
    TransformerConv,
)
from graphtheory.nn.graph_encoders import CategoricalEncoder, NodeEncoder, feature_encoder
from graphtheory.nn.graph_positions import DegreeEmbedding, LaplacianEncoding, WalkEncoding
from graphtheory.nn.graph_readout import GraphReadout
from graphtheory.nn.grapher import GraphBlock, Grapher
from graphtheory.nn.heads import MLPHead, TransformerHead
from graphtheory.nn.hinge import class_codes, coded_hinge, decode_class
from graphtheory.nn.messages import (
    AttentionMessage,
    EdgeMessage,
    MaxRelative,
    Message,
    SageMessage,
    SumMessage,
)
from graphtheory.nn.nearest import NearestNeighbors
from graphtheory.nn.patch import PatchEmbedding, PositionEmbedding
from graphtheory.nn.path_encoding import PathEncoding
from graphtheory.nn.reduce import unmerge
from graphtheory.nn.reducers import Fuse, Keep, Merge, decreasing
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
    "Attention", "AttentionMap", "AttentionMessage", "AveragePool", "Block", "BucketBias",
    "CategoricalEncoder", "Centers", "ConditionalPosition", "ConvStem", "DegreeEmbedding",
    "EdgeMessage", "Fuse", "GATConv", "GATv2Conv", "GCNConv", "GPSConv", "GraphBlock",
    "GraphReadout", "Grapher", "JointBias", "Keep", "LaplacianEncoding", "LearnedCenters",
    "LearnedPosition", "LearnedPositions", "MLPHead", "MaskPool", "MaxPool", "MaxRelative",
    "Merge", "Message", "MultiScale", "NearestNeighbors", "NoPosition", "NodeEncoder",
    "OverlapPool", "PatchEmbedding", "PathEncoding", "PeriodicPositions", "PositionEmbedding",
    "RelativePosition", "SPDTransformerConv", "SageMessage", "SemanticTokens",
    "SinusoidalPositions", "SparseFeatures", "SumMessage", "TransformerConv", "TransformerHead",
    "WalkEncoding", "attention_maps", "class_codes", "coded_hinge", "decode_class", "decreasing",
    "feature_encoder", "unmerge",
]  # fmt: skip
