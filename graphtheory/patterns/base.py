"""What a pattern is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor

from graphtheory.graph import Neighborhood

Randomness = torch.Generator | None  # None draws from torch's global random state


class Pattern(ABC):
    """A rule for who aggregates from whom: a function from a neighborhood to a neighborhood.

    Subclasses are frozen dataclasses. Where the hops between source and target are known, the
    result carries them as `.distance`. A subclass must define the call and `mask`; the other
    methods have defaults that are correct for every rule.

    Attributes:
        is_random: Whether the result depends on a draw.
        by_row: Whether the rule, applied to some rows of a graph, gives these rows of its result;
            where it is random, with the same distribution. Such a rule takes a neighborhood [R, N]
            and needs no other row: `Sample` is one, `KHop` is not, as a ball goes on from row to
            row; it has an `on_rows` of its own, which gets the whole graph.
        by_position: Whether the ids of nodes matter, so that other names give another result.
    """

    is_random: ClassVar[bool] = False
    by_position: ClassVar[bool] = False
    by_row: ClassVar[bool] = False

    @abstractmethod
    def __call__(self, neighborhood: Neighborhood, *, generator: Randomness = None) -> Neighborhood:
        """Apply the rule; a random pattern draws again on every call."""

    @abstractmethod
    def mask(self, base: Tensor) -> Tensor:
        """The rule's definition on a dense Bool [dst, src], slow; tests compare with it.

        ``base[i, j]`` says whether node i aggregates from node j, also in what is returned.

        The result of a deterministic pattern has exactly these pairs. A random one draws from
        them, `row_size` per row.
        """

    def row_size(self, base: Tensor) -> Tensor:
        """Sources of each row of the result, int64 [dst], for a dense Bool [dst, src].

        -1 where the draw decides, as it does where whole columns are kept or dropped. That is the
        default of a random pattern.
        """
        return torch.full((len(base),), -1) if self.is_random else self.mask(base).sum(1)

    def expected(self, neighborhood: Neighborhood) -> Neighborhood | None:
        """The mean of the result's weights over all draws, E[A^s], where it is known exactly.

        An edge without a weight weighs 1, a pair that is not drawn 0. None where it is known from
        draws only: `effective_adjacency` estimates it then.
        """
        return None if self.is_random else self(neighborhood)

    def effective(self, neighborhood: Neighborhood) -> Neighborhood | None:
        """The effective adjacency A* of the rule: its mean, unless the rule's source differs."""
        return self.expected(neighborhood)

    def on_rows(
        self, graph: Neighborhood, targets: Tensor, *, generator: Randomness = None
    ) -> Neighborhood:
        """The rows `targets` of ``self(graph)``, [R, N]; arguments as in `patterns.on_rows`.

        The default applies a rule that is `by_row` to those rows, any other to the whole graph.
        """
        if self.by_row:
            return self.narrow(graph.rows(targets), targets, generator=generator)
        return self(graph, generator=generator).rows(targets)

    def narrow(
        self, rows: Neighborhood, targets: Tensor, *, generator: Randomness = None
    ) -> Neighborhood:
        """Apply a rule that is `by_row` to some rows: row i is that of node targets[i]."""
        return self(rows, generator=generator)

    @property
    def costs_rows(self) -> bool:
        """Whether `on_rows` costs what those rows cost, not what the whole graph costs."""
        return self.by_row or type(self).on_rows is not Pattern.on_rows

    def layers(
        self,
        neighborhood: Neighborhood,
        num_layers: int,
        *,
        generator: Randomness = None,
        targets: Tensor | None = None,
    ) -> list[Neighborhood]:
        """One neighborhood per layer, first layer first; arguments as in `patterns.per_layer`.

        The default draws independently for every layer, and ignores `targets`.
        """
        if not self.is_random:
            return [self(neighborhood)] * num_layers
        return [self(neighborhood, generator=generator) for _ in range(num_layers)]


class RowPattern(Pattern):
    """A pattern that computes some rows at their cost: `on_rows` and the call are one method."""

    def __call__(self, neighborhood: Neighborhood, *, generator: Randomness = None) -> Neighborhood:
        return self.of_rows(neighborhood, None, generator)

    def on_rows(
        self, graph: Neighborhood, targets: Tensor, *, generator: Randomness = None
    ) -> Neighborhood:
        return self.of_rows(graph, targets, generator)

    @abstractmethod
    def of_rows(
        self, graph: Neighborhood, targets: Tensor | None, generator: Randomness
    ) -> Neighborhood:
        """The rows `targets` of the result; None is all rows."""


def require_square(neighborhood: Neighborhood, who: str) -> int:
    """Number of nodes, or an error where sources and targets are different nodes."""
    if neighborhood.num_src != neighborhood.num_dst:
        raise ValueError(
            f"{who}: neighborhood has {neighborhood.num_src} sources and {neighborhood.num_dst} "
            "targets, expected a graph whose nodes are both"
        )
    return neighborhood.num_dst
