"""Loaders of `Data` batches for samplers that PyG's own loaders do not know.

Example:
    >>> from graphtheory.data.loaders import AttentionSetLoader, NodeSetLoader
"""

from graphtheory.data.loaders.folder import GraphFolder
from graphtheory.data.loaders.layer_wise import LayerWiseLoader
from graphtheory.data.loaders.parts import edge_cut, fennel, metis
from graphtheory.data.loaders.seeds import SeedLoader
from graphtheory.data.loaders.sets import (
    AttentionSetLoader,
    NodeSetLoader,
    PartitionLoader,
    SharedAnchors,
)

__all__ = [
    "AttentionSetLoader", "GraphFolder", "LayerWiseLoader", "NodeSetLoader", "PartitionLoader",
    "SeedLoader", "SharedAnchors", "edge_cut", "fennel", "metis",
]  # fmt: skip
