"""Uniform sampling of source nodes, row by row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from graphtheory.graph import Neighborhood
from graphtheory.patterns.base import Randomness, RowPattern, require_square
from graphtheory.patterns.draw import Sampler, draw_device, ranks, scaled
from graphtheory.structure import shortest_path_distance
from graphtheory.structure._loops import floyd, sample_rows
from graphtheory.structure._search import kept_with_graph
from graphtheory.structure.distance import MAX_CUTOFF

_TABLE_BYTES = 2**30  # largest table of the distances of all pairs
_SEEN_BYTES = 2**26  # largest table of what is drawn already; without it each draw is compared
_FLOYD = 64  # comparisons that cost as much as sorting one edge


def pair_distance(graph: Neighborhood, pairs: Tensor) -> Tensor:
    """Hops of each pair (sources over targets), uint8 [P]; 254 is 254 or more, 255 no path.

    Up to 2^15 nodes, the table of all pairs is computed once per graph object.
    """
    if graph.num_dst**2 > _TABLE_BYTES:
        return shortest_path_distance(graph, pairs=pairs, cutoff=MAX_CUTOFF)
    return _table(graph)[pairs[1], pairs[0]]


@kept_with_graph
def _table(graph: Neighborhood) -> Tensor:
    return shortest_path_distance(graph, cutoff=MAX_CUTOFF)


@dataclass(frozen=True)
class Sample(RowPattern):
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

    @property
    def by_row(self) -> bool:  # type: ignore[override]
        return not self.whole_graph

    def on_rows(
        self, graph: Neighborhood, targets: Tensor | None, *, generator: Randomness = None
    ) -> Neighborhood:
        if self.whole_graph:
            return self._of_all_nodes(graph, targets, generator)
        start, end = graph.indptr[:-1], graph.indptr[1:]
        if targets is not None:
            start, end = start[targets], end[targets]
        degree, device = end - start, draw_device(generator, graph)
        long = int((degree > self.n).sum())
        if self.n**2 * long > _FLOYD * int(degree.sum()):
            rows = graph if targets is None else graph.rows(targets)
            return rows.keep(ranks(rows.targets(), generator, device) < self.n)
        return graph.pick(*sample_edges(start, degree, self.n, generator, device))

    def _of_all_nodes(
        self, graph: Neighborhood, targets: Tensor | None, generator: Randomness
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
        return torch.ones_like(base) if self.whole_graph else base

    def row_size(self, base: Tensor) -> Tensor:
        return self.mask(base).sum(1).clamp(max=self.n)

    def expected(self, neighborhood: Neighborhood) -> Neighborhood | None:
        """Each weight times min(1, n / sources of the row); not known for `whole_graph`."""
        if self.whole_graph:
            return None
        share = (self.n / neighborhood.degree().double()).clamp(max=1)
        return scaled(neighborhood, share[neighborhood.targets()])


@dataclass(frozen=True)
class GraphSAGE(Sampler):
    r"""n sources per row, uniformly without replacement, with rescaled weights.

    .. math:: A^s_{ij} = A_{ij}\, \frac{|T^i|}{n} \text{ if j was drawn, else } 0, \qquad E[A^s] = A

    A row with at most n sources stays as it is.

    Args:
        n: Sources per row, at least 1.

    Raises:
        ValueError: If n is not a whole number, or below 1.
        TypeError: If `generator` is not a torch.Generator.

    Source:
        Hamilton, Ying and Leskovec (2017), algorithm 2. Their mean over the drawn sources is this
        pattern on rows with weights `1/|T^i|`; `Sample` draws the same sources without rescaling.

    Example:
        >>> pair = Neighborhood.from_edge_index(torch.tensor([[0, 1], [1, 1]]), num_nodes=2)
        >>> GraphSAGE(1)(pair, generator=torch.Generator().manual_seed(0)).weight.tolist()
        [2.0]
    """

    n: int = 10
    by_row: ClassVar[bool] = True

    def __post_init__(self) -> None:
        Sample(self.n)  # which checks n

    def __call__(self, neighborhood: Neighborhood, *, generator: Randomness = None) -> Neighborhood:
        draw_device(generator, neighborhood)
        factor = (neighborhood.degree().double() / self.n).clamp(min=1)[neighborhood.targets()]
        return Sample(self.n)(scaled(neighborhood, factor), generator=generator)

    def row_size(self, base: Tensor) -> Tensor:
        return base.sum(1).clamp(max=self.n)


def distinct(
    rows: int, n: int, limit: int | Tensor, generator: Randomness, device: torch.device
) -> Tensor:
    """Uniform n-subsets [rows, n] of 0..limit-1, one limit or one per row: Floyd's algorithm."""
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
    """`structure._loops.floyd` on any device."""
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


def sample_edges(
    start: Tensor, degree: Tensor, n: int, generator: Randomness, device: torch.device
) -> tuple[Tensor, Tensor]:
    """(indptr, edges) of uniform subsets, ascending, of at most n edges of each row."""
    if device.type != "cpu":
        return _sample_edges(start, degree, n, generator, device)
    size = degree.cpu()
    shares = torch.rand(n, int((size > n).sum()), generator=generator, dtype=torch.float64)
    found = sample_rows(start.cpu().numpy(), size.numpy(), shares.numpy())
    indptr, edges = (torch.from_numpy(array).to(start.device) for array in found)
    return indptr, edges


def _sample_edges(
    start: Tensor, degree: Tensor, n: int, generator: Randomness, device: torch.device
) -> tuple[Tensor, Tensor]:
    """`sample_edges` on any device."""
    count = degree.clamp(max=n)
    indptr = torch.cat([count.new_zeros(1), count.cumsum(0)])
    first = (start - indptr[:-1]).repeat_interleave(count)
    edges = first + torch.arange(len(first), device=first.device)  # rows that stay whole
    long = (degree > n).nonzero().flatten()
    drawn = distinct(len(long), n, degree[long].to(device), generator, device)
    places = indptr[long][:, None] + torch.arange(n, device=long.device)
    edges[places] = start[long][:, None] + drawn.sort(1).values.to(long.device)
    return indptr, edges
