"""Uniform sampling of senders, and the node itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from graphtheory.graph import Neighborhood
from graphtheory.graph.csr import sort_by_key
from graphtheory.patterns.base import Pattern, require_square
from graphtheory.structure import shortest_path_distance

_TABLE_BYTES = 2**30
_tables: WeakKeyDictionary[Neighborhood, Tensor] = WeakKeyDictionary()


def pair_distance(graph: Neighborhood, pairs: Tensor, *, cutoff: int = 20) -> Tensor:
    """Hops of each pair (senders over receivers), uint8 [P].

    Up to 2^15 nodes the table of all pairs is made once for each graph object and looked up.
    """
    if graph.num_dst**2 > _TABLE_BYTES:
        return shortest_path_distance(graph, pairs=pairs, cutoff=cutoff)
    if graph not in _tables:
        _tables[graph] = shortest_path_distance(graph, cutoff=254)
    return _tables[graph][pairs[1], pairs[0]]


def _distinct(rows: int, n: int, limit: int, generator: torch.Generator | None) -> Tensor:
    """`rows` uniform n-subsets of 0..limit-1, [rows, n]: Floyd's algorithm on all rows at once."""
    chosen = torch.empty(rows, n, dtype=torch.int64)
    for k, top in enumerate(range(limit - n, limit)):
        draw = torch.randint(top + 1, (rows,), generator=generator)
        taken = (chosen[:, :k] == draw[:, None]).any(1)
        chosen[:, k] = torch.where(taken, top, draw)
    return chosen


@dataclass(frozen=True)
class Sample(Pattern):
    """At most `n` senders a row, uniformly without replacement, afresh on every call.

    A row with n senders or fewer stays whole. With `whole_graph` the given edges do not matter:
    every receiver draws n of all nodes (itself possibly among them), and the distances are those
    of the graph.

    Args:
        n: Senders a row, at least 1.
        whole_graph: Draw from all nodes instead of from the row.

    Source:
        Li (2024), section 3.5: S^{n,t} (60 nodes of a ball; 20 nodes of the whole graph).
    """

    n: int = 20
    whole_graph: bool = False
    is_random: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.n < 1:
            raise ValueError(f"n: got {self.n}, expected at least 1 sender a row")

    def __call__(
        self, neighborhood: Neighborhood, *, generator: torch.Generator | None = None
    ) -> Neighborhood:
        """Draw."""
        if self.whole_graph:
            return self._of_all_nodes(neighborhood, generator)
        rows = neighborhood.receivers()
        key = torch.rand(neighborhood.num_edges, generator=generator, dtype=torch.float64)
        order = torch.argsort(rows + key)  # rows stay together, senders shuffled within
        rank = torch.empty_like(order)
        rank[order] = torch.arange(len(order)) - neighborhood.indptr[rows]
        return neighborhood.keep(rank < self.n)

    def _of_all_nodes(self, graph: Neighborhood, generator: torch.Generator | None) -> Neighborhood:
        nodes = require_square(graph, "Sample(whole_graph=True)")
        n = min(self.n, nodes)
        senders = _distinct(nodes, n, nodes, generator).flatten()
        indptr = torch.arange(nodes + 1) * n
        pairs = torch.stack([senders, torch.arange(nodes).repeat_interleave(n)])
        distance = pair_distance(graph, pairs)
        return Neighborhood(indptr, senders, nodes, distance=distance, validate=False)

    def mask(self, base: Tensor) -> Tensor:
        """The pairs it may draw."""
        return torch.ones_like(base) if self.whole_graph else base

    def row_size(self, base: Tensor) -> Tensor:
        """At most n."""
        return self.mask(base).sum(1).clamp(max=self.n)


@dataclass(frozen=True)
class AddSelf(Pattern):
    """The node itself, at distance 0 and with weight 1, in every row that lacks it."""

    def __call__(
        self, neighborhood: Neighborhood, *, generator: torch.Generator | None = None
    ) -> Neighborhood:
        """Add the missing loops, at the end of their rows."""
        nodes = require_square(neighborhood, "AddSelf")
        rows = neighborhood.receivers()
        has_loop = torch.zeros(nodes, dtype=torch.bool)
        has_loop[rows[neighborhood.indices == rows]] = True
        loops = (~has_loop).nonzero().flatten()
        indptr, order = sort_by_key(torch.cat([rows, loops]), nodes)
        new = {"weight": neighborhood.weight, "distance": neighborhood.distance}
        for (name, old), fill in zip(new.items(), (1, 0), strict=True):
            if old is not None:
                new[name] = torch.cat([old, old.new_full((len(loops),), fill)])[order]
        indices = torch.cat([neighborhood.indices, loops])[order]
        return Neighborhood(indptr, indices, nodes, **new, validate=False)

    def mask(self, base: Tensor) -> Tensor:
        """The diagonal added."""
        return base | torch.eye(base.size(0), dtype=torch.bool)
