"""The effective adjacency A* of a sampler, in closed form or estimated from draws."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from graphtheory.graph import Neighborhood, neighborhood_from
from graphtheory.graph.csr import sort_by_key
from graphtheory.patterns.base import Compose, Pattern, Randomness, apply_fixed
from graphtheory.patterns.draw import edge_weight, weighted

_DRAWS = 1000


@dataclass(frozen=True)
class EffectiveAdjacency:
    """What `effective_adjacency` has found of a sampler.

    Attributes:
        neighborhood: A*, with weights.
        mean: E[A^s] on the same edges; it differs from A* only for symmetric `DegreeGroups`.
        error: Standard error of each weight [num_edges] of an estimate; None for a closed form.
        draws: Number of draws of an estimate; 0 for a closed form.
    """

    neighborhood: Neighborhood
    mean: Neighborhood
    error: Tensor | None = None
    draws: int = 0


def effective_adjacency(
    pattern: Pattern,
    neighborhood: Neighborhood | Any,
    *,
    draws: int | None = None,
    generator: torch.Generator | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> EffectiveAdjacency:
    r"""The effective adjacency A* of a sampler, which replaces A in predictions.

    .. math:: A^*_{ij} = E[A^s_{ij}] \approx \frac1n \sum_{s=1}^n A^s_{ij}, \qquad
        \text{standard error} = \sqrt{\frac{\sum_s (A^s_{ij} - \bar A_{ij})^2}{n (n - 1)}}

    A pair that was never drawn has no edge in an estimate.

    Args:
        pattern: The sampler.
        neighborhood: A, or a graph that `graph.neighborhood_from` reads, such as PyG's `Data`: A is
            then its `edge_weight`, or ones. ``Compose(AddSelf(), SymmetricNormalize(), sampler)``
            is the pattern that adds self-loops and the GCN's weights first.
        draws: Estimate from this number of draws, at least 2. Default: the closed form if there is
            one, otherwise 1000 draws.
        generator: Source of randomness.
        progress: Called after each draw of an estimate with how many there are.

    Raises:
        ValueError: If there are fewer than two draws, or if the pattern raises it.
        TypeError: If `pattern` is not a Pattern, or `neighborhood` not a graph.

    Source:
        Li (2024), eqs. (5.6), (5.7); other samplers by their mean, as in section 5.4.2 for FastGCN.

    Example:
        >>> from graphtheory.patterns import DegreeGroups
        >>> pair = Neighborhood.from_edge_index(torch.tensor([[0, 1], [1, 0]]), num_nodes=2)
        >>> effective_adjacency(DegreeGroups(p_star=0.3), pair).neighborhood.weight.tolist()
        [0.3..., 0.3...]
    """
    if not isinstance(pattern, Pattern):
        raise TypeError(f"pattern: got {type(pattern).__name__}, expected a Pattern")
    neighborhood = neighborhood_from(neighborhood)
    if draws is None:
        star, mean = pattern.effective(neighborhood), pattern.expected(neighborhood)
        if star is not None and mean is not None:
            return EffectiveAdjacency(weighted(star), weighted(mean))
        draws = _DRAWS
    if not isinstance(draws, int) or draws < 2:
        raise ValueError(f"draws: got {draws!r}, expected at least 2")
    base, sampler = apply_fixed(pattern, neighborhood)
    drawn = sampler or Compose()
    sample = (drawn(base, generator=generator) for _ in range(draws))
    mean, error = _mean_and_error(sample, draws, progress)
    return EffectiveAdjacency(mean, mean, error, draws)


@dataclass(frozen=True)
class Effective(Pattern):
    """The effective adjacency A* of another pattern, as a deterministic pattern.

    `FullGraph(data, sampler, evaluation=Effective(sampler))` trains on draws and predicts with A*.

    Args:
        pattern: A pattern whose A* has a closed form.

    Raises:
        ValueError: If there is no closed form; `effective_adjacency` estimates A* then.

    Source: Li (2024), section 5.3.3: predictions use F_{A*}.
    """

    pattern: Pattern = field(default_factory=Compose)

    def apply(self, neighborhood: Neighborhood, *, generator: Randomness = None) -> Neighborhood:
        star = self.pattern.effective(neighborhood)
        if star is None:
            raise ValueError(
                f"pattern: {self.pattern} has no closed form, expected one that has one; "
                "effective_adjacency estimates it"
            )
        return star

    def mask(self, base: Tensor) -> Tensor:
        return self.pattern.mask(base)


def _mean_and_error(
    sample: Iterator[Neighborhood], draws: int, progress: Callable[[int], None]
) -> tuple[Neighborhood, Tensor]:
    """Moments over the union of all drawn pairs; duplicates within a draw are summed."""
    first = next(sample)
    pair = torch.empty(0, dtype=torch.int64, device=first.device)
    moments = torch.zeros(2, 0, dtype=torch.float64, device=first.device)
    for done, one in enumerate(chain([first], sample), 1):
        code, place = (one.targets() * one.num_src + one.indices).unique(return_inverse=True)
        value = torch.zeros(len(code), dtype=torch.float64, device=one.device)
        value.index_add_(0, place, edge_weight(one).detach().double())
        known, place = torch.cat([pair, code]).unique(return_inverse=True)
        if len(known) > len(pair):
            wider = moments.new_zeros(2, len(known))
            wider[:, place[: len(pair)]] = moments
            pair, moments = known, wider
        moments[:, place[-len(code) :] if len(code) else place[:0]] += torch.stack(
            [value, value.square()]
        )
        progress(done)
    mean = moments[0] / draws
    variance = ((moments[1] - draws * mean.square()) / (draws - 1)).clamp(min=0)
    rows = torch.div(pair, max(first.num_src, 1), rounding_mode="floor")
    indptr, _ = sort_by_key(rows, first.num_dst)
    found = Neighborhood(
        indptr, pair % max(first.num_src, 1), first.num_src,
        weight=mean.to(edge_weight(first).dtype), validate=False,
    )  # fmt: skip
    return found, (variance / draws).sqrt()
