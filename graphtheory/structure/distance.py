"""Shortest paths in hops: all pairs, from some sources, given pairs, balls, and their edges."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import scipy.sparse.csgraph
import torch
from torch import Tensor

from graphtheory.graph import Neighborhood
from graphtheory.graph.memory import require_memory
from graphtheory.structure import _bfs, _loops
from graphtheory.structure._search import (
    Rows,
    as_hops,
    as_ids,
    for_chunks,
    kept_with_graph,
    not_traced,
    num_nodes_of,
    rows_of,
    scratch_of,
)

UNREACHABLE = _bfs.UNREACHABLE
"""Distance of a pair without any path: 255, above every cutoff."""

MAX_CUTOFF = UNREACHABLE - 1
_PAIRS_AT_ONCE, _BALLS_AT_ONCE, _TARGETS_AT_ONCE = 1024, 64, 16


@not_traced
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

    All pairs and `sources` take about (N / 512) x hops passes over the edges. `pairs` searches from
    both ends of each pair until they meet, in a directed graph through all nodes of one side at
    worst. For many queries on a graph whose N^2 bytes fit, compute all pairs once and index.

    Args:
        graph: A graph whose nodes both send and receive.
        cutoff: Hops, 1..254.
        sources: Node ids [S]; columns of D to compute. Default all.
        pairs: Node ids [2, P], sources in row 0 and targets in row 1 as in an `edge_index`.

    Returns:
        uint8 [N, N]; with `sources` [N, S], column k for sources[k]; with `pairs` [P].

    Raises:
        TypeError: If ids or cutoff are not integers.
        ValueError: If the cutoff is out of range, shapes are wrong, or both ids are given.
        IndexError: If a node id is out of range.

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

    strong: np.ndarray  # never decreasing along an edge
    weak: np.ndarray
    order: np.ndarray  # nodes by strong component, sources first


@kept_with_graph
def reachability(graph: Neighborhood) -> Reachability:
    """Components of the graph (cached)."""
    matrix, found = matrix_of(graph), scipy.sparse.csgraph.connected_components
    # by Tarjan's algorithm, which ends a component after those that its edges lead to
    strong = found(matrix, connection="strong")[1]
    weak = found(matrix, connection="weak")[1]
    return Reachability(strong, weak, np.argsort(strong, kind="stable"))


def matrix_of(graph: Neighborhood) -> scipy.sparse.csr_array:
    """An entry for each edge."""
    indptr, indices = rows_of(graph)
    entries = (np.ones(len(indices), np.int8), indices, indptr)
    return scipy.sparse.csr_array(entries, shape=(graph.num_dst, graph.num_src))


@kept_with_graph
def columns_of(graph: Neighborhood) -> Rows:
    """(indptr, indices) of the edges by source; those of `rows_of` where both are equal."""
    rows, turned = rows_of(graph), matrix_of(graph).tocsc()
    parts = (turned.indptr, turned.indices)
    found = tuple(part.astype(rows[0].dtype, copy=False) for part in parts)
    return rows if all(map(np.array_equal, rows, found)) else found


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
    result = torch.empty(pairs.size(1), dtype=torch.uint8)
    ids, out = pairs.numpy(), result.numpy()

    def work(start: int, stop: int) -> None:
        batch = np.ascontiguousarray(ids[:, start:stop])
        with scratch_of(graph) as s:
            own = (s.mark, s.queue, s.behind, s.turns(2 * (stop - start)))
            of_graph = (rows, columns, parts.strong, parts.weak)
            _bfs.between_pairs(*of_graph, batch, cutoff, out[start:stop], *own)

    for_chunks(work, len(out), _PAIRS_AT_ONCE)
    return result


def _balls(
    graph: Neighborhood, radius: int, inner: int, targets: Tensor | None, max_degree: int | None
) -> tuple[Tensor, Callable[..., None]]:
    """The centers, checked, and what calls a kernel for their balls with arrays and buffers."""
    num_nodes = num_nodes_of(graph)
    radius = as_hops("radius", radius, 0, MAX_CUTOFF)
    inner = as_hops("inner", inner, 0, radius)
    most = graph.num_edges
    if max_degree is not None:
        most = as_hops("max_degree", max_degree, 1, None, "edges")
    ids = torch.arange(num_nodes) if targets is None else as_ids("targets", targets, num_nodes)
    of_balls = (*rows_of(graph), ids.numpy())

    def search(
        kernel: Callable[..., None], *arrays: np.ndarray, buffers: Sequence[str] = ()
    ) -> None:
        def work(start: int, stop: int) -> None:
            with scratch_of(graph) as s:
                own = (s.queue, s.words, *(getattr(s, b) for b in buffers))
                kernel(*of_balls, start, stop, inner, radius, most, *arrays, *own)

        threads = torch.get_num_threads()
        for_chunks(work, len(ids), _BALLS_AT_ONCE if threads > 1 else 16 * _BALLS_AT_ONCE)

    return ids, search


@not_traced
def hop_ball(
    graph: Neighborhood, radius: int, *, inner: int = 0, targets: Tensor | None = None,
    max_degree: int | None = None,
) -> tuple[Neighborhood, Tensor]:  # fmt: skip
    r"""Everything within `radius` hops, with its distance, without a table of all pairs.

    .. math:: T^n = \{ s : \mathrm{inner} \le \mathrm{hops}(s \to n) \le \mathrm{radius} \}

    The center n is at distance 0 and belongs to its ball unless `inner` > 0. Sources of a row
    ascend, each once. A row may be empty when `inner` > 0. Edge weights are dropped.

    Args:
        graph: A graph whose nodes both send and receive.
        radius: Hops, 0..254.
        inner: Hops, 0..radius; nearer nodes are left out.
        targets: Node ids [R] of the centers, whose balls are the rows; default all nodes.
        max_degree: In-edges up to which the search goes on through a node that is not the center,
            at least 1; None is any number. With it, hops are those of the paths that remain.

    Returns:
        The neighborhood [R, N], which carries the distances as `.distance`, and the distances:
        uint8 [E] in edge order.

    Raises:
        TypeError: If a radius or `max_degree` is not an integer.
        ValueError: If one of them is out of range.
        IndexError: If a target does not exist.

    Source: section 3.5.1, the distance-1 and distance-2 neighborhoods of S^{n,t}.

    Example:
        >>> path = Neighborhood.from_edge_index(torch.tensor([[0, 1], [1, 2]]), num_nodes=3)
        >>> ball, distance = hop_ball(path, 2)
        >>> ball.edge_index().tolist(), distance.tolist()
        ([[0, 0, 1, 0, 1, 2], [0, 1, 1, 2, 2, 2]], [0, 1, 0, 2, 1, 0])
    """
    ids, search = _balls(graph, radius, inner, targets, max_degree)
    indptr = torch.zeros(len(ids) + 1, dtype=torch.int64)
    search(_bfs.count_ball, indptr.numpy()[1:])
    torch.cumsum(indptr, 0, out=indptr)
    total = int(indptr[-1])
    require_memory(f"hop_ball: {total} edges", 9 * total, "ask for a smaller radius")
    sources = torch.empty(total, dtype=torch.int64)
    distance = torch.empty(total, dtype=torch.uint8)
    out = indptr.numpy(), sources.numpy(), distance.numpy()
    search(_bfs.fill_ball, *out, buffers=("hops_of", "used"))
    ball = Neighborhood(indptr, sources, graph.num_dst, distance=distance, validate=False)
    return ball.to(graph.device), distance.to(graph.device)


@not_traced
def draw_from_ball(
    graph: Neighborhood, radius: int, n: int, *, inner: int = 0, targets: Tensor | None = None,
    max_degree: int | None = None, generator: torch.Generator | None = None,
) -> Neighborhood:  # fmt: skip
    """At most `n` nodes of each ball, uniformly without replacement, with their distances.

    The distribution is that of `patterns.Sample` on the rows of `hop_ball`, but one search a ball
    does it, and only what is drawn is written. Arguments and errors are those of `hop_ball`.

    Args:
        graph: A graph whose nodes both send and receive.
        radius: Hops, 0..254.
        n: Sources per row, at least 1; a smaller ball stays whole.
        inner: Hops, 0..radius; nearer nodes are left out.
        targets: Node ids [R] of the centers; default all nodes.
        max_degree: As in `hop_ball`.
        generator: Source of randomness; the draws are made on its device.

    Returns:
        The neighborhood [R, N] with `.distance`; sources of a row ascend.

    Source: Li (2024), section 3.5.1, S^{n,t}.
    """
    ids, search = _balls(graph, radius, inner, targets, max_degree)
    device = torch.device("cpu") if generator is None else generator.device
    balls, n = len(ids), as_hops("n", n, 1, None, "sources")
    require_memory(f"draw_from_ball: {balls} x {n} edges", 25 * n * balls, "ask for fewer targets")
    shares = torch.rand(n, balls, generator=generator, dtype=torch.float64, device=device).cpu()
    count, keys = np.zeros(balls, np.int64), np.empty((balls, n), np.int64)
    search(_loops.draw_ball, shares.numpy(), count, keys)
    found, ends = keys[np.arange(n) < count[:, None]], np.append(0, count.cumsum())
    parts = ends, found >> 8, (found & 255).astype(np.uint8)
    indptr, sources, hops = map(torch.from_numpy, parts)
    drawn = Neighborhood(indptr, sources, graph.num_dst, distance=hops, validate=False)
    return drawn.to(graph.device)


@not_traced
def shortest_path_edges(graph: Neighborhood, max_steps: int = 5) -> Tensor:
    r"""Edges of one shortest path from every source to every target, the target's end first.

    .. math:: P[n, s] = (e_1, \dots, e_{\min(d, S)}), \qquad d = \mathrm{hops}(s \to n)

    e_1 ends in node n. An edge is named by its position in the edge list that the graph was built
    from (that of `edge_attr`), in a `Neighborhood` of another origin by its position there. Behind
    the path, for n = s and where there is no path, entries are -1. Of several shortest paths the
    order of the edges decides, not their weights, so the same graph always gives the same ones.

    The time is that of one search per node, O(N (N S + E)), the result N^2 S times 2 bytes (4 from
    2^15 edges on). Compute it once per graph of a set and store it.

    Args:
        graph: A graph whose nodes both send and receive.
        max_steps: S, edges to keep of each path, 1..254; later ones are left out.

    Returns:
        int16 or int32 [N, N, max_steps]; row n is the target, as in `shortest_path_distance`.

    Raises:
        TypeError: If `max_steps` is not an integer.
        ValueError: If `max_steps` is out of range.

    Source: Ying et al. (2021), the paths SP_ij of eq. (7).

    Example:
        >>> path = Neighborhood.from_edge_index(torch.tensor([[0, 1], [1, 2]]), num_nodes=3)
        >>> shortest_path_edges(path, 2)[2].tolist()
        [[1, 0], [1, -1], [-1, -1]]
    """
    num_nodes = num_nodes_of(graph)
    max_steps = as_hops("max_steps", max_steps, 1, MAX_CUTOFF)
    names = torch.arange(graph.num_edges) if graph.perm is None else graph.perm.cpu().long()
    highest = int(names.max()) if len(names) else 0
    dtype = torch.int16 if highest < 2**15 else torch.int32
    require_memory(
        f"shortest_path_edges: {num_nodes} x {num_nodes} paths of {max_steps} edges",
        num_nodes**2 * max_steps * dtype.itemsize,
        "ask for fewer max_steps",
    )
    found = torch.full((num_nodes, num_nodes, max_steps), -1, dtype=dtype)
    rows, out = rows_of(graph), found.numpy()
    named = np.ascontiguousarray(names.numpy())

    def work(start: int, stop: int) -> None:
        _loops.path_edges(*rows, named, start, stop, out[start:stop])

    for_chunks(work, num_nodes, _TARGETS_AT_ONCE)
    return found.to(graph.device)
