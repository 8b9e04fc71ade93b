"""Quantities computed from a graph: distances, encodings, margins.

A `graph` is a `Neighborhood` whose nodes both send and receive: others raise TypeError, bipartite
ones ValueError. A result that does not fit into the available memory raises MemoryError, with the
sizes, before it is computed.
"""

from graphtheory.structure.core import (
    DistanceCounts,
    core_distance,
    count_by_distance,
    winning_margin,
)
from graphtheory.structure.discriminative import ClassBalance, class_balance, discriminative_nodes
from graphtheory.structure.distance import (
    UNREACHABLE,
    draw_from_ball,
    hop_ball,
    shortest_path_distance,
    shortest_path_edges,
)
from graphtheory.structure.encodings import (
    centroid_distance,
    centroids,
    degree_encoding,
    resistance_bucket,
    resistance_distance,
    walk_probabilities,
)

__all__ = [
    "UNREACHABLE",
    "ClassBalance",
    "DistanceCounts",
    "centroid_distance",
    "centroids",
    "class_balance",
    "core_distance",
    "count_by_distance",
    "degree_encoding",
    "discriminative_nodes",
    "draw_from_ball",
    "hop_ball",
    "resistance_bucket",
    "resistance_distance",
    "shortest_path_distance",
    "shortest_path_edges",
    "walk_probabilities",
    "winning_margin",
]
