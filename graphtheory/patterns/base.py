"""What a pattern is, patterns one after the other, on some rows, and for layers of a network."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from graphtheory.graph import Neighborhood, neighborhood_from
from graphtheory.graph.csr import check_index
from graphtheory.structure._loops import renumber

Randomness = torch.Generator | None  # None draws from torch's global random state


class Pattern(ABC):
    """A rule for who aggregates from whom: a function from a neighborhood to a neighborhood.

    Subclasses are frozen dataclasses. Where the hops between source and target are known, the
    result carries them as `.distance`. A subclass must define `apply` and `mask`; the other
    methods have defaults that are correct for every rule.

    Attributes:
        is_random: Whether the result depends on a draw.
        by_row: Whether the rule, applied to some rows [R, N] of a graph, gives these rows of its
            result, if random with the same distribution: `Sample` is one, `KHop` is not, as a ball
            goes on from row to row; its `on_rows` gets the whole graph.
    """

    is_random: ClassVar[bool] = False
    by_row: ClassVar[bool] = False

    def __call__(self, graph: Any, *, generator: Randomness = None, **options: Any) -> Neighborhood:
        """Apply the rule to a graph; a random pattern draws again on every call.

        Args:
            graph: A `Neighborhood`, or what `graph.neighborhood_from` reads: an edge list [2, E],
                whose largest id is the last node, PyG's `Data` with its `num_nodes`, or a sparse
                matrix.
            generator: Source of randomness of a random pattern.
            options: What else a pattern takes, such as the `targets` of `LADIES`.
        """
        if not isinstance(graph, Neighborhood):
            graph = neighborhood_from(graph)
        return self.apply(graph, generator=generator, **options)

    @abstractmethod
    def apply(self, neighborhood: Neighborhood, *, generator: Randomness = None) -> Neighborhood:
        """The rule on a neighborhood, which a subclass defines and the call asks for."""

    @abstractmethod
    def mask(self, base: Tensor) -> Tensor:
        """The rule's definition on a dense Bool [dst, src], slow; tests compare with it.

        ``base[i, j]`` says whether node i aggregates from node j, also in what is returned. A
        deterministic pattern has exactly these pairs; a random one draws among them.
        """

    def expected(self, neighborhood: Neighborhood) -> Neighborhood | None:
        """The mean of the result's weights over all draws, E[A^s]; None where no formula is known.

        An edge without a weight weighs 1, a pair that is not drawn 0.
        """
        return None if self.is_random else self(neighborhood)

    def effective(self, neighborhood: Neighborhood) -> Neighborhood | None:
        """The effective adjacency A* of the rule: its mean, unless the rule's source differs."""
        return self.expected(neighborhood)

    def on_rows(
        self, graph: Neighborhood, targets: Tensor, *, generator: Randomness = None
    ) -> Neighborhood:
        """The rows `targets` of ``self(graph)``, [R, N], as `patterns.on_rows`."""
        if self.by_row:
            return self.narrow(graph.rows(targets), targets, generator=generator)
        return self(graph, generator=generator).rows(targets)

    def drawn_rows(
        self, sampler: Pattern, graph: Neighborhood, targets: Tensor, generator: Randomness
    ) -> Neighborhood | None:
        """`on_rows` of this pattern and a sampler behind it, where both together cost less."""
        return None

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
        """One neighborhood per layer, as `patterns.per_layer`; the default ignores `targets`."""
        if not self.is_random:
            return [self(neighborhood)] * num_layers
        return [self(neighborhood, generator=generator) for _ in range(num_layers)]


