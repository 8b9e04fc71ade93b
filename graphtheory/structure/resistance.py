"""Resistance distances, and their buckets."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from graphtheory.graph import Neighborhood
from graphtheory.graph.memory import require_memory
from graphtheory.structure import _loops
from graphtheory.structure._check import num_nodes_of, rows_of
from graphtheory.structure.distance import MAX_CUTOFF, UNREACHABLE


def resistance_distance(graph: Neighborhood) -> Tensor:
    r"""Effective resistance between all pairs of nodes, each edge a resistor of 1 ohm.

    .. math:: R_{ij} = L^+_{ii} + L^+_{jj} - 2 L^+_{ij}, \qquad L = D - A

    Directions, weights, duplicate edges and self-loops are ignored. R is at most the number of hops
    and equal to it in a tree. Nodes of different components have infinite resistance.

    The pseudo-inverse of each component of n nodes costs O(n^3) time and 3 n^2 values of 8 bytes;
    the result takes 8 N^2 bytes.

    Args:
        graph: A graph whose nodes both send and receive.

    Returns:
        float64 [N, N], symmetric, 0 on the diagonal.

    Raises:
        TypeError: If `graph` is not a Neighborhood.
        ValueError: If the graph is bipartite.
        MemoryError: If the result does not fit into the available memory.

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
    component = _loops.weak_components(*rows_of(graph))
    found = np.full((num_nodes, num_nodes), np.inf)
    source, target = graph.indices.cpu().numpy(), graph.targets().cpu().numpy()
    order = np.argsort(component, kind="stable")
    starts = np.flatnonzero(np.diff(component[order], prepend=-1))
    place = np.empty(num_nodes, np.int64)
    edge_order = np.argsort(component[target], kind="stable")
    edge_ends = np.searchsorted(component[target][edge_order], component[order][starts], "right")
    for k, nodes in enumerate(np.split(order, starts[1:]) if num_nodes else []):
        place[nodes] = np.arange(len(nodes))
        mine = edge_order[(edge_ends[k - 1] if k else 0) : edge_ends[k]]
        ends = place[source[mine]], place[target[mine]]
        found[np.ix_(nodes, nodes)] = _of_component(*ends, len(nodes))
    return torch.from_numpy(found).to(graph.device)


def _of_component(source: np.ndarray, target: np.ndarray, size: int) -> np.ndarray:
    """Resistances of a connected graph: inv(L + J/n) is the pseudo-inverse of L plus J/n."""
    linked = np.zeros((size, size))
    linked[source, target] = linked[target, source] = 1
    np.fill_diagonal(linked, 0)
    inverse = np.linalg.inv(np.diag(linked.sum(0)) - linked + 1 / size)
    diagonal = np.diag(inverse)
    resistance = diagonal[:, None] + diagonal - inverse - inverse.T
    np.fill_diagonal(resistance, 0)
    return resistance


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
