"""Shortest-path distances in hops: all pairs, from some sources, for given pairs, within a radius."""

from __future__ import annotations

import operator
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from graphtheory.graph import Neighborhood
from graphtheory.graph.csr import check_index
from graphtheory.structure import _bfs, _components
from graphtheory.structure._memory import require_memory
from graphtheory.structure._threads import for_chunks

UNREACHABLE = _bfs.UNREACHABLE
"""Distance of a pair without any path: 255, above every cutoff."""

MAX_CUTOFF = UNREACHABLE - 1
SOURCES_AT_ONCE = 64 * _bfs.WORDS


def shortest_path_distance(
    graph: Neighborhood,
    *,
    cutoff: int = 20,
    sources: Tensor | None = None,
    pairs: Tensor | None = None,
) -> Tensor:
    r"""Hops of the shortest directed path from a sender to a receiver, saturating at `cutoff`.

    .. math:: D[n, s] = \min(\mathrm{hops}(s \to n),\ \mathrm{cutoff}), \qquad D[n, n] = 0

    Row n is the receiver, column s the sender, as in `Neighborhood.to_dense`; an undirected graph has a
    symmetric D. The value `cutoff` means "so far or farther". A pair without a path, however long, has
    `UNREACHABLE` = 255: the cutoff shortens the count, never the answer whether a path exists. Weights and
    duplicate edges change nothing; a self-loop does not shorten D[n, n] = 0. A graph without nodes gives an
    empty result.

    All pairs and `sources` advance 512 sources together, one bit each: about (N / 512) x hops passes over the
    edges. `pairs` searches from both ends of each pair until they meet; across strongly connected components
    of a directed graph such a search may have to exhaust one side. For repeated queries on a graph whose N^2
    bytes fit, compute all pairs once and index.

    Args:
        graph: As many senders as receivers.
        cutoff: Hops, 1..254.
        sources: Node ids [S]; columns of D to compute. Default all.
        pairs: Node ids [2, P], senders in row 0 and receivers in row 1 as in an `edge_index`.

    Returns:
        uint8 [N, N]; with `sources` [N, S], column k for sources[k]; with `pairs` [P].

    Raises:
        TypeError: `graph` is no Neighborhood, or ids or cutoff are no integers.
        ValueError: A bipartite graph, a cutoff out of range, wrong shapes, or both `sources` and `pairs`.
        IndexError: A node id out of range.
        MemoryError: The result does not fit into the available memory; the message names the sizes.

    Source: the distance behind the encoding of equation (3.2); bucket i holds D = i - 1.

    Example:
        >>> path = Neighborhood.from_edge_index(torch.tensor([[0, 1], [1, 2]]), num_nodes=3)
        >>> shortest_path_distance(path).tolist()
        [[0, 255, 255], [1, 0, 255], [2, 1, 0]]
        >>> shortest_path_distance(path, pairs=torch.tensor([[0, 2], [2, 0]])).tolist()
        [2, 255]
    """
    num_nodes = _num_nodes(graph)
    cutoff = _as_hops("cutoff", cutoff, 1)
    if sources is not None and pairs is not None:
        raise ValueError("sources: given together with pairs, expected one of them")
    if pairs is not None:
        ids = _as_ids("pairs", pairs, num_nodes, (2, -1))
        return _between(graph, ids, cutoff).to(graph.device)
    ids = (
        torch.arange(num_nodes)
        if sources is None
        else _as_ids("sources", sources, num_nodes, (-1,))
    )
    require_memory(
        f"shortest_path_distance: a table of {num_nodes} x {len(ids)} nodes",
        num_nodes * len(ids),
        "ask for fewer `sources`, for `pairs`, or for hop_ball(graph, radius)",
    )
    return _from_sources(graph, ids, cutoff).to(graph.device)


