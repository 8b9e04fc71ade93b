"""Samplers of edges or nodes, by row or by layer: how they draw, and weights of what they draw."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from graphtheory.graph import Neighborhood
from graphtheory.patterns.base import Pattern, Randomness, RowPattern, require_square
from graphtheory.structure import shortest_path_distance
from graphtheory.structure._loops import floyd, sample_rows
from graphtheory.structure._search import kept_with_graph, not_traced
from graphtheory.structure.distance import MAX_CUTOFF

_FEW_GROUPS = 16  # up to here one pass over the nodes per group is faster than sorting them


def derive(seed: int, *position: int) -> int:
    """A 63-bit seed for a position in a run, such as (epoch, step), unrelated to those nearby."""
    words = np.random.SeedSequence((len(position), seed, *position)).generate_state(1, np.uint64)
    return int(words[0]) >> 1


def generator_of(seed: int, *position: int) -> torch.Generator:
    """A generator on the CPU that draws from `derive`'s seed for a position."""
    return torch.Generator().manual_seed(derive(seed, *position))


def draw_device(generator: Randomness, neighborhood: Neighborhood) -> torch.device:
    """The device to draw on: that of the generator, so that a seed gives one draw on any device."""
    if generator is None:
        return neighborhood.device
    if not isinstance(generator, torch.Generator):
        kind = type(generator).__name__
        raise TypeError(f"generator: got {kind}, expected a torch.Generator or None")
    return generator.device


def edge_weight(neighborhood: Neighborhood) -> Tensor:
    """Weight of each edge [num_edges]; ones if the neighborhood has none."""
    if neighborhood.weight is not None:
        return neighborhood.weight
    return torch.ones(neighborhood.num_edges, device=neighborhood.device)


def weighted(neighborhood: Neighborhood) -> Neighborhood:
    """The same neighborhood with weights; ones if it has none."""
    return neighborhood.replace(weight=edge_weight(neighborhood))


def scaled(neighborhood: Neighborhood, factor: Tensor) -> Neighborhood:
    """Weights times `factor` [num_edges], in the precision of the weights."""
    weight = edge_weight(neighborhood)
    return neighborhood.replace(weight=weight * factor.to(weight))


def scale_edges(neighborhood: Neighborhood, factor: Tensor) -> Neighborhood:
    """Weights times `factor` [num_edges]; edges with factor 0 are dropped."""
    stays = factor != 0
    return scaled(neighborhood.keep(stays), factor[stays])


def scale_columns(neighborhood: Neighborhood, factor: Tensor) -> Neighborhood:
    """A P for the diagonal P = diag(factor) [num_src]; edges with factor 0 are dropped."""
    return scale_edges(neighborhood, factor.to(neighborhood.device)[neighborhood.indices])


@not_traced
def ranks(group: Tensor, generator: Randomness, device: torch.device) -> Tensor:
    """Rank of each node in a random order of its group [N]; those below S are a uniform sample."""
    key = torch.rand(len(group), generator=generator, dtype=torch.float64, device=device)
    order = torch.argsort(group + key.to(group.device), stable=True)
    first = torch.bincount(group).cumsum(0) - torch.bincount(group)
    rank = torch.empty_like(group)
    rank[order] = torch.arange(len(group), device=group.device) - first[group[order]]
    return rank


@not_traced
def first_of_each(
    group: Tensor, size: Tensor, generator: Randomness, device: torch.device
) -> Tensor:
    """Bool [N]: the `size[l]` nodes of each group l with the smallest random keys."""
    if len(size) > _FEW_GROUPS:
        return ranks(group, generator, device) < size[group]
    key = torch.rand(len(group), generator=generator, dtype=torch.float64, device=device)
    key, kept = key.to(group.device), torch.zeros_like(group, dtype=torch.bool)
    for index, count in enumerate(size.tolist()):
        mine = (group == index).nonzero().flatten()
        kept[mine[key[mine].topk(count, largest=False, sorted=False).indices]] = True
    return kept


class Sampler(Pattern):
    """A random pattern that keeps some edges of the graph, with weights of the same mean.

    A subclass needs no more than `apply`; one that does not keep the mean replaces `expected`.
    """

    is_random: ClassVar[bool] = True

    def mask(self, base: Tensor) -> Tensor:
        return base

    def expected(self, neighborhood: Neighborhood) -> Neighborhood | None:
        return weighted(neighborhood)


