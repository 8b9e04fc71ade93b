"""Uniform sampling of source nodes, row by row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from graphtheory.graph import Neighborhood
from graphtheory.patterns.base import Pattern, require_square
from graphtheory.patterns.draw import draw_device, edge_weight, ranks
from graphtheory.patterns.subsets import distinct, sample_edges
from graphtheory.structure import shortest_path_distance
from graphtheory.structure.distance import MAX_CUTOFF

_TABLE_BYTES = 2**30
_FLOYD = 64  # comparisons that cost as much as sorting one edge
_tables: WeakKeyDictionary[Neighborhood, Tensor] = WeakKeyDictionary()


def pair_distance(graph: Neighborhood, pairs: Tensor) -> Tensor:
    """Hops of each pair (sources over targets), uint8 [P]; 254 is 254 or more, 255 no path.

    Up to 2^15 nodes, the table of all pairs is computed once per graph object.
    """
    if graph.num_dst**2 > _TABLE_BYTES:
        return shortest_path_distance(graph, pairs=pairs, cutoff=MAX_CUTOFF)
    graph.check_unchanged()
    if graph not in _tables:
        _tables[graph] = shortest_path_distance(graph, cutoff=MAX_CUTOFF)
    return _tables[graph][pairs[1], pairs[0]]


@dataclass(frozen=True)
class Sample(Pattern):
    """At most `n` sources per row, uniformly without replacement, drawn again on every call.

    A row with at most n sources stays whole. With `whole_graph` the given edges do not matter:
    every target draws n of all nodes, possibly itself, and the distances are those of the graph.

    Args:
        n: Sources per row, at least 1.
        whole_graph: Draw from all nodes instead of from the row.

    Source:
        Li (2024), section 3.5: S^{n,t} (60 nodes of a ball; 20 nodes of the whole graph).
    """

    n: int = 20
    whole_graph: bool = False
    is_random: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not isinstance(self.n, int) or self.n < 1:
            raise ValueError(f"n: got {self.n!r}, expected a whole number of sources, at least 1")

    def __call__(
        self, neighborhood: Neighborhood, *, generator: torch.Generator | None = None
    ) -> Neighborhood:
        """Draw."""
        draw = self._of_all_nodes if self.whole_graph else self._of_rows
        return draw(neighborhood, None, generator)

    @property
    def by_row(self) -> bool:  # type: ignore[override]
        """Whether each row draws from its own sources."""
        return not self.whole_graph

    def on_rows(
        self, graph: Neighborhood, targets: Tensor, *, generator: torch.Generator | None = None
    ) -> Neighborhood:
        """Draw for those rows, which are not copied."""
        draw = self._of_all_nodes if self.whole_graph else self._of_rows
        return draw(graph, targets, generator)

    def _of_rows(
        self, neighborhood: Neighborhood, nodes: Tensor | None, generator: torch.Generator | None
    ) -> Neighborhood:
        """Draw from the rows of `nodes`, or from all."""
        start, end = neighborhood.indptr[:-1], neighborhood.indptr[1:]
        if nodes is not None:
            start, end = start[nodes], end[nodes]
        degree, device = end - start, draw_device(generator, neighborhood)
        long = int((degree > self.n).sum())
        if self.n**2 * long > _FLOYD * int(degree.sum()):
            rows = neighborhood if nodes is None else neighborhood.rows(nodes)
            place = ranks(rows.targets(), generator, device)
            return rows.keep(place < self.n)
        return neighborhood.pick(*sample_edges(start, degree, self.n, generator, device))

    def _of_all_nodes(
        self, graph: Neighborhood, targets: Tensor | None, generator: torch.Generator | None
    ) -> Neighborhood:
        """Draw from all nodes for some targets, or for all."""
        nodes = require_square(graph, "Sample(whole_graph=True)")
        rows = torch.arange(nodes, device=graph.device) if targets is None else targets
        n = min(self.n, nodes)
        drawn = distinct(len(rows), n, nodes, generator, draw_device(generator, graph))
        sources = drawn.flatten().to(graph.device)
        indptr = torch.arange(len(rows) + 1, device=graph.device) * n
        pairs = torch.stack([sources, rows.repeat_interleave(n)])
        if targets is None:
            distance = pair_distance(graph, pairs)
        else:
            distance = shortest_path_distance(graph, pairs=pairs, cutoff=MAX_CUTOFF)
        return Neighborhood(indptr, sources, nodes, distance=distance, validate=False)

    def mask(self, base: Tensor) -> Tensor:
        """The pairs that it can draw."""
        return torch.ones_like(base) if self.whole_graph else base

    def row_size(self, base: Tensor) -> Tensor:
        """At most n."""
        return self.mask(base).sum(1).clamp(max=self.n)

    def expected(self, neighborhood: Neighborhood) -> Neighborhood | None:
        """Each weight times min(1, n / sources of the row); not known for `whole_graph`."""
        if self.whole_graph:
            return None
        share = (self.n / neighborhood.degree().double()).clamp(max=1)
        weight = edge_weight(neighborhood)
        return neighborhood.replace(weight=weight * share[neighborhood.targets()].to(weight))
