"""What can be computed from a graph: distances, encodings, margins."""

from graphtheory.structure.balls import at_distance, hop_ball
from graphtheory.structure.distance import UNREACHABLE, shortest_path_distance

__all__ = ["UNREACHABLE", "at_distance", "hop_ball", "shortest_path_distance"]
