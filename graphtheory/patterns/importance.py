"""Importance sampling: nodes drawn in proportion to a mass, with or without replacement."""

from __future__ import annotations

import torch
from torch import Tensor


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