@dataclass(frozen=True)
class NodeSampler(Sampler):
    """A sampler that draws S nodes for the whole layer: a count, or a share of the nodes."""

    count: int | None = None
    share: float | None = None

    def __post_init__(self) -> None:
        count, share = self.count, self.share
        if count is not None and share is not None:
            raise ValueError(
                f"count: got {count} together with share={share}, expected one of the two"
            )
        whole = isinstance(count, int) and not isinstance(count, bool)
        if count is not None and not (whole and count >= 1):
            raise ValueError(f"count: got {count!r}, expected a whole number of nodes, at least 1")
        number = isinstance(share, (int, float)) and not isinstance(share, bool)
        if share is not None and not (number and 0 < share <= 1):
            raise ValueError(f"share: got {share!r}, expected a share of the nodes, in (0, 1]")

    def size(self, nodes: int, *, distinct: bool = False) -> int:
        """S for a number of nodes; raises if it is above that and they must be `distinct`."""
        size = self.count
        if size is None:
            size = max(1, round((0.5 if self.share is None else self.share) * nodes))
        if distinct and size > max(nodes, 1):
            raise ValueError(f"count: got {size}, expected at most the {nodes} sources there are")
        return size


@dataclass(frozen=True)
class UniformNodes(NodeSampler):
    r"""S of the N sources, uniformly without replacement; every row keeps those only.

    .. math:: A^s_{ij} = A_{ij}\, \frac NS \text{ if j was drawn, else } 0, \qquad E[A^s] = A

    Without sources nothing is drawn.

    Args:
        count: S, 1 to N nodes.
        share: S / N instead, in (0, 1], rounded to at least one node. The default of both is half
            of the nodes.

    Raises:
        ValueError: If both sizes are given, one is out of range, or more nodes are asked for than
            exist.
        TypeError: If `generator` is not a torch.Generator.

    Source: Li (2024), section 5.3.2 with one group and p* = 1.

    Example:
        >>> pair = Neighborhood.from_edge_index(torch.tensor([[0, 1], [1, 0]]), num_nodes=2)
        >>> UniformNodes(count=1)(pair, generator=torch.Generator().manual_seed(0)).weight.tolist()
        [2.0]
    """

    by_row: ClassVar[bool] = True

    def apply(self, neighborhood: Neighborhood, *, generator: Randomness = None) -> Neighborhood:
        device = draw_device(generator, neighborhood)
        nodes = neighborhood.num_src
        if nodes == 0:
            return neighborhood
        size = self.size(nodes, distinct=True)
        one_group = torch.zeros(nodes, dtype=torch.int64, device=neighborhood.device)
        drawn = first_of_each(one_group, torch.tensor([size]), generator, device)
        return scale_columns(neighborhood, drawn.double() * (nodes / size))


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

    Source: Li (2024), section 3.5: S^{n,t} (60 nodes of a ball; 20 nodes of the whole graph).
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

    @torch.compiler.disable  # type: ignore[untyped-decorator]
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

    def expected(self, neighborhood: Neighborhood) -> Neighborhood | None:
        """Each weight times min(1, n / sources of the row); not known for `whole_graph`."""
        if self.whole_graph:
            return None
        share = (self.n / neighborhood.degree().double()).clamp(max=1)
        return scaled(neighborhood, share[neighborhood.targets()])


@dataclass(frozen=True)
class GraphSAGE(RowPattern, Sampler):
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

    def on_rows(
        self, graph: Neighborhood, targets: Tensor | None, *, generator: Randomness = None
    ) -> Neighborhood:
        drawn = Sample(self.n).on_rows(graph, targets, generator=generator)
        ends = graph.indptr
        degree = graph.degree() if targets is None else ends[targets + 1] - ends[targets]
        share = (degree.double() / self.n).clamp(min=1)
        return scaled(drawn, share.index_select(0, drawn.targets()))


@not_traced
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
    """What `structure._loops.floyd` draws, on any device."""
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


@not_traced
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
    """What `sample_edges` draws, on any device."""
    count = degree.clamp(max=n)
    indptr = torch.cat([count.new_zeros(1), count.cumsum(0)])
    first = (start - indptr[:-1]).repeat_interleave(count)
    edges = first + torch.arange(len(first), device=first.device)  # rows that stay whole
    long = (degree > n).nonzero().flatten()
    drawn = distinct(len(long), n, degree[long].to(device), generator, device)
    places = indptr[long][:, None] + torch.arange(n, device=long.device)
    edges[places] = start[long][:, None] + drawn.sort(1).values.to(long.device)
    return indptr, edges
