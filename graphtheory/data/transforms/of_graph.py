"""The graph that a transform is given."""

from __future__ import annotations

from typing import Any

from torch_geometric.data import Data

from graphtheory.graph import Neighborhood, neighborhood_from


def graph_of(data: Any) -> Neighborhood:
    """Who aggregates from whom in a PyG `Data`.

    Raises:
        TypeError: The data is no `Data` of one node type.
    """
    if not isinstance(data, Data):
        raise TypeError(f"data: got {type(data).__name__}, expected Data of one node type")
    return neighborhood_from(data)
