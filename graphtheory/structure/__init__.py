"""What can be computed from a graph: distances, encodings, margins."""

from graphtheory.structure.distance import (
    UNREACHABLE,
    at_distance,
    hop_ball,
    shortest_path_distance,
)

__all__ = ["UNREACHABLE", "at_distance", "hop_ball", "shortest_path_distance"]
