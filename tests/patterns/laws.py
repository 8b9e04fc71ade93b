"""What every pattern fulfils, as functions that raise where one does not.

`GRAPHS` are simple graphs (no edge twice), so that a pattern's result is a set of pairs and can be
compared with `mask`.
"""

import importlib
import pkgutil
from collections.abc import Callable
from inspect import isabstract
from typing import TypeVar

import torch
from scipy.stats import chi2
from torch import Tensor

from graphtheory import Neighborhood, ops, patterns
from graphtheory.patterns import Compose, GraphSAGE, Pattern, Sample
from graphtheory.structure import shortest_path_distance

Kind = TypeVar("Kind")
NONE = torch.zeros(2, 0, dtype=torch.int64)


def kinds_of(base: type[Kind]) -> list[type[Kind]]:
    """Subclasses of `base` in `graphtheory.patterns`, exported or not, at any depth."""
    for module in pkgutil.walk_packages(patterns.__path__, "graphtheory.patterns."):
        importlib.import_module(module.name)
    kinds, todo = set(), [base]
    while todo:
        below = todo.pop().__subclasses__()
        ours = {k for k in below if k.__module__.startswith("graphtheory.patterns.")}
        kinds |= {k for k in ours if not isabstract(k)}
        todo += below
    return sorted(kinds, key=lambda kind: kind.__name__)


def both_ways(edges: list[tuple[int, int]]) -> Tensor:
    one_way = torch.tensor(edges).t()
    return torch.cat([one_way, one_way.flip(0)], 1)


def random_directed(nodes: int, share: float, seed: int) -> Neighborhood:
    """Loops included, at most one edge a pair; some rows are empty when `share` is small."""
    draw = torch.rand(nodes, nodes, generator=torch.Generator().manual_seed(seed))
    return Neighborhood.from_edge_index((draw < share).nonzero().t(), nodes)


def clique(nodes: int) -> Tensor:
    return (~torch.eye(nodes, dtype=torch.bool)).nonzero().t()


GRAPHS: dict[str, Neighborhood] = {
    name: Neighborhood.from_edge_index(edge_index, nodes)
    for name, edge_index, nodes in (
        ("path", torch.tensor([[0, 1, 2, 3, 4], [1, 2, 3, 4, 5]]), 6),
        ("star", both_ways([(0, leaf) for leaf in range(1, 7)]), 7),
        ("two components", both_ways([(0, 1), (1, 2), (3, 4), (4, 5), (5, 3)]), 6),
        ("isolated node", both_ways([(0, 1), (1, 3)]), 4),
        ("clique", clique(7), 7),
        ("no edges", NONE, 3),
        ("no nodes", NONE, 0),
    )
} | {"random directed": random_directed(13, 0.15, seed=3)}


