"""Patterns one after the other."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from graphtheory.graph import Neighborhood
from graphtheory.patterns.base import Pattern, Randomness


@dataclass(frozen=True, init=False)
class Compose(Pattern):
    """Patterns one after the other, the first one first.

    `Compose(KHop(2), Sample(60), AddSelf())` is S^{n,t} of Li (2024), section 3.5.1: the node
    itself and 60 nodes drawn from its distance-1 and distance-2 neighborhoods.

    Args:
        patterns: Any number; none is the identity.

    Example:
        >>> from graphtheory.patterns import AddSelf, KHop
        >>> path = Neighborhood.from_edge_index(torch.tensor([[0, 1], [1, 2]]), num_nodes=3)
        >>> Compose(KHop(1), AddSelf())(path).edge_index().tolist()
        [[0, 0, 1, 1, 2], [0, 1, 1, 2, 2]]
    """

    patterns: tuple[Pattern, ...]

    def __init__(self, *patterns: Pattern) -> None:
        for pattern in patterns:
            if not isinstance(pattern, Pattern):
                raise TypeError(f"patterns: got {type(pattern).__name__}, expected Pattern objects")
        object.__setattr__(self, "patterns", patterns)

    @property
    def is_random(self) -> bool:  # type: ignore[override]
        return any(p.is_random for p in self.patterns)

    def __call__(self, neighborhood: Neighborhood, *, generator: Randomness = None) -> Neighborhood:
        for pattern in self.patterns:
            neighborhood = pattern(neighborhood, generator=generator)
        return neighborhood

    def mask(self, base: Tensor) -> Tensor:
        for pattern in self.patterns:
            base = pattern.mask(base)
        return base

    def row_size(self, base: Tensor) -> Tensor:
        """Known for one random pattern, followed at most by an `AddSelf` of nodes not drawn."""
        size = base.sum(1)
        for pattern in self.patterns:
            after = pattern.mask(base)
            if pattern.is_random:
                size = pattern.row_size(base)
            else:
                size = torch.where(size < 0, size, size + after.sum(1) - base.sum(1))
            base = after
        return size

    def expected(self, neighborhood: Neighborhood) -> Neighborhood | None:
        return self._of_last("expected", neighborhood)

    def effective(self, neighborhood: Neighborhood) -> Neighborhood | None:
        return self._of_last("effective", neighborhood)

    def _of_last(self, matrix: str, neighborhood: Neighborhood) -> Neighborhood | None:
        """`expected` or `effective` of the last pattern; None where an earlier one is random."""
        if not self.patterns:
            return neighborhood
        *before, last = self.patterns
        if any(pattern.is_random for pattern in before):
            return None
        return getattr(last, matrix)(Compose(*before)(neighborhood))

    @property
    def costs_rows(self) -> bool:
        parts = flat(self)
        return not parts or (parts[0].costs_rows and all(part.by_row for part in parts[1:]))

    def on_rows(
        self, graph: Neighborhood, targets: Tensor, *, generator: Randomness = None
    ) -> Neighborhood:
        parts = flat(self)
        if not parts or not self.costs_rows:
            return super().on_rows(graph, targets, generator=generator)
        rows = parts[0].on_rows(graph, targets, generator=generator)
        for part in parts[1:]:
            rows = part.narrow(rows, targets, generator=generator)
        return rows

    def layers(
        self,
        neighborhood: Neighborhood,
        num_layers: int,
        *,
        generator: Randomness = None,
        targets: Tensor | None = None,
    ) -> list[Neighborhood]:
        base, sampler = apply_fixed(self, neighborhood)
        if sampler is None:
            return [base] * num_layers
        if isinstance(sampler, Compose):
            return Pattern.layers(sampler, base, num_layers, generator=generator)
        return sampler.layers(base, num_layers, generator=generator, targets=targets)


def apply_fixed(
    pattern: Pattern, neighborhood: Neighborhood
) -> tuple[Neighborhood, Pattern | None]:
    """The result of the parts before the first random one, and what remains from there on.

    None remains if no part is random.
    """
    parts = flat(pattern)
    first = next((i for i, part in enumerate(parts) if part.is_random), len(parts))
    base, rest = Compose(*parts[:first])(neighborhood), parts[first:]
    if not rest:
        return base, None
    return base, rest[0] if len(rest) == 1 else Compose(*rest)


def flat(pattern: Pattern) -> list[Pattern]:
    """The patterns of a `Compose`, nested ones included; any other pattern alone."""
    if not isinstance(pattern, Compose):
        return [pattern]
    return [part for inner in pattern.patterns for part in flat(inner)]
