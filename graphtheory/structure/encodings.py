"""Encodings of nodes and pairs by their graph: degree, distance to the centroid, walks, resistance.

None of them reads edge weights. Laplacian eigenvectors and random walks come with PyG, in
`AddLaplacianEigenvectorPE`, which reads `edge_weight`, and `AddRandomWalkPE`, which is wrong there.
"""

from threading import Lock

import numpy as np
import scipy.sparse
import scipy.sparse.csgraph
import torch
from torch import Tensor

from graphtheory.graph import Neighborhood
from graphtheory.graph.csr import check_pointers
from graphtheory.graph.memory import require_memory
from graphtheory.structure import _bfs
from graphtheory.structure._search import Rows, as_hops, for_chunks, num_nodes_of, rows_of
from graphtheory.structure.distance import MAX_CUTOFF, UNREACHABLE, matrix_of, reachability

_ENTRIES = 2**22  # of probabilities that are kept at once


def degree_encoding(graph: Neighborhood) -> Tensor:
    r"""Log of the number of incoming edges of each node, as a column to append to its features.

    .. math:: e_n = \log(1 + \deg(n))

    Duplicate edges and self-loops count each time, weights do not; an isolated node has 0.

    Args:
        graph: A graph whose nodes both send and receive.

    Returns:
        float32 [N, 1].

    Source: degree encoding of section B.5.2.

    Example:
        >>> star = Neighborhood.from_edge_index(torch.tensor([[1, 2, 3], [0, 0, 0]]), num_nodes=4)
        >>> degree_encoding(star).expm1().round().tolist()
        [[3.0], [0.0], [0.0], [0.0]]
    """
    num_nodes_of(graph)
    check_pointers(graph.indptr, graph.num_edges)
    return graph.degree().float().log1p()[:, None]


def centroids(graph: Neighborhood) -> Tensor:
    r"""The nodes with the smallest mean distance to the rest of their connected component.

    .. math:: \arg\min_{c} \sum_{n \in \mathrm{component}(c)} \mathrm{hops}(c, n)

    Directions and weights are ignored, each component has its own centroids, ties are kept: both
    middle nodes of a path of four, every node of a clique, an isolated node itself.

    Args:
        graph: A graph whose nodes both send and receive.

    Returns:
        Node ids int64 [K], ascending.

    Example:
        >>> path = Neighborhood.from_edge_index(torch.tensor([[0, 1, 2], [1, 2, 3]]), num_nodes=4)
        >>> centroids(path).tolist()
        [1, 2]
    """
    num_nodes = num_nodes_of(graph)
    edges, component = graph.edge_index(), reachability(graph).weak
    both_ways = Neighborhood.from_edge_index(torch.cat([edges, edges.flip(0)], 1), num_nodes)
    farness = _farness(rows_of(both_ways))
    least = np.full(num_nodes, np.iinfo(np.int64).max)
    np.minimum.at(least, component, farness)
    found = torch.from_numpy(np.flatnonzero(farness == least[component]))
    return found.to(graph.device)


def centroid_distance(graph: Neighborhood, *, cutoff: int = 20) -> Tensor:
    """Hops from every node to the nearest centroid of its component, saturating at `cutoff`.

    Directions and weights are ignored as in `centroids`, so every node can reach a centroid.

    Args:
        graph: A graph whose nodes both send and receive.
        cutoff: Hops, 1..254.

    Returns:
        uint8 [N].

    Raises:
        TypeError: If the cutoff is not an integer.
        ValueError: If the cutoff is out of range.

    Source: distance to the centroid of the whole graph, section B.5.2, which does not define it.

    Example:
        >>> path = Neighborhood.from_edge_index(torch.tensor([[0, 1], [1, 2]]), num_nodes=3)
        >>> centroid_distance(path).tolist()
        [1, 0, 1]
    """
    cutoff = as_hops("cutoff", cutoff, 1, MAX_CUTOFF)
    targets = centroids(graph).cpu().numpy()
    if len(targets) == 0:
        return torch.zeros(0, dtype=torch.uint8, device=graph.device)
    hops = scipy.sparse.csgraph.dijkstra(
        matrix_of(graph), directed=False, indices=targets, unweighted=True, min_only=True
    )
    return torch.from_numpy(hops).clamp(max=cutoff).to(graph.device, torch.uint8)


def _farness(rows: Rows) -> np.ndarray:
    sources, lock = np.arange(len(rows[0]) - 1), Lock()
    total = np.zeros(len(sources), np.int64)

    def work(start: int, stop: int) -> None:
        part = np.zeros_like(total)
        _bfs.add_farness(*rows, sources[start:stop], part)
        with lock:
            np.add(total, part, out=total)

    for_chunks(work, len(sources), _bfs.SOURCES_AT_ONCE)
    return total


