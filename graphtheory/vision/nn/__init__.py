"""Layers on tokens: patches, positions, semantic tokens, nearest neighbors, token reduction."""

from typing import TYPE_CHECKING

from graphtheory.lazy import import_when_used

if TYPE_CHECKING:
    from graphtheory.vision.nn.centers import (
        AveragePool,
        Centers,
        LearnedCenters,
        MaskPool,
        MaxPool,
        MultiScale,
        SemanticTokens,
    )
    from graphtheory.vision.nn.grapher import GraphBlock, Grapher, NearestNeighbors
    from graphtheory.vision.nn.heads import MLPHead, TransformerHead
    from graphtheory.vision.nn.messages import (
        AttentionMessage,
        EdgeMessage,
        MaxRelative,
        Message,
        SageMessage,
    )
    from graphtheory.vision.nn.patch import ConvStem, PatchEmbedding, PositionEmbedding
    from graphtheory.vision.nn.positions import (
        LearnedPositions,
        PeriodicPositions,
        SinusoidalPositions,
    )
    from graphtheory.vision.nn.reduce import Fuse, Keep, Merge, decreasing, unmerge

__all__ = [
    "AttentionMessage", "AveragePool", "Centers", "ConvStem", "EdgeMessage", "Fuse",
    "GraphBlock", "Grapher", "Keep", "LearnedCenters", "LearnedPositions", "MLPHead",
    "MaskPool", "MaxPool", "MaxRelative", "Merge", "Message", "MultiScale", "NearestNeighbors",
    "PatchEmbedding", "PeriodicPositions", "PositionEmbedding", "SageMessage", "SemanticTokens",
    "SinusoidalPositions", "TransformerHead", "decreasing", "unmerge",
]  # fmt: skip

import_when_used(__name__)
