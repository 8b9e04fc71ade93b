"""Samplers fitted to a share of the neighbours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from graphtheory import metrics
from graphtheory.graph import Neighborhood
from graphtheory.patterns import (
    LADIES,
    DegreeGroups,
    FastGCN,
    GraphSAGE,
    Pattern,
    UniformNodes,
    per_layer,
)

EVEN, BY_DEGREE = "even shares", "shares by degree"
SAMPLERS: dict[str, tuple[str, ...]] = {
    "degree groups": (EVEN, BY_DEGREE),
    "degree groups, p*": (EVEN,),
    "FastGCN": ("",),
    "LADIES": ("", "normalized rows"),
    "GraphSAGE": ("",),
    "uniform nodes": ("",),
}
"""Samplers and their variants.

Degree groups are five, and p* is 1, so that A* = A. "shares by degree": S_l / N_l in proportion to
the inverse square root of the group's mean degree, which gives the least variance for so many
edges. "degree groups, p*": p*_l in proportion to 1 / psi_l, the bound of Li (2024), eq. (5.8),
scaled so that A* has as much weight on its edges as A. FastGCN and LADIES draw different nodes.
"""
_GROUPS, _ROUNDS, _DRAWS, _MOST = 5, 12, 2, 64


class Use(NamedTuple):
    """What draws use of a graph.

    Attributes:
        heard: Share of the neighbours: edges of A^s in the rows in use, over those of A in the same
            rows, summed over the layers. In use are the labelled nodes on top, and below what the
            layer above has drawn.
        edges: These edges of A^s, over all edges of A in every layer.
    """

    heard: float
    edges: float


def neighbors_heard(
    draw: Callable[[torch.Generator], Sequence[Neighborhood]],
    adjacency: Neighborhood,
    labelled: Tensor,
    draws: int,
) -> Use:
    """Mean over `draws` of one neighbourhood for each layer, the top one last."""
    generator = torch.Generator().manual_seed(0)
    heard = edges = whole = 0
    for _ in range(draws):
        rows, layers = labelled, draw(generator)
        for layer in reversed(layers):
            used = layer.rows(rows)
            heard += used.num_edges
            edges += adjacency.rows(rows).num_edges
            rows = used.indices.unique()
        whole += len(layers) * adjacency.num_edges
    return Use(heard / max(edges, 1), heard / max(whole, 1))


def fitted(
    name: str, variant: str, adjacency: Neighborhood, labelled: Tensor, layers: int, budget: float
) -> Pattern:
    """The sampler whose layers hear `budget` of the neighbours, as near as its size lets it.

    Args:
        name: One of `SAMPLERS`.
        variant: One of the sampler's.
        adjacency: A, with weights.
        labelled: Receivers of the top layer.
        layers: How many.
        budget: Share, above 0 and at most 1.
    """

    def heard(pattern: Pattern) -> float:
        draw = partial(_layers, pattern, adjacency, labelled, layers)
        return neighbors_heard(draw, adjacency, labelled, _DRAWS).heard

    if name == "GraphSAGE":
        found = [GraphSAGE(1)]
        while heard(found[-1]) < budget and len(found) < _MOST:
            found.append(GraphSAGE(len(found) + 1))
        return min(found[-2:], key=lambda pattern: abs(heard(pattern) - budget))
    make = _made(name, variant, adjacency)
    low, high = 1e-4, 1.0
    for _ in range(_ROUNDS):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if heard(make(middle)) < budget else (low, middle)
    return make((low * high) ** 0.5)


def _layers(
    pattern: Pattern,
    adjacency: Neighborhood,
    labelled: Tensor,
    layers: int,
    generator: torch.Generator,
) -> list[Neighborhood]:
    return per_layer(pattern, adjacency, layers, generator=generator, receivers=labelled)


def _made(name: str, variant: str, adjacency: Neighborhood) -> Callable[[float], Pattern]:
    """The sampler of each size, a share of the nodes."""
    if name == "FastGCN":
        return lambda size: FastGCN(share=size, replace=False)
    if name == "LADIES":
        return lambda size: LADIES(share=size, replace=False, normalize=variant != "")
    if name == "uniform nodes":
        return lambda size: UniformNodes(share=size)
    group, sizes, *_ = DegreeGroups(_GROUPS).groups_of(adjacency)
    degree = metrics.group_degrees(adjacency, group)
    relative = (degree.min() / degree).sqrt() if variant == BY_DEGREE else torch.ones_like(degree)
    p_star = torch.ones_like(degree)
    if name.endswith("p*"):
        p_star = 1 / metrics.psi(degree, sizes)
        p_star /= p_star[group[adjacency.indices]].mean()
    return lambda size: DegreeGroups(
        _GROUPS, share=tuple((size * relative).tolist()), p_star=tuple(p_star.tolist())
    )
