"""What a pattern is, and how patterns compose."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from graphtheory.graph import Neighborhood


class Pattern(ABC):
    """A rule for who aggregates from whom: a function from a neighbourhood to a neighbourhood.

    Subclasses are frozen dataclasses. Where the hops between sender and receiver are known, the
    result carries them as `.distance`.
    """

    is_random: ClassVar[bool] = False

    @abstractmethod
    def __call__(
        self, neighborhood: Neighborhood, *, generator: torch.Generator | None = None
    ) -> Neighborhood:
        """Apply the rule; a random pattern draws afresh on every call."""

    @abstractmethod
    def mask(self, base: Tensor) -> Tensor:
        """The rule's definition on a dense Bool [dst, src], slow; tests compare with it.

        A deterministic pattern gives exactly these pairs. A random one draws from them, `row_size`
        a row.
        """

    def row_size(self, base: Tensor) -> Tensor:
        """Senders of each row of the result, int64 [dst], for a dense Bool [dst, src].

        -1 where the draw decides, as it does where whole columns are kept or dropped.
        """
        return self.mask(base).sum(1)

    def expected(self, neighborhood: Neighborhood) -> Neighborhood | None:
        """The mean of the result's weights over all draws, E[A^s], where it is known exactly.

        An edge without a weight weighs 1, a pair that is not drawn 0. None where only draws tell:
        `effective_adjacency` estimates it then.
        """
        return None if self.is_random else self(neighborhood)

    def effective(self, neighborhood: Neighborhood) -> Neighborhood | None:
        """The effective adjacency A* of the rule: its mean, unless the rule's source differs."""
        return self.expected(neighborhood)


@dataclass(frozen=True, init=False)
class Compose(Pattern):
    """Patterns one after the other, the first one first.

    `Compose(KHop(2), Sample(60), AddSelf())` is S^{n,t} of Li (2024), section 3.5.1: the node
    itself and 60 nodes drawn from its distance-1 and distance-2 neighbourhoods.

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
        """Whether one of the patterns is."""
        return any(p.is_random for p in self.patterns)

    def __call__(
        self, neighborhood: Neighborhood, *, generator: torch.Generator | None = None
    ) -> Neighborhood:
        """Apply every pattern in turn, all from one generator."""
        for pattern in self.patterns:
            neighborhood = pattern(neighborhood, generator=generator)
        return neighborhood

    def mask(self, base: Tensor) -> Tensor:
        """Composition of the masks."""
        for pattern in self.patterns:
            base = pattern.mask(base)
        return base

    def row_size(self, base: Tensor) -> Tensor:
        """Row sizes where they do not hang on the draw.

        That is for one random pattern at most, and nothing after it but an `AddSelf` where it
        cannot have drawn the node itself.
        """
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
        """Known where nothing is drawn before the last pattern, and known of that one."""
        return self._of_last("expected", neighborhood)

    def effective(self, neighborhood: Neighborhood) -> Neighborhood | None:
        """Known where `expected` is."""
        return self._of_last("effective", neighborhood)

    def _of_last(self, matrix: str, neighborhood: Neighborhood) -> Neighborhood | None:
        """`expected` or `effective` of the last pattern; None where others are random, too."""
        if not self.patterns:
            return neighborhood
        *before, last = self.patterns
        if any(pattern.is_random for pattern in before):
            return None
        return getattr(last, matrix)(Compose(*before)(neighborhood))


def require_square(neighborhood: Neighborhood, who: str) -> int:
    """Number of nodes, or an error where senders and receivers are different nodes."""
    if neighborhood.num_src != neighborhood.num_dst:
        raise ValueError(
            f"{who}: neighborhood has {neighborhood.num_src} senders and {neighborhood.num_dst} "
            "receivers, expected a graph whose nodes are both"
        )
    return neighborhood.num_dst
