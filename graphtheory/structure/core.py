"""Discriminative nodes around each node by distance: margins and the core distance."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from graphtheory.graph import Neighborhood
from graphtheory.graph.memory import require_memory
from graphtheory.structure import _bfs, _loops
from graphtheory.structure._search import as_hops, for_chunks, num_nodes_of, rows_of
from graphtheory.structure.distance import MAX_CUTOFF, reachability


@dataclass(frozen=True)
class DistanceCounts:
    r"""Number of nodes of each pattern at each distance from every node.

    Attributes:
        pattern: Discriminative nodes of class c at distance z of node n, int32 [N, Z + 1, C].
        size: All nodes at distance z, :math:`|N_z(n)|`, int32 [N, Z + 1].
    """

    pattern: Tensor
    size: Tensor

    def within(self) -> DistanceCounts:
        """Cumulative counts: column z counts distances 0..z, the node itself included."""
        return DistanceCounts(
            self.pattern.cumsum(1, dtype=torch.int32), self.size.cumsum(1, dtype=torch.int32)
        )


def count_by_distance(
    graph: Neighborhood, pattern: Tensor, num_classes: int, *, max_distance: int = 12
) -> DistanceCounts:
    r"""Count, for every node, the discriminative nodes of each class at each distance.

    .. math:: \mathrm{count}[n, z, c] = |\{ s \in N_z(n) : \mathrm{pattern}_s = c \}|

    Distances are unweighted hops s -> n. 512 nodes are taken at a time, without a table of pairs.

    Args:
        graph: A graph whose nodes both send and receive.
        pattern: The class that a node's feature indicates, int64 [N] in 0..num_classes-1, or -1
            for a non-discriminative node.
        num_classes: C, 1 or more.
        max_distance: Z, hops, 1..253.

    Raises:
        TypeError: If `pattern` is not int64.
        ValueError: If shapes are wrong, or values are out of range.

    Source: the sets D_l and N_z^n of section 3.4.2.

    Example:
        >>> path = Neighborhood.from_edge_index(torch.tensor([[0, 1], [1, 2]]), num_nodes=3)
        >>> count_by_distance(path, torch.tensor([1, -1, 0]), 2, max_distance=2).pattern[2].tolist()
        [[1, 0], [0, 0], [0, 1]]
    """
    num_nodes = num_nodes_of(graph)
    max_distance = as_hops("max_distance", max_distance, 1, MAX_CUTOFF - 1)
    _check_classes("pattern", pattern, num_nodes, num_classes, low=-1)
    shape = (num_nodes, max_distance + 1, num_classes + 1)
    require_memory(
        f"count_by_distance: {shape[0]} x {shape[1]} x {shape[2]} counts",
        4 * shape[0] * shape[1] * shape[2],
        "ask for a smaller max_distance",
    )
    group = torch.where(pattern < 0, num_classes, pattern).cpu().numpy()
    out = torch.zeros(shape, dtype=torch.int32)
    count = out.numpy()
    backwards = graph.transpose()  # from n along reversed edges: hops s -> n in column n
    rows, parts = rows_of(backwards), reachability(backwards)

    def work(start: int, stop: int) -> None:
        table = torch.empty(num_nodes, stop - start, dtype=torch.uint8).numpy()
        nodes = torch.arange(start, stop).numpy()
        cut = max_distance + 1
        _bfs.from_sources(*rows, parts.order, parts.strong, nodes, cut, table)
        _loops.count_columns(table, group, count[start:stop])

    for_chunks(work, num_nodes, _bfs.SOURCES_AT_ONCE)
    out = out.to(graph.device)
    return DistanceCounts(out[..., :num_classes], out.sum(-1, dtype=torch.int32))


def winning_margin(counts: DistanceCounts, label: Tensor, *, normalized: bool = False) -> Tensor:
    r"""Number of class-relevant nodes minus confusion nodes at each distance.

    .. math:: \Delta_n(z) = |D_*^n \cap N_z(n)| - |D_\#^n \cap N_z(n)|, \qquad z = 1..Z

    D_* are the discriminative nodes of n's own class. With C > 2 classes the second term is the
    number of all other discriminative nodes divided by C - 1, the average of one confusion class.
    Where N_z(n) is empty both forms are 0.

    Args:
        counts: From `count_by_distance`.
        label: Class of every node, int64 [N] in 0..C-1. It may disagree with the node's pattern.
        normalized: Divide by `|N_z(n)|`.

    Returns:
        float64 [N, Z]; column z - 1 belongs to distance z.

    Raises:
        TypeError: If `label` is not int64.
        ValueError: If there is only one class, or labels have the wrong shape or range.

    Source: equation (3.5); the rule for several classes and the normalized form from section B.1.1.

    Example:
        >>> path = Neighborhood.from_edge_index(torch.tensor([[0, 1], [1, 2]]), num_nodes=3)
        >>> counts = count_by_distance(path, torch.tensor([1, -1, 0]), 2, max_distance=2)
        >>> winning_margin(counts, torch.tensor([1, 1, 0])).tolist()
        [[0.0, 0.0], [1.0, 0.0], [0.0, -1.0]]
    """
    votes = counts.pattern[:, 1:]
    num_nodes, num_distances, num_classes = votes.shape
    if num_classes < 2:
        raise ValueError(f"num_classes: got {num_classes}, expected 2 or more to have a margin")
    _check_classes("label", label, num_nodes, num_classes)
    own = votes.gather(2, label.view(-1, 1, 1).expand(-1, num_distances, 1)).squeeze(2).double()
    margin = own - (votes.sum(2) - own) / (num_classes - 1)
    return margin / counts.size[:, 1:].clamp(min=1) if normalized else margin


def core_distance(margin: Tensor) -> int:
    r"""The distance with the largest margin averaged over all nodes; the smallest one of ties.

    .. math:: z_m = \arg\max_z \bar\Delta(z), \qquad \bar\Delta(z) = \frac1N \sum_n \Delta_n(z)

    Args:
        margin: From `winning_margin` [N, Z]; its mean over the rows is the average margin.

    Returns:
        Hops, 1..Z.

    Raises:
        TypeError: If `margin` is not floating.
        ValueError: If there is no node or no distance.

    Source: equations (3.5), (3.6).

    Example:
        >>> core_distance(torch.tensor([[1.0, 4.0], [1.0, -1.0]]))
        2
    """
    if not margin.is_floating_point():
        raise TypeError(f"margin: dtype {margin.dtype}, expected a floating tensor")
    if margin.dim() != 2 or margin.numel() == 0:
        raise ValueError(f"margin: shape {tuple(margin.shape)}, expected [N, Z], neither of them 0")
    return int(margin.mean(0).argmax()) + 1


def _check_classes(
    name: str, value: Tensor, num_nodes: int, num_classes: int, low: int = 0
) -> None:
    if value.dtype != torch.int64:
        raise TypeError(f"{name}: dtype {value.dtype}, expected int64 class ids")
    if value.shape != (num_nodes,):
        raise ValueError(f"{name}: shape {tuple(value.shape)}, expected [{num_nodes}]")
    if num_nodes and not (low <= int(value.min()) and int(value.max()) < num_classes):
        found = f"{int(value.min())}..{int(value.max())}"
        raise ValueError(f"{name}: values {found}, expected {low}..{num_classes - 1}")
