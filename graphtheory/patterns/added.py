"""What patterns share that add edges: graphs of a batch, and edges beside the given ones."""

from __future__ import annotations

import torch
from torch import Tensor

from graphtheory.graph import TOKEN, Neighborhood
from graphtheory.patterns.base import require_square


def check_sizes(sizes: tuple[int, ...] | None) -> None:
    """Raise unless this is None or a tuple of counts."""
    whole = isinstance(sizes, tuple) and all(isinstance(n, int) and n >= 0 for n in sizes)
    if sizes is not None and not whole:
        raise ValueError(f"sizes: got {sizes!r}, expected a tuple of counts of nodes, or None")


def graphs_of(sizes: tuple[int, ...] | None, num_nodes: int, device: torch.device) -> Tensor:
    """First node and end of the graph of each node, int64 [2, num_nodes]; None is one graph."""
    count = torch.tensor((num_nodes,) if sizes is None else sizes, dtype=torch.int64, device=device)
    if int(count.sum()) != num_nodes:
        raise ValueError(
            f"sizes: {int(count.sum())} nodes, expected {num_nodes} as the neighborhood has"
        )
    end = count.cumsum(0)
    return torch.stack([end - count, end]).repeat_interleave(count, 1, output_size=num_nodes)


def with_edges(graph: Neighborhood, added: Tensor, distance: int = TOKEN) -> Neighborhood:
    """The given edges and those of `added` [2, A] that it lacks, at the end of the rows.

    An added edge has weight 1 and that `distance` where the graph has weights and distances.
    """
    nodes = require_square(graph, "with_edges")
    given = graph.edge_index()
    key = added[0] + added[1] * nodes
    key = key.unique()
    key = key[~torch.isin(key, given[0] + given[1] * nodes)]
    fresh = torch.stack([key % max(nodes, 1), key // max(nodes, 1)])
    edges = torch.cat([given, fresh], 1)
    weight = graph.weight
    if weight is not None:
        weight = torch.cat([weight, weight.new_ones(len(key))])
    built = Neighborhood.from_edge_index(edges, nodes, weight=weight)
    if graph.distance is None:
        return built
    hops = torch.cat([graph.distance, graph.distance.new_full((len(key),), distance)])
    return built.replace(distance=hops[built.perm])