def source(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def dense(nb: Neighborhood) -> Tensor:
    """Bool [dst, src]: who is in whose row."""
    return nb.replace(weight=None).to_dense() > 0


def pairs(nb: Neighborhood) -> set[tuple[float, ...]]:
    """Every edge as (source, target), with its weight and distance where it has them."""
    columns = [nb.indices, nb.targets()]
    columns += [c for c in (nb.weight, nb.distance) if c is not None]
    return set(zip(*(c.tolist() for c in columns), strict=True))


def relabeled(nb: Neighborhood, name: Tensor) -> Neighborhood:
    """Node i is called name[i]."""
    return Neighborhood.from_edge_index(name[nb.edge_index()], nb.num_dst, weight=nb.weight)


def side_by_side(parts: list[Neighborhood]) -> Neighborhood:
    """The disjoint union, weights and distances kept."""
    first = torch.tensor([0] + [p.num_dst for p in parts]).cumsum(0)
    degree = torch.cat([p.degree() for p in parts])

    def joined(field: str) -> Tensor | None:
        values = [getattr(p, field) for p in parts]
        return None if any(v is None for v in values) else torch.cat(values)

    return Neighborhood(
        torch.cat([torch.zeros(1, dtype=torch.int64), degree.cumsum(0)]),
        torch.cat([p.indices + int(f) for p, f in zip(parts, first, strict=False)]),
        int(first[-1]),
        weight=joined("weight"),
        distance=joined("distance"),
    )


def is_valid_and_leaves_its_input(pattern: Pattern, graph: Neighborhood) -> None:
    before = [graph.indptr.clone(), graph.indices.clone()]
    global_state = torch.get_rng_state()
    out = pattern(graph, generator=source())
    Neighborhood(out.indptr, out.indices, out.num_src, weight=out.weight, distance=out.distance)
    assert (out.num_dst, out.num_src) == (graph.num_dst, graph.num_src)
    assert torch.equal(graph.indptr, before[0]) and torch.equal(graph.indices, before[1])
    assert torch.equal(torch.get_rng_state(), global_state), "drew from global state"


def row_size(pattern: Pattern, base: Tensor) -> Tensor:
    """Sources of each row of the result, int64 [dst], for a dense Bool; -1 where the draw decides.

    Of a `Compose` known for one random pattern, followed at most by an `AddSelf` of nodes not
    drawn.
    """
    if isinstance(pattern, (Sample, GraphSAGE)):
        return pattern.mask(base).sum(1).clamp(max=pattern.n)
    if not isinstance(pattern, Compose):
        return torch.full((len(base),), -1) if pattern.is_random else pattern.mask(base).sum(1)
    size = base.sum(1)
    for part in pattern.patterns:
        after = part.mask(base)
        if part.is_random:
            size = row_size(part, base)
        else:
            size = torch.where(size < 0, size, size + after.sum(1) - base.sum(1))
        base = after
    return size


def equals_its_mask(pattern: Pattern, graph: Neighborhood) -> None:
    out, mask = pattern(graph), pattern.mask(dense(graph))
    assert torch.equal(dense(out), mask)
    assert out.num_edges == int(mask.sum()), "a pair twice"
    assert torch.equal(row_size(pattern, dense(graph)), out.degree())


def draws_from_its_mask(pattern: Pattern, graph: Neighborhood) -> None:
    drawn, mask = source(), pattern.mask(dense(graph))
    for _ in range(3):
        out = pattern(graph, generator=drawn)
        assert not (dense(out) & ~mask).any(), "drew outside the mask"
        size = row_size(pattern, dense(graph))  # -1 where the draw decides
        assert torch.equal(torch.where(size < 0, size, out.degree()), size)
        assert len(set(map(tuple, out.edge_index().t().tolist()))) == out.num_edges, "a pair twice"


def seed_decides(pattern: Pattern, graph: Neighborhood) -> None:
    first, again = (pattern(graph, generator=source(5)) for _ in range(2))
    assert torch.equal(first.edge_index(), again.edge_index())
    drawn = source(5)
    fresh = {str(pattern(graph, generator=drawn).edge_index().tolist()) for _ in range(5)}
    assert len(fresh) == 5, "a draw came again"


def draws_uniformly(pattern: Pattern, graph: Neighborhood, draws: int = 400) -> None:
    """Chi-square of how often each pair of the mask comes.

    n of m without replacement has covariance p (1 - p) m / (m - 1) (I - J/m) with p = n/m, so a
    row's sum of squared errors over that factor is chi-square with m - 1 degrees of freedom.
    """
    base = dense(graph)
    mask, size, drawn = pattern.mask(base), row_size(pattern, base), source(7)
    count = torch.zeros(mask.shape)
    for _ in range(draws):
        count += dense(pattern(graph, generator=drawn))
    of = mask.sum(1)
    free = (size > 0) & (size < of)  # elsewhere nothing is left to chance
    share = (size / of)[free, None]
    error = ((count[free] - draws * share).square() * mask[free]).sum(1, keepdim=True)
    statistic = error / (draws * share * (1 - share) * (of / (of - 1))[free, None])
    freedom = int((of - 1)[free].sum())
    assert freedom > 0 and 1e-4 < chi2.sf(float(statistic.sum()), freedom) < 1 - 1e-6


def weighted(graph: Neighborhood, seed: int = 8) -> Neighborhood:
    """The same edges with float64 weights, away from 0 and of both signs."""
    draw = torch.rand(graph.num_edges, generator=source(seed), dtype=torch.float64) + 0.5
    sign = torch.randint(0, 2, (graph.num_edges,), generator=source(seed + 1)) * 2 - 1
    return graph.replace(weight=draw * sign)


def means_what_it_expects(pattern: Pattern, graph: Neighborhood, draws: int = 500) -> None:
    """Every entry of the mean of the draws is within 4 standard errors of `expected`."""
    nb, drawn = weighted(graph), source(11)
    known = pattern.expected(nb)
    assert known is not None, "no closed form"
    sample = torch.stack([pattern(nb, generator=drawn).to_dense() for _ in range(draws)])
    error = sample.std(0) / draws**0.5
    off = (sample.mean(0) - known.to_dense()).abs()
    assert (off <= 4 * error + 1e-12).all(), f"off by {(off / (error + 1e-12)).max():.1f} errors"


def carries_distances(pattern: Pattern, graph: Neighborhood) -> None:
    out = pattern(graph, generator=source())
    assert out.distance is not None
    expected = shortest_path_distance(graph, cutoff=254)[out.targets(), out.indices]
    assert torch.equal(out.distance, expected)


def works_on_a_batch(pattern: Pattern, parts: list[Neighborhood]) -> None:
    together, apart = pattern(side_by_side(parts)), side_by_side([pattern(p) for p in parts])
    assert pairs(together) == pairs(apart)


def follows_names(pattern: Pattern, graph: Neighborhood) -> None:
    name = torch.randperm(graph.num_dst, generator=source(2))
    out = pattern(graph)
    renamed = {(int(name[s]), int(name[r]), *rest) for s, r, *rest in map(tuple, pairs(out))}
    assert pairs(pattern(relabeled(graph, name))) == renamed


def attention_on(nb: Neighborhood, backend: str) -> list[Tensor]:
    """Output and gradients, the same inputs for every backend; a bias where distances are known."""
    drawn = source(1)
    sizes = [(nb.num_dst, 2, 3), (nb.num_src, 2, 3), (nb.num_src, 2, 3), (256, 2)]
    inputs = [torch.randn(s, generator=drawn, dtype=torch.float64) for s in sizes]
    *qkv, table = (t.requires_grad_() for t in inputs)
    bias = None if nb.distance is None else ops.BucketedBias(nb.distance, table)
    out = ops.attention(*qkv, nb, bias=bias, backend=backend)
    upstream = torch.randn(out.shape, generator=drawn, dtype=torch.float64)
    used = [*qkv, table] if bias is not None else qkv
    return [out, *torch.autograd.grad((out * upstream).sum(), used)]


def runs_on_every_backend(pattern: Pattern, graph: Neighborhood) -> None:
    out = pattern(graph, generator=source())
    expected = attention_on(out, "reference")
    assert not expected[0][out.degree() == 0].any(), "an empty row is not 0"
    for backend in ("numba_csr", "torch_csr"):  # blocks are for token sets, triton_csr for a GPU
        for found, true in zip(attention_on(out, backend), expected, strict=True):
            torch.testing.assert_close(found, true, rtol=1e-10, atol=1e-10)


Law = Callable[[Pattern, Neighborhood], None]
