"""Uniform sampling of senders, and the node itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from graphtheory.graph import Neighborhood
from graphtheory.patterns.base import Pattern, require_square
from graphtheory.patterns.draw import draw_device, edge_weight, ranks
from graphtheory.structure import shortest_path_distance
from graphtheory.structure._subsets import floyd, sample_rows, with_loops
from graphtheory.structure.distance import MAX_CUTOFF

_TABLE_BYTES = 2**30
_FLOYD = 64  # comparisons that cost what sorting one edge does
_SEEN_BYTES = 2**26  # of a table that says which are drawn; without it each draw is compared
_tables: WeakKeyDictionary[Neighborhood, Tensor] = WeakKeyDictionary()


def pair_distance(graph: Neighborhood, pairs: Tensor) -> Tensor:
    """Hops of each pair (senders over receivers), uint8 [P]; 254 is 254 or more, 255 no path.

    Up to 2^15 nodes the table of all pairs is made once for each graph object and looked up.
    """
    if graph.num_dst**2 > _TABLE_BYTES:
        return shortest_path_distance(graph, pairs=pairs, cutoff=MAX_CUTOFF)
    if graph not in _tables:
        _tables[graph] = shortest_path_distance(graph, cutoff=MAX_CUTOFF)
    return _tables[graph][pairs[1], pairs[0]]


def distinct(
    rows: int, n: int, limit: int | Tensor, generator: torch.Generator | None, device: torch.device
) -> Tensor:
    """`rows` uniform n-subsets of 0..limit-1, [rows, n]: Floyd's algorithm on all rows at once.

    A limit for each row, int64 [rows], is none below n.
    """
    step = torch.arange(n, device=device)[:, None]
    if isinstance(limit, Tensor):
        shares = torch.rand(n, rows, generator=generator, dtype=torch.float64, device=device)
        draws = (shares * (limit - n + 1 + step)).long()
        highest = int(limit.max()) if rows else 0
    else:
        tops = range(limit - n + 1, limit + 1)
        ints = [torch.randint(t, (rows,), generator=generator, device=device) for t in tops]
        draws = torch.stack(ints) if n else step.new_empty(0, rows)
        highest, limit = limit, torch.full((rows,), limit, device=device)
    if device.type == "cpu":
        return torch.from_numpy(floyd(draws.numpy(), limit.numpy(), highest))
    return _floyd(draws, limit, highest)


def _floyd(draws: Tensor, limit: Tensor, highest: int) -> Tensor:
    """What `structure._subsets.floyd` does, on any device."""
    chosen, (n, rows), device = torch.empty_like(draws), draws.shape, draws.device
    small = rows * highest <= _SEEN_BYTES
    seen = torch.zeros(rows * highest if small else 0, dtype=torch.bool, device=device)
    first = torch.arange(rows, device=device) * highest
    for k in range(n):
        top = limit - n + k
        place = first + draws[k] if small else draws[k]
        taken = seen[place] if small else (chosen[:k] == draws[k]).any(0)
        chosen[k] = torch.where(taken, top, draws[k])
        if small:
            seen[torch.where(taken, first + top, place)] = True
    return chosen.t()


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
        if not isinstance(self.n, int) or self.n < 1:
            raise ValueError(f"n: got {self.n!r}, expected a whole number of senders, at least 1")

    def __call__(
        self, neighborhood: Neighborhood, *, generator: torch.Generator | None = None
    ) -> Neighborhood:
        """Draw."""
        draw = self._of_all_nodes if self.whole_graph else self._of_rows
        return draw(neighborhood, None, generator)

    @property
    def by_row(self) -> bool:  # type: ignore[override]
        """Whether each row draws from its own senders."""
        return not self.whole_graph

    def on_rows(
        self, graph: Neighborhood, receivers: Tensor, *, generator: torch.Generator | None = None
    ) -> Neighborhood:
        """Draw for those rows, which are not copied."""
        draw = self._of_all_nodes if self.whole_graph else self._of_rows
        return draw(graph, receivers, generator)

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
            place = ranks(rows.receivers(), generator, device)
            return rows.keep(place < self.n)
        draw = _places if device.type == "cpu" else _places_on_any_device
        return neighborhood.pick(*draw(start, degree, self.n, generator, device))

    def _of_all_nodes(
        self, graph: Neighborhood, receivers: Tensor | None, generator: torch.Generator | None
    ) -> Neighborhood:
        """Draw from all nodes for some receivers, or for all."""
        nodes = require_square(graph, "Sample(whole_graph=True)")
        rows = torch.arange(nodes, device=graph.device) if receivers is None else receivers
        n = min(self.n, nodes)
        drawn = distinct(len(rows), n, nodes, generator, draw_device(generator, graph))
        senders = drawn.flatten().to(graph.device)
        indptr = torch.arange(len(rows) + 1, device=graph.device) * n
        pairs = torch.stack([senders, rows.repeat_interleave(n)])
        if receivers is None:
            distance = pair_distance(graph, pairs)
        else:
            distance = shortest_path_distance(graph, pairs=pairs, cutoff=MAX_CUTOFF)
        return Neighborhood(indptr, senders, nodes, distance=distance, validate=False)

    def mask(self, base: Tensor) -> Tensor:
        """The pairs it may draw."""
        return torch.ones_like(base) if self.whole_graph else base

    def row_size(self, base: Tensor) -> Tensor:
        """At most n."""
        return self.mask(base).sum(1).clamp(max=self.n)

    def expected(self, neighborhood: Neighborhood) -> Neighborhood | None:
        """Each weight times min(1, n / senders of the row); not known of `whole_graph`."""
        if self.whole_graph:
            return None
        share = (self.n / neighborhood.degree().double()).clamp(max=1)
        weight = edge_weight(neighborhood)
        return neighborhood.replace(weight=weight * share[neighborhood.receivers()].to(weight))


@dataclass(frozen=True)
class AddSelf(Pattern):
    """The node itself, at distance 0 and with weight 1, in every row that lacks it."""

    by_row: ClassVar[bool] = True

    def __call__(
        self, neighborhood: Neighborhood, *, generator: torch.Generator | None = None
    ) -> Neighborhood:
        """Add the missing loops, at the end of their rows."""
        nodes = require_square(neighborhood, "AddSelf")
        return add_self(neighborhood, torch.arange(nodes, device=neighborhood.device))

    def narrow(
        self, rows: Neighborhood, receivers: Tensor, *, generator: torch.Generator | None = None
    ) -> Neighborhood:
        """Add the loops of those receivers."""
        return add_self(rows, receivers)

    def mask(self, base: Tensor) -> Tensor:
        """The diagonal added."""
        return base | torch.eye(base.size(0), dtype=torch.bool)


def add_self(rows: Neighborhood, receivers: Tensor) -> Neighborhood:
    """`AddSelf` where row i is the one of node receivers[i]; senders are all nodes."""
    if rows.device.type == "cpu":
        arrays = (t.numpy() for t in (rows.indptr, rows.indices, receivers))
        indptr, edges = map(torch.from_numpy, with_loops(*arrays))
    else:
        indptr, edges = _with_loops(rows, receivers)
    indices = torch.cat([rows.indices, receivers]).index_select(0, edges)
    weight, distance = rows.weight, rows.distance
    if weight is not None:
        weight = torch.cat([weight, weight.new_ones(len(receivers))])[edges]
    if distance is not None:
        hops = torch.cat([distance, distance.new_zeros(len(receivers))])
        distance = hops.index_select(0, edges)
    return Neighborhood(
        indptr, indices, rows.num_src, weight=weight, distance=distance, validate=False
    )


def _places(
    start: Tensor, degree: Tensor, n: int, generator: torch.Generator | None, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Row pointers and edges of at most n edges a row, which begins at `start`; drawn on a CPU."""
    size = degree.cpu()
    shares = torch.rand(n, int((size > n).sum()), generator=generator, dtype=torch.float64)
    found = sample_rows(start.cpu().numpy(), size.numpy(), shares.numpy())
    indptr, edges = (torch.from_numpy(array).to(start.device) for array in found)
    return indptr, edges