class RowPattern(Pattern):
    """A pattern that computes some rows at their cost: the call asks `on_rows` for all of them."""

    def apply(self, neighborhood: Neighborhood, *, generator: Randomness = None) -> Neighborhood:
        return self.on_rows(neighborhood, None, generator=generator)

    @abstractmethod
    def on_rows(
        self, graph: Neighborhood, targets: Tensor | None, *, generator: Randomness = None
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


def on_rows(
    pattern: Pattern,
    graph: Neighborhood,
    targets: Tensor,
    *,
    generator: torch.Generator | None = None,
) -> Neighborhood:
    """The rows `targets` of ``pattern(graph)``, in that order; sources are all nodes.

    `KHop`, `AtDistance`, `DilatedHops` and ``Sample(whole_graph=True)`` as the first pattern, and
    `Sample`, `AddSelf`, `GraphSAGE`, `UniformNodes` and `LADIES` anywhere, cost what those rows
    cost. `FastGCN` and `DegreeGroups` that is not symmetric, as the first pattern, cost one pass
    over the nodes in addition. Draws have the same distribution as those for the whole graph, but
    need not be the same draws. `LADIES` draws for these targets. Any other pattern is applied to
    the whole graph (`Pattern.costs_rows` tells).

    Args:
        pattern: Who aggregates from whom.
        graph: Nodes both send and receive.
        targets: int64 node ids [R], each once.
        generator: Source of randomness.

    Returns:
        Neighborhood [R, N].

    Raises:
        ValueError: If sources and targets of the graph are different nodes.

    Example:
        >>> from graphtheory.patterns import KHop
        >>> path = Neighborhood.from_edge_index(torch.tensor([[0, 1], [1, 2]]), num_nodes=3)
        >>> on_rows(KHop(2), path, torch.tensor([2])).edge_index().tolist()
        [[0, 1], [0, 0]]
    """
    require_square(graph, "on_rows")
    return pattern.on_rows(graph, targets, generator=generator)


def per_layer(
    pattern: Pattern,
    neighborhood: Neighborhood,
    num_layers: int,
    *,
    generator: torch.Generator | None = None,
    targets: Tensor | None = None,
) -> list[Neighborhood]:
    """One neighborhood per layer; the layer that is computed first has index 0.

    Every layer gets its own draw; without randomness all layers get the same object. What comes
    before a random pattern in a `Compose` is applied once. `LADIES` goes from the top layer down:
    the sources that a layer drew are the targets of the layer below.

    Args:
        pattern: Who aggregates from whom; a sampler, perhaps at the end of a `Compose`.
        neighborhood: The graph; nodes both send and receive.
        num_layers: At least 1.
        generator: Source of randomness of all layers.
        targets: int64 node ids whose outputs `LADIES` needs; None is all. Others ignore it.

    Raises:
        ValueError: If there is less than one layer, or sources and targets are different nodes.

    Source:
        Li (2024), section 5.3.2, footnote 23: independent draws; Zou et al. (2019), algorithm 1.

    Example:
        >>> from graphtheory.patterns import AddSelf, Compose, UniformNodes
        >>> path = Neighborhood.from_edge_index(torch.tensor([[0, 1], [1, 2]]), num_nodes=3)
        >>> len(per_layer(Compose(AddSelf(), UniformNodes()), path, 3))
        3
    """
    if not isinstance(num_layers, int) or num_layers < 1:
        raise ValueError(f"num_layers: got {num_layers!r}, expected at least 1")
    require_square(neighborhood, "per_layer")
    return pattern.layers(neighborhood, num_layers, generator=generator, targets=targets)


def layers_on_rows(
    pattern: Pattern,
    graph: Neighborhood,
    targets: Tensor,
    num_layers: int,
    *,
    generator: torch.Generator | None = None,
) -> tuple[Tensor, list[Neighborhood]]:
    """One neighborhood per layer for the outputs of `targets`, drawn from the top layer down.

    The targets of a layer are all nodes of the layer above it. Nodes are numbered so that those
    of a layer come first in the layer below.

    Args:
        pattern: Who aggregates from whom; drawn again for each layer.
        graph: Nodes both send and receive.
        targets: int64 node ids [R], each once.
        num_layers: At least 1.
        generator: Source of randomness of all layers.

    Returns:
        Ids of the needed nodes [n], the targets first, and one neighborhood per layer whose nodes
        are positions in these ids, first layer first.

    Source: Zou et al. (2019), algorithm 1; targets are added to the drawn nodes, as in their code.

    Example:
        >>> from graphtheory.patterns import KHop
        >>> path = Neighborhood.from_edge_index(torch.tensor([[0, 1], [1, 2]]), num_nodes=3)
        >>> nodes, layers = layers_on_rows(KHop(1), path, torch.tensor([2]), 2)
        >>> nodes.tolist(), [(layer.num_dst, layer.num_src) for layer in layers]
        ([2, 1, 0], [(2, 3), (1, 2)])
    """
    layers: list[Neighborhood] = []
    nodes = targets
    for _ in range(num_layers):
        nodes, layer = relabel(nodes, on_rows(pattern, graph, nodes, generator=generator))
        layers.insert(0, layer)
    return nodes, layers


def relabel(targets: Tensor, rows: Neighborhood) -> tuple[Tensor, Neighborhood]:
    """Node ids [n], the targets first, and the rows over them; it costs what the rows cost."""
    given = {"targets": targets, "indices": rows.indices}
    for name, ids in given.items():
        check_index(name, ids, rows.num_src)
    found = renumber(*(ids.cpu().contiguous().numpy() for ids in given.values()), rows.num_src)
    nodes, local = (torch.from_numpy(ids).to(rows.device) for ids in found)
    return nodes, Neighborhood(
        rows.indptr, local, len(nodes), weight=rows.weight, distance=rows.distance, validate=False
    )


def places_among(nodes: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
    """The place of each id in `nodes`, each once, and whether it is there at all."""
    ascending, order = nodes.sort()
    at = torch.searchsorted(ascending, ids).clamp_(max=len(nodes) - 1)
    return order[at], ascending[at] == ids


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

    def apply(self, neighborhood: Neighborhood, *, generator: Randomness = None) -> Neighborhood:
        for pattern in self.patterns:
            neighborhood = pattern(neighborhood, generator=generator)
        return neighborhood

    def mask(self, base: Tensor) -> Tensor:
        for pattern in self.patterns:
            base = pattern.mask(base)
        return base

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
        rows = parts[0].drawn_rows(parts[1], graph, targets, generator) if parts[1:] else None
        rest = parts[1 if rows is None else 2 :]
        if rows is None:
            rows = parts[0].on_rows(graph, targets, generator=generator)
        for part in rest:
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
    """The result of the parts before the first random one, and the other parts, None if none."""
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