def walk_probabilities(graph: Neighborhood, pairs: Neighborhood, steps: int) -> Tensor:
    r"""Probability that a random walk from the target of a pair is at its source after k steps.

    .. math:: P_{ij} = [I, M, M^2, \dots, M^{K-1}]_{ij}, \qquad M = D^{-1} A

    A step goes from node i to one that i aggregates from, each edge equally likely; duplicate edges
    count each time, weights do not. A walk at a node without such edges ends.

    Args:
        graph: The graph of the walks.
        pairs: Pairs (i, j) of its nodes: row i lists j. ``patterns.KHop(2)(graph)``, for example.
        steps: K, numbers of each pair, at least 1.

    Returns:
        float32 [pairs.num_edges, K], as features of edges of a layer, or mapped to its `attn_bias`.

    Raises:
        ValueError: If `pairs` has other nodes, or there is no step.

    Source:
        Ma et al. (2023), Graph inductive biases in transformers without message passing, RRWP.

    Example:
        >>> path = Neighborhood.from_edge_index(torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), 3)
        >>> walk_probabilities(path, path, 2).tolist()
        [[0.0, 1.0], [0.0, 0.5], [0.0, 0.5], [0.0, 1.0]]
    """
    nodes, steps = num_nodes_of(graph), as_hops("steps", steps, 1, MAX_CUTOFF)
    if num_nodes_of(pairs) != nodes:
        raise ValueError(f"pairs: {pairs.num_dst} nodes, expected {nodes} as the graph has")
    (indptr, indices), (starts, sources) = rows_of(graph), rows_of(pairs)
    share = np.repeat(1 / np.maximum(np.diff(indptr), 1), np.diff(indptr))
    step = scipy.sparse.csr_array((share, indices, indptr), (nodes, nodes))
    found, at_once = np.zeros((len(sources), steps), np.float32), max(1, _ENTRIES // max(nodes, 1))
    for first in range(0, nodes, at_once):
        bounds = starts[first : first + at_once + 1]
        edges, rows = slice(bounds[0], bounds[-1]), len(bounds) - 1
        walks = scipy.sparse.eye_array(rows, nodes, k=first, format="csr")
        row = np.repeat(np.arange(rows), np.diff(bounds))
        for k in range(steps):
            found[edges, k] = walks.toarray()[row, sources[edges]]
            walks = walks @ step
    return torch.from_numpy(found).to(graph.device)


def resistance_distance(graph: Neighborhood) -> Tensor:
    r"""Effective resistance between all pairs of nodes, each edge a resistor of 1 ohm.

    .. math:: R_{ij} = L^+_{ii} + L^+_{jj} - 2 L^+_{ij}, \qquad L = D - A

    Directions, weights, duplicate edges and self-loops are ignored. R is at most the number of hops
    and equal to it in a tree. Nodes of different components have infinite resistance.

    The pseudo-inverse of each component of n nodes costs O(n^3) time and 3 n^2 values of 8 bytes;
    the result takes 8 N^2 bytes.

    Returns:
        float64 [N, N], symmetric, 0 on the diagonal.

    Source:
        Zhang et al. (2023), Rethinking the expressive power of GNNs via graph biconnectivity,
        section 4 (Graphormer-GD).

    Example:
        >>> edges = torch.tensor([[0, 1, 2], [1, 2, 0]])  # a triangle: 1 ohm beside 2 ohm
        >>> ring = Neighborhood.from_edge_index(edges, num_nodes=3)
        >>> round(resistance_distance(ring)[0, 1].item(), 4)
        0.6667
    """
    num_nodes = num_nodes_of(graph)
    require_memory(
        f"resistance_distance: {num_nodes} x {num_nodes} values", 32 * num_nodes**2,
        "take smaller graphs, or structure.shortest_path_distance",
    )  # fmt: skip
    component = reachability(graph).weak
    found = np.full((num_nodes, num_nodes), np.inf)
    source, target = graph.indices.cpu().numpy(), graph.targets().cpu().numpy()
    linked = np.zeros((num_nodes, num_nodes), bool)
    linked[source, target] = linked[target, source] = True
    np.fill_diagonal(linked, False)
    order = np.argsort(component, kind="stable")
    starts = np.flatnonzero(np.diff(component[order], prepend=-1))
    for nodes in np.split(order, starts[1:]) if num_nodes else []:
        block = np.ix_(nodes, nodes)
        edges = linked[block].astype(np.float64)
        # inv(L + J/n) is the pseudo-inverse of L plus J/n
        inverse = np.linalg.inv(np.diag(edges.sum(0)) - edges + 1 / len(edges))
        diagonal = np.diag(inverse)
        found[block] = diagonal[:, None] + diagonal - inverse - inverse.T
    np.fill_diagonal(found, 0)
    return torch.from_numpy(found).to(graph.device)


def resistance_bucket(resistance: Tensor, width: float = 0.5) -> Tensor:
    """Buckets of equal width, in the form of distances in hops, so that `nn.BucketBias` reads them.

    Bucket i holds resistances within half a width of i widths; 254 is 254 widths or more, 255
    (`UNREACHABLE`) no path.

    Args:
        resistance: Floating, 0 or more, of any shape.
        width: Ohms per bucket, above 0.

    Returns:
        uint8 of the same shape.

    Raises:
        ValueError: If the width is not above 0, or a resistance is negative or not a number.

    Example:
        >>> resistance_bucket(torch.tensor([0.0, 0.7, 2.0, torch.inf])).tolist()
        [0, 1, 4, 255]
    """
    if not width > 0:
        raise ValueError(f"width: got {width}, expected more than 0 ohms")
    if resistance.numel() and not bool((resistance >= 0).all()):
        raise ValueError("resistance: a value is negative or not a number, expected 0 or more")
    bucket = (resistance / width).round().clamp(max=MAX_CUTOFF)
    return torch.where(resistance.isinf(), UNREACHABLE, bucket).to(torch.uint8)
