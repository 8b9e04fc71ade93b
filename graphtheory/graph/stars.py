"""Prompts as graphs: stars whose centre, the query, is a node beside its contexts."""

from __future__ import annotations

import torch

from graphtheory.graph.build import neighbor_lists
from graphtheory.graph.neighborhood import Neighborhood


def query_stars(count: int, length: int) -> Neighborhood:
    """The queries' rows of prompts of equal length, whose columns all are nodes.

    Prompt p has the nodes p (length + 1) to p (length + 1) + length. The last is its query, which
    aggregates from the others and sends to none. `star` has the contexts alone as nodes.

    Args:
        count: Prompts.
        length: Contexts of each.

    Returns:
        Neighborhood [count, count (length + 1)].

    Raises:
        ValueError: A number below 0.

    Source:
        Li (2024), eqs. (6.1) and (6.2): the sum runs over the contexts, not over the query.

    Example:
        >>> query_stars(2, 2).edge_index().tolist()
        [[0, 1, 3, 4], [0, 0, 1, 1]]
    """
    for name, value in (("count", count), ("length", length)):
        if value < 0:
            raise ValueError(f"{name}: got {value}, expected 0 or more")
    nodes = torch.arange(count * (length + 1)).view(count, length + 1)
    return neighbor_lists(nodes[:, :length], num_src=nodes.numel())