def hop_ball(graph: Neighborhood, radius: int, *, inner: int = 0) -> tuple[Neighborhood, Tensor]:
    r"""Everything within `radius` hops, with its distance, in memory proportional to the answer.

    .. math:: T^n = \{ s : \mathrm{inner} \le \mathrm{hops}(s \to n) \le \mathrm{radius} \}

    The centre n itself is at distance 0 and belongs to the ball unless `inner` > 0. Rows are sets: senders
    ascending, each once. A row may be empty when `inner` > 0. Edge weights are dropped.

    Args:
        graph: As many senders as receivers.
        radius: Hops, 0..254.
        inner: Hops, 0..radius; nearer nodes are left out.

    Returns:
        The neighbourhood, which also carries the distances as `.distance`, and the distances: uint8 [E],
        in the order of its edges.

    Raises:
        TypeError, ValueError, MemoryError: As in `shortest_path_distance`.

    Example:
        >>> path = Neighborhood.from_edge_index(torch.tensor([[0, 1], [1, 2]]), num_nodes=3)
        >>> ball, distance = hop_ball(path, 2)
        >>> ball.edge_index().tolist(), distance.tolist()
        ([[0, 0, 1, 0, 1, 2], [0, 1, 1, 2, 2, 2]], [0, 1, 0, 2, 1, 0])
    """
    num_nodes = _num_nodes(graph)
    radius = _as_hops("radius", radius, 0)
    inner = _as_hops("inner", inner, 0, radius)
    rows = _arrays(graph)
    chunk = max(64, num_nodes // 256)
    indptr = torch.zeros(num_nodes + 1, dtype=torch.int64)
    count = indptr.numpy()[1:]
    for_chunks(lambda a, b: _bfs.count_ball(*rows, a, b, inner, radius, count), num_nodes, chunk)
    torch.cumsum(indptr, 0, out=indptr)
    total = int(indptr[-1])
    require_memory(f"hop_ball: {total} edges", 9 * total, "ask for a smaller radius")
    senders = torch.empty(total, dtype=torch.int64)
    distance = torch.empty(total, dtype=torch.uint8)
    out = indptr.numpy(), senders.numpy(), distance.numpy()
    for_chunks(lambda a, b: _bfs.fill_ball(*rows, a, b, inner, radius, *out), num_nodes, chunk)
    ball = Neighborhood(indptr, senders, num_nodes, distance=distance, validate=False)
    ball = ball.to(graph.device)
    assert ball.distance is not None
    return ball, ball.distance


def at_distance(graph: Neighborhood, z: int) -> Neighborhood:
    """The distance-z neighbourhood N_z(n): for every n, the nodes s with hops(s -> n) exactly z.

    Rows without such nodes are empty; z = 0 is the node itself. Its `.distance` is z everywhere.

    Args:
        graph: As many senders as receivers.
        z: Hops, 0..254.

    Raises:
        TypeError, ValueError, MemoryError: As in `shortest_path_distance`.

    Source: section 3.4.2, above equation (3.5).

    Example:
        >>> path = Neighborhood.from_edge_index(torch.tensor([[0, 1], [1, 2]]), num_nodes=3)
        >>> at_distance(path, 2).edge_index().tolist()
        [[0], [2]]
    """
    return hop_ball(graph, z, inner=z)[0]


class _Components(NamedTuple):
    """What decides whether a path exists, computed once a graph."""

    strong: np.ndarray
    weak: np.ndarray
    order: np.ndarray  # nodes by strong component, senders first


_components_of: WeakKeyDictionary[Neighborhood, _Components] = WeakKeyDictionary()


def _reachability(graph: Neighborhood) -> _Components:
    known = _components_of.get(graph)
    if known is None:
        rows = _arrays(graph)
        strong = _components.strong_components(*rows)
        weak = _components.weak_components(*rows)
        known = _Components(strong, weak, np.argsort(strong, kind="stable"))
        _components_of[graph] = known
    return known


def _from_sources(graph: Neighborhood, sources: Tensor, cutoff: int) -> Tensor:
    rows, parts, ids = _arrays(graph), _reachability(graph), sources.numpy()
    result = torch.empty(graph.num_dst, len(ids), dtype=torch.uint8)
    out = result.numpy()

    def work(start: int, stop: int) -> None:
        batch = ids[start:stop]
        _bfs.from_sources(*rows, parts.order, parts.strong, batch, cutoff, out, start)

    for_chunks(work, len(ids), SOURCES_AT_ONCE)
    return result


def _between(graph: Neighborhood, pairs: Tensor, cutoff: int) -> Tensor:
    rows, columns, parts = _arrays(graph), _arrays(graph.transpose()), _reachability(graph)
    result = torch.empty(pairs.size(1), dtype=torch.uint8)
    ids, out = pairs.numpy(), result.numpy()

    def work(start: int, stop: int) -> None:
        batch, part = np.ascontiguousarray(ids[:, start:stop]), out[start:stop]
        _bfs.between_pairs(*rows, *columns, parts.strong, parts.weak, batch, cutoff, part)

    # Each chunk clears marks for all nodes, so it takes at least as many pairs as pay for that.
    for_chunks(work, len(out), max(4096, graph.num_dst // 64))
    return result


def _arrays(graph: Neighborhood) -> tuple[np.ndarray, np.ndarray]:
    return graph.indptr.cpu().contiguous().numpy(), graph.indices.cpu().contiguous().numpy()


def _num_nodes(graph: Neighborhood) -> int:
    if not isinstance(graph, Neighborhood):
        raise TypeError(f"graph: got {type(graph).__name__}, expected a Neighborhood")
    if graph.num_src != graph.num_dst:
        raise ValueError(
            f"graph: {graph.num_src} senders and {graph.num_dst} receivers, expected as many of both"
        )
    return graph.num_dst


def _as_hops(name: str, value: int, low: int, high: int = MAX_CUTOFF) -> int:
    try:
        hops = operator.index(value)
    except TypeError:
        raise TypeError(f"{name}: got {value!r}, expected a whole number of hops") from None
    if isinstance(value, bool) or not low <= hops <= high:
        raise ValueError(f"{name}: got {value!r}, expected hops in {low}..{high}")
    return hops


def _as_ids(name: str, value: Tensor, num_nodes: int, shape: tuple[int, ...]) -> Tensor:
    ids = torch.as_tensor(value)
    if ids.numel() == 0 and ids.dim() == 1 and len(shape) == 1:
        ids = ids.long()
    if ids.dtype not in (torch.int64, torch.int32):
        raise TypeError(f"{name}: dtype {ids.dtype}, expected int64 or int32 node ids")
    if ids.dim() != len(shape) or any(want not in (-1, got) for got, want in zip(ids.shape, shape)):
        wanted = "[2, num_pairs]" if len(shape) == 2 else "[num_sources]"
        raise ValueError(f"{name}: shape {tuple(ids.shape)}, expected {wanted}")
    check_index(name, ids.flatten(), num_nodes)
    return ids.long().cpu().contiguous()
