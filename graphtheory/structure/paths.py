"""The edges along a shortest path of every pair of nodes."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from graphtheory.graph import Neighborhood
from graphtheory.graph.memory import require_memory
from graphtheory.structure import _loops
from graphtheory.structure._check import as_hops, num_nodes_of, rows_of
from graphtheory.structure._search import for_chunks
from graphtheory.structure.distance import MAX_CUTOFF

_TARGETS_AT_ONCE = 16


def shortest_path_edges(graph: Neighborhood, max_steps: int = 5) -> Tensor:
    r"""Edges of one shortest path from every source to every target, the target's end first.

    .. math:: P[n, s] = (e_1, \dots, e_{\min(d, S)}), \qquad d = \mathrm{hops}(s \to n)

    e_1 ends in node n. An edge is named by its position in the edge list that the graph was built
    from (that of `edge_attr`), in a `Neighborhood` of another origin by its position there. Behind
    the path, for n = s and where there is no path, entries are -1. Of several shortest paths the
    order of the edges decides, so the same graph always gives the same ones.

    The time is that of one search per node, O(N (N S + E)), the result N^2 S times 2 bytes (4 from
    2^15 edges on). Compute it once per graph of a set and store it.

    Args:
        graph: A graph whose nodes both send and receive.
        max_steps: S, edges to keep of each path, 1..254; later ones are left out.

    Returns:
        int16 or int32 [N, N, max_steps]; row n is the target, as in `shortest_path_distance`.

    Raises:
        TypeError: If `graph` is not a Neighborhood, or `max_steps` is not an integer.
        ValueError: If the graph is bipartite, or `max_steps` out of range.
        MemoryError: If the result does not fit into the available memory.

    Source:
        Ying et al. (2021), the paths SP_ij of eq. (7).

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
