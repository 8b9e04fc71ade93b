"""How samplers draw nodes, and how draws become edge weights."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from graphtheory.graph import Neighborhood
from graphtheory.patterns.base import Pattern

_FEW_GROUPS = 16  # up to here one pass over the nodes per group is faster than sorting them


def derive(seed: int, *position: int) -> int:
    """A 63-bit seed for one position in a run, such as (epoch,) or (epoch, step).

    Adjacent seeds and positions give unrelated results. A resumed run draws what an uninterrupted
    one draws at the same position, because nothing depends on earlier draws.

    Example:
        >>> derive(0, 1) != derive(1, 0), derive(3, 2) == derive(3, 2)
        (True, True)
    """
    words = np.random.SeedSequence((len(position), seed, *position)).generate_state(1, np.uint64)
    return int(words[0]) >> 1


def draw_device(generator: torch.Generator | None, neighborhood: Neighborhood) -> torch.device:
    """The device to draw on: that of the generator, so that a seed gives one draw on any device.

    Raises:
        TypeError: If `generator` is neither a `torch.Generator` nor None.
    """
    if generator is None:
        return neighborhood.device
    if not isinstance(generator, torch.Generator):
        kind = type(generator).__name__
        raise TypeError(f"generator: got {kind}, expected a torch.Generator or None")
    return generator.device


def edge_weight(neighborhood: Neighborhood) -> Tensor:
    """Weight of each edge [num_edges]; ones if the neighborhood has none."""
    if neighborhood.weight is not None:
        return neighborhood.weight
    return torch.ones(neighborhood.num_edges, device=neighborhood.device)


class Sampler(Pattern):
    """A random pattern that keeps some edges of the graph, with weights of the same mean.

    A subclass needs no more than a call; one that does not keep the mean replaces `expected`.
    """

    is_random: ClassVar[bool] = True

    def mask(self, base: Tensor) -> Tensor:
        """The edges that it may keep: all."""
        return base

    def expected(self, neighborhood: Neighborhood) -> Neighborhood | None:
        """The graph itself."""
        return weighted(neighborhood)


def weighted(neighborhood: Neighborhood) -> Neighborhood:
    """The same neighborhood with weights; ones if it has none."""
    return neighborhood.replace(weight=edge_weight(neighborhood))


def scale_columns(neighborhood: Neighborhood, factor: Tensor) -> Neighborhood:
    """A P for the diagonal P = diag(factor) [num_src]; edges with factor 0 are dropped."""
    factor = factor.to(neighborhood.device)
    kept = neighborhood.keep((factor != 0)[neighborhood.indices])
    weight = edge_weight(kept)
    return kept.replace(weight=weight * factor[kept.indices].to(weight.dtype))


def scale_edges(neighborhood: Neighborhood, factor: Tensor) -> Neighborhood:
    """Weights times `factor` [num_edges]; edges with factor 0 are dropped."""
    stays = factor != 0
    kept = neighborhood.keep(stays)
    weight = edge_weight(kept)
    return kept.replace(weight=weight * factor[stays].to(weight.dtype))


def check_size(count: int | None, share: float | None) -> None:
    """Raise unless at most one of `count` and `share` is given, and in range."""
    if count is not None and share is not None:
        raise ValueError(f"count: got {count} beside share={share}, expected one of the two")
    if count is not None and (isinstance(count, bool) or not isinstance(count, int) or count < 1):
        raise ValueError(f"count: got {count!r}, expected a whole number of nodes, at least 1")
    number = isinstance(share, (int, float)) and not isinstance(share, bool)
    if share is not None and not (number and 0 < share <= 1):
        raise ValueError(f"share: got {share!r}, expected a share of the nodes, in (0, 1]")


def sample_size(count: int | None, share: float | None, nodes: int) -> int:
    """Number of nodes to draw: `count`, or `share` of `nodes` (default half), at least one."""
    if count is not None:
        return count
    return max(1, round((0.5 if share is None else share) * nodes))


def ranks(group: Tensor, generator: torch.Generator | None, device: torch.device) -> Tensor:
    """Rank of each node in a random order of its group [N]; those below S are a uniform sample."""
    key = torch.rand(len(group), generator=generator, dtype=torch.float64, device=device)
    order = torch.argsort(group + key.to(group.device), stable=True)
    first = torch.bincount(group).cumsum(0) - torch.bincount(group)
    rank = torch.empty_like(group)
    rank[order] = torch.arange(len(group), device=group.device) - first[group[order]]
    return rank


def first_of_each(
    group: Tensor, size: Tensor, generator: torch.Generator | None, device: torch.device
) -> Tensor:
    """Bool [N]: `size[l]` nodes of each group l, uniformly without replacement.

    The nodes with the smallest random keys: ``ranks(...) < size[group]`` without sorting.
    """
    if len(size) > _FEW_GROUPS:
        return ranks(group, generator, device) < size[group]
    key = torch.rand(len(group), generator=generator, dtype=torch.float64, device=device)
    key, kept = key.to(group.device), torch.zeros_like(group, dtype=torch.bool)
    for index, count in enumerate(size.tolist()):
        mine = (group == index).nonzero().flatten()
        kept[mine[key[mine].topk(count, largest=False, sorted=False).indices]] = True
    return kept


def total(values: Tensor) -> Tensor:
    """Sum of the values, with the same bits for any number of threads."""
    return values.cumsum(0)[-1]


def importance_factor(
    mass: Tensor, count: int, *, replace: bool, generator: torch.Generator | None
) -> Tensor:
    """Draw nodes in proportion to `mass`; returns a factor per node whose mean over draws is 1.

    With replacement: `count` independent draws from q = mass / sum; the factor is the number of
    times that a node was drawn, divided by count q. Without replacement: `count` different nodes by
    systematic sampling in random order, node j with probability pi_j = min(1, c q_j); the factor of
    a drawn node is 1 / pi_j. Nodes with mass 0 are never drawn and have factor 0.

    Args:
        mass: float64 [n], not negative, on the device to draw on.
        count: Number of draws.
        replace: Whether a node can be drawn twice.
        generator: Source of randomness.

    Raises:
        ValueError: If a mass is not finite.
    """
    if not bool(mass.isfinite().all()):
        raise ValueError("weight: NaN, infinite, or too large to square, expected finite weights")
    factor = torch.zeros_like(mass)
    alive = mass.nonzero().flatten()
    if len(alive):
        drawn = _with_replacement if replace else _systematic
        factor[alive] = drawn(mass[alive], count, generator)
    return factor


def _with_replacement(mass: Tensor, count: int, generator: torch.Generator | None) -> Tensor:
    reach = mass.cumsum(0)
    key = torch.rand(count, generator=generator, dtype=torch.float64, device=mass.device)
    drawn = torch.searchsorted(reach, key * reach[-1], right=True).clamp(max=len(mass) - 1)
    return torch.bincount(drawn, minlength=len(mass)) * reach[-1] / (count * mass)


def inclusion(mass: Tensor, count: int) -> Tensor:
    """Probabilities pi_j = min(1, c mass_j) that sum to `count`, for positive masses [n]."""
    certain = torch.zeros(len(mass), dtype=torch.bool, device=mass.device)
    if count >= len(mass):
        return torch.ones_like(mass)
    while True:
        left = count - int(certain.sum())
        chance = torch.where(certain, 1.0, left * mass / total(torch.where(certain, 0.0, mass)))
        above = chance > 1
        if not bool(above.any()):
            return chance
        certain |= above


def _systematic(mass: Tensor, count: int, generator: torch.Generator | None) -> Tensor:
    chance = inclusion(mass, count)
    order = torch.randperm(len(mass), generator=generator, device=mass.device)
    start = torch.rand(1, generator=generator, dtype=torch.float64, device=mass.device)
    order = order[chance[order] < 1]  # the others are always drawn
    steps = (chance[order].cumsum(0) - start).ceil()
    drawn = chance.new_ones(len(mass))
    drawn[order] = steps.diff(prepend=steps.new_zeros(1))
    return drawn / chance