def _places_on_any_device(
    start: Tensor, degree: Tensor, n: int, generator: torch.Generator | None, device: torch.device
) -> tuple[Tensor, Tensor]:
    """What `_places` does."""
    count = degree.clamp(max=n)
    indptr = torch.cat([count.new_zeros(1), count.cumsum(0)])
    first = (start - indptr[:-1]).repeat_interleave(count)
    edges = first + torch.arange(len(first), device=first.device)  # rows that stay whole
    long = (degree > n).nonzero().flatten()
    drawn = distinct(len(long), n, degree[long].to(device), generator, device)
    places = indptr[long][:, None] + torch.arange(n, device=long.device)
    edges[places] = start[long][:, None] + drawn.sort(1).values.to(long.device)
    return indptr, edges


def _with_loops(rows: Neighborhood, receivers: Tensor) -> tuple[Tensor, Tensor]:
    """What `structure._subsets.with_loops` does, on any device."""
    row = rows.receivers()
    lacks = torch.ones(rows.num_dst, dtype=torch.bool, device=rows.device)
    lacks[row[rows.indices == receivers[row]]] = False
    added = torch.cat([rows.indptr.new_zeros(1), lacks.cumsum(0)])
    indptr = rows.indptr + added
    edges = torch.empty(int(indptr[-1]), dtype=torch.int64, device=rows.device)
    old = torch.arange(rows.num_edges, device=rows.device)
    edges[old + added[row]] = old
    edges[indptr[1:][lacks] - 1] = rows.num_edges + lacks.nonzero().flatten()
    return indptr, edges
