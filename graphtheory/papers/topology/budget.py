"""Samplers fitted to a share of the neighbors."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from graphtheory.graph import Neighborhood
from graphtheory.papers.topology import bounds
from graphtheory.patterns import LADIES, DegreeGroups, FastGCN, GraphSAGE, Pattern, UniformNodes
from graphtheory.patterns.fastgcn import column_norms
from graphtheory.patterns.rows import layers_on_rows

EVEN, LEAST = "even shares", "shares of least variance"
SAMPLERS: dict[str, tuple[str, ...]] = {
    "degree groups": (EVEN, LEAST),
    "degree groups, p*": (EVEN,),
    "FastGCN": ("",),
    "LADIES": ("", "normalized rows"),
    "GraphSAGE": ("",),
    "uniform nodes": ("",),
}
"""Samplers and their variants.

There are five degree groups, with p* = 1, so that A* = A. "shares of least variance": S_l / N_l is
proportional to sqrt(w_l / d_l), with w_l the group's mean squared column norm and d_l its mean
degree, which minimizes the sum over nodes of w_l (N_l / S_l - 1) at a given number of edges.
"degree groups, p*": p*_l is proportional to 1 / psi_l, the bound of Li (2024), eq. (5.8),
scaled so that A* has the same total weight as A. FastGCN and LADIES draw distinct nodes.
"""
_GROUPS, _ROUNDS, _DRAWS, _MOST = 5, 12, 3, 64


class NeighborUse(NamedTuple):
    """What batches use of a graph."""

    # share of the neighbors: edges of A^s in the rows that a batch computes, over those of A in the
    # same rows, summed over the layers. These rows are the labeled nodes in the last layer, and in
    # each layer below it all nodes of the layer above.
    neighbors: float
    edges: float  # these edges of A^s, over all edges of A in every layer


def neighbor_use(
    pattern: Pattern, adjacency: Neighborhood, seeds: Tensor, layers: int, draws: int
) -> NeighborUse:
    """Mean over batches of the labeled nodes `seeds`."""
    generator = torch.Generator().manual_seed(0)
    used = of = 0
    for _ in range(draws):
        nodes, drawn = layers_on_rows(pattern, adjacency, seeds, layers, generator=generator)
        used += sum(layer.num_edges for layer in drawn)
        of += sum(adjacency.rows(nodes[: layer.num_dst]).num_edges for layer in drawn)
    return NeighborUse(used / max(of, 1), used / (draws * layers * max(adjacency.num_edges, 1)))


def fitted(
    name: str, variant: str, adjacency: Neighborhood, seeds: Tensor, layers: int, budget: float
) -> Pattern:
    """The sampler whose layers use a share `budget` of the neighbors, as nearly as its size allows.

    The name is one of `SAMPLERS`, the variant one of its; `seeds` are the labeled nodes of a batch.
    """

    def used(pattern: Pattern) -> float:
        return neighbor_use(pattern, adjacency, seeds, layers, _DRAWS).neighbors

    if name == "GraphSAGE":
        found = [GraphSAGE(1)]
        while used(found[-1]) < budget and len(found) < _MOST:
            found.append(GraphSAGE(len(found) + 1))
        return min(found[-2:], key=lambda pattern: abs(used(pattern) - budget))
    make = _sized(name, variant, adjacency)
    low, high = 1e-4, 1.0
    for _ in range(_ROUNDS):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if used(make(middle)) < budget else (low, middle)
    return make((low * high) ** 0.5)


def _sized(name: str, variant: str, adjacency: Neighborhood) -> Callable[[float], Pattern]:
    """Share of the nodes -> the sampler of that size."""
    if name == "FastGCN":
        return lambda size: FastGCN(share=size, replace=False)
    if name == "LADIES":
        return lambda size: LADIES(share=size, replace=False, normalize=variant != "")
    if name == "uniform nodes":
        return lambda size: UniformNodes(share=size)
    group, sizes, *_ = DegreeGroups(_GROUPS).groups_of(adjacency)
    degree = bounds.group_degrees(adjacency, group)
    relative = torch.ones_like(degree)
    if variant == LEAST:
        norm = relative.index_add(0, group, column_norms(adjacency)) - relative
        relative = (norm / (sizes * degree)).sqrt()
        relative /= relative.max()
    p_star = torch.ones_like(degree)
    if name.endswith("p*"):
        p_star = 1 / bounds.psi(degree, sizes)
        p_star /= p_star[group[adjacency.indices]].mean()
    return lambda size: DegreeGroups(
        _GROUPS, share=tuple((size * relative).tolist()), p_star=tuple(p_star.tolist())
    )
