"""Nodes within a radius, with their distances, in memory proportional to the result."""

from __future__ import annotations

import torch
from torch import Tensor

from graphtheory.graph import Neighborhood
from graphtheory.graph.memory import require_memory
from graphtheory.structure import _bfs
from graphtheory.structure._check import as_hops, as_ids, num_nodes_of, rows_of
from graphtheory.structure._search import for_chunks, pool_of
from graphtheory.structure.distance import MAX_CUTOFF

_AT_ONCE = 64  # balls per chunk of a thread


def hop_ball(
    graph: Neighborhood, radius: int, *, inner: int = 0, targets: Tensor | None = None
) -> tuple[Neighborhood, Tensor]:
    r"""Everything within `radius` hops, with its distance, without a table of all pairs.

    .. math:: T^n = \{ s : \mathrm{inner} \le \mathrm{hops}(s \to n) \le \mathrm{radius} \}

    The center n is at distance 0 and belongs to its ball unless `inner` > 0. Sources of a row
    ascend, each once. A row may be empty when `inner` > 0. Edge weights are dropped.

    Args:
        graph: A graph whose nodes both send and receive.
        radius: Hops, 0..254.
        inner: Hops, 0..radius; nearer nodes are left out.
        targets: Node ids [R] of the centers, whose balls are the rows; default all nodes.

    Returns:
        The neighborhood [R, N], which carries the distances as `.distance`, and the distances:
        uint8 [E] in edge order.

    Raises:
        TypeError: If `graph` is not a Neighborhood, or a radius is not an integer.
        ValueError: If the graph is bipartite, or a radius is out of range.
        IndexError: If a target does not exist.
        MemoryError: If the result does not fit into the available memory; the message gives sizes.

    Source: section 3.5.1, the distance-1 and distance-2 neighborhoods of S^{n,t}.

    Example:
        >>> path = Neighborhood.from_edge_index(torch.tensor([[0, 1], [1, 2]]), num_nodes=3)
        >>> ball, distance = hop_ball(path, 2)
        >>> ball.edge_index().tolist(), distance.tolist()
        ([[0, 0, 1, 0, 1, 2], [0, 1, 1, 2, 2, 2]], [0, 1, 0, 2, 1, 0])
    """
    num_nodes = num_nodes_of(graph)
    radius = as_hops("radius", radius, 0, MAX_CUTOFF)
    inner = as_hops("inner", inner, 0, radius)
    rows = rows_of(graph)
    ids = torch.arange(num_nodes) if targets is None else as_ids("targets", targets, num_nodes)
    centers, balls = ids.numpy(), len(ids)
    pool = pool_of(graph)
    indptr = torch.zeros(balls + 1, dtype=torch.int64)
    count = indptr.numpy()[1:]

    def measure(a: int, b: int) -> None:
        with pool.scratch() as s:
            own = (s.mark, s.queue, s.turns(b - a))
            _bfs.count_ball(*rows, centers, a, b, inner, radius, count, *own)

    for_chunks(measure, balls, _AT_ONCE)
    torch.cumsum(indptr, 0, out=indptr)
    total = int(indptr[-1])
    require_memory(f"hop_ball: {total} edges", 9 * total, "ask for a smaller radius")
    sources = torch.empty(total, dtype=torch.int64)
    distance = torch.empty(total, dtype=torch.uint8)
    out = indptr.numpy(), sources.numpy(), distance.numpy()

    def fill(a: int, b: int) -> None:
        with pool.scratch() as s:
            own = (s.mark, s.queue, s.turns(b - a), s.hops_of, s.words, s.used)
            _bfs.fill_ball(*rows, centers, a, b, inner, radius, *out, *own)

    for_chunks(fill, balls, _AT_ONCE)
    ball = Neighborhood(indptr, sources, num_nodes, distance=distance, validate=False)
    return ball.to(graph.device), distance.to(graph.device)


def at_distance(graph: Neighborhood, z: int) -> Neighborhood:
    """The distance-z neighborhood N_z(n): for every n, the nodes s with hops(s -> n) exactly z.

    Rows without such nodes are empty; z = 0 is the node itself. Its `.distance` is z everywhere.

    Args:
        graph: A graph whose nodes both send and receive.
        z: Hops, 0..254.

    Raises:
        TypeError: If `graph` is not a Neighborhood, or `z` is not an integer.
        ValueError: If the graph is bipartite, or `z` is out of range.
        MemoryError: If the result does not fit into the available memory.

    Source: section 3.4.2, above equation (3.5).

    Example:
        >>> path = Neighborhood.from_edge_index(torch.tensor([[0, 1], [1, 2]]), num_nodes=3)
        >>> at_distance(path, 2).edge_index().tolist()
        [[0], [2]]
    """
    z = as_hops("z", z, 0, MAX_CUTOFF)
    return hop_ball(graph, z, inner=z)[0]
