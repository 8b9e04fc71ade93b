"""Shortest-path distances in hops: all pairs, from some sources, for given pairs."""

from __future__ import annotations

from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from graphtheory.graph import Neighborhood
from graphtheory.graph.memory import require_memory
from graphtheory.structure import _bfs, _loops
from graphtheory.structure._check import (
    Rows,
    as_hops,
    as_ids,
    num_nodes_of,
    rows_of,
)
from graphtheory.structure._search import for_chunks, pool_of

UNREACHABLE = _bfs.UNREACHABLE
"""Distance of a pair without any path: 255, above every cutoff."""

MAX_CUTOFF = UNREACHABLE - 1
_PAIRS_AT_ONCE = 1024


def shortest_path_distance(
    graph: Neighborhood,
    *,
    cutoff: int = 20,
    sources: Tensor | None = None,
    pairs: Tensor | None = None,
) -> Tensor:
    r"""Hops of the shortest directed path from a source to a target, saturating at `cutoff`.

    .. math:: D[n, s] = \min(\mathrm{hops}(s \to n),\ \mathrm{cutoff}), \qquad D[n, n] = 0

    Row n is the target, column s the source, as in `Neighborhood.to_dense`; an undirected graph
    has a symmetric D. The value `cutoff` means "at least `cutoff` hops". A pair without a path has
    `UNREACHABLE` = 255, whatever the cutoff. Weights, duplicate edges and self-loops change
    nothing. A graph without nodes gives an empty result.

    All pairs and `sources` advance 512 sources together, one bit each: about (N / 512) x hops
    passes over the edges. `pairs` searches from both ends of each pair until they meet; between
    strongly connected components of a directed graph it may visit all nodes of one side. For many
    queries on a graph whose N^2 bytes fit, compute all pairs once and index.

    Args:
        graph: A graph whose nodes both send and receive.
        cutoff: Hops, 1..254.
        sources: Node ids [S]; columns of D to compute. Default all.
        pairs: Node ids [2, P], sources in row 0 and targets in row 1 as in an `edge_index`.

    Returns:
        uint8 [N, N]; with `sources` [N, S], column k for sources[k]; with `pairs` [P].

    Raises:
        TypeError: If `graph` is not a Neighborhood, or if ids or cutoff are not integers.
        ValueError: If the graph is bipartite, the cutoff is out of range, shapes are wrong, or both
            `sources` and `pairs` are given.
        IndexError: If a node id is out of range.
        MemoryError: If the result does not fit into the available memory; the message gives sizes.

    Source: the distance behind the encoding of equation (3.2); bucket i holds D = i - 1.

    Example:
        >>> path = Neighborhood.from_edge_index(torch.tensor([[0, 1], [1, 2]]), num_nodes=3)
        >>> shortest_path_distance(path).tolist()
        [[0, 255, 255], [1, 0, 255], [2, 1, 0]]
        >>> shortest_path_distance(path, pairs=torch.tensor([[0, 2], [2, 0]])).tolist()
        [2, 255]
    """
    num_nodes = num_nodes_of(graph)
    cutoff = as_hops("cutoff", cutoff, 1, MAX_CUTOFF)
    if sources is not None and pairs is not None:
        raise ValueError("sources: given together with pairs, expected one of them")
    if pairs is not None:
        return _between(graph, as_ids("pairs", pairs, num_nodes, rows=2), cutoff).to(graph.device)
    ids = torch.arange(num_nodes) if sources is None else as_ids("sources", sources, num_nodes)
    require_memory(
        f"shortest_path_distance: a table of {num_nodes} x {len(ids)} nodes",
        num_nodes * len(ids),
        "ask for fewer `sources`, for `pairs`, or for hop_ball(graph, radius)",
    )
    return _from_sources(graph, ids, cutoff).to(graph.device)


class Reachability(NamedTuple):
    """Components of a graph, which decide whether a path exists."""

    strong: np.ndarray
    weak: np.ndarray
    order: np.ndarray  # nodes by strong component, sources first


_known: WeakKeyDictionary[Neighborhood, Reachability] = WeakKeyDictionary()


def reachability(graph: Neighborhood) -> Reachability:
    """Components of the graph (cached)."""
    graph.check_unchanged()
    parts = _known.get(graph)
    if parts is None:
        rows = rows_of(graph)
        strong = _loops.strong_components(*rows)
        order = np.argsort(strong, kind="stable")
        parts = Reachability(strong, _loops.weak_components(*rows), order)
        _known[graph] = parts
    return parts


_columns: WeakKeyDictionary[Neighborhood, Rows] = WeakKeyDictionary()


def columns_of(graph: Neighborhood) -> Rows:
    """(indptr, indices) of the edges by source (cached); the arrays of `rows_of` if both are equal.

    `Neighborhood.transpose` would also keep a `perm` in 64 bits, which no search reads.
    """
    graph.check_unchanged()
    found = _columns.get(graph)
    if found is None:
        indptr, indices = rows = rows_of(graph)
        entries = (np.ones(len(indices), np.int8), indices, indptr)
        by_source = scipy.sparse.csr_array(entries, shape=(graph.num_dst, graph.num_src)).tocsc()
        found = tuple(
            part.astype(indptr.dtype, copy=False) for part in (by_source.indptr, by_source.indices)
        )
        found = _columns[graph] = rows if all(map(np.array_equal, rows, found)) else found
    return found


def _from_sources(graph: Neighborhood, sources: Tensor, cutoff: int) -> Tensor:
    rows, parts, ids = rows_of(graph), reachability(graph), sources.numpy()
    result = torch.empty(graph.num_dst, len(ids), dtype=torch.uint8)
    out = result.numpy()

    def work(start: int, stop: int) -> None:
        # Written hop by hop into separate memory: rows of the result are too far apart.
        columns = np.empty((len(out), stop - start), dtype=np.uint8)
        batch = ids[start:stop]
        _bfs.from_sources(*rows, parts.order, parts.strong, batch, cutoff, columns)
        out[:, start:stop] = columns

    for_chunks(work, len(ids), _bfs.SOURCES_AT_ONCE)
    return result


def _between(graph: Neighborhood, pairs: Tensor, cutoff: int) -> Tensor:
    rows, columns, parts = rows_of(graph), columns_of(graph), reachability(graph)
    pool = pool_of(graph)
    result = torch.empty(pairs.size(1), dtype=torch.uint8)
    ids, out = pairs.numpy(), result.numpy()

    def work(start: int, stop: int) -> None:
        batch = np.ascontiguousarray(ids[:, start:stop])
        with pool.scratch() as s:
            own = (s.mark, s.queue, s.behind, s.turns(2 * (stop - start)))
            of_graph = (rows, columns, parts.strong, parts.weak)
            _bfs.between_pairs(*of_graph, batch, cutoff, out[start:stop], *own)

    for_chunks(work, len(out), _PAIRS_AT_ONCE)
    return result
