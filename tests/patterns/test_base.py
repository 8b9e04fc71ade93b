"""Rows drawn alone are rows of the whole pattern, and layers are draws of their own."""

from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from torch import Tensor

from graphtheory import Neighborhood, bipartite
from graphtheory.patterns import (
    LADIES,
    AddSelf,
    AtDistance,
    Compose,
    DegreeGroups,
    DilatedHops,
    FastGCN,
    GraphSAGE,
    KHop,
    Pattern,
    Sample,
    SymmetricNormalize,
    UniformNodes,
    layers_on_rows,
    on_rows,
    per_layer,
)
from graphtheory.patterns.base import Randomness, relabel
from tests.patterns.laws import GRAPHS, dense, kinds_of, pairs, random_directed, source

GRAPH = random_directed(7, 0.4, seed=2)
ROWS = torch.tensor([5, 0, 3])
# Besides the default of every kind, which a new pattern is tried with without a line here.
FIXED = [
    *(kind() for kind in kinds_of(Pattern) if not kind().is_random), KHop(2), AtDistance(2),
    DilatedHops(2, 1), Compose(KHop(2), AddSelf()), Compose(AddSelf(), SymmetricNormalize()),
    Compose(AtDistance(2), KHop(2)),
]  # fmt: skip
RANDOM = [
    *(kind() for kind in kinds_of(Pattern) if kind().is_random), Sample(2),
    Compose(KHop(2), Sample(2), AddSelf()), GraphSAGE(2), UniformNodes(share=0.6), FastGCN(count=4),
    DegreeGroups(share=0.6), DegreeGroups(share=0.6, symmetric=True),
    Compose(AddSelf(), GraphSAGE(2)), Compose(Sample(3, whole_graph=True), AddSelf()),
    Compose(Sample(3), FastGCN(count=4)),
]  # fmt: skip


@pytest.mark.parametrize("pattern", FIXED, ids=repr)
def test_fixed_pattern_has_the_same_rows(pattern):
    whole, rows = pattern(GRAPH), on_rows(pattern, GRAPH, ROWS)
    assert torch.equal(rows.to_dense(), whole.to_dense()[ROWS])
    assert (rows.num_dst, rows.num_src) == (3, 7)
    expected = whole.rows(ROWS).distance
    assert (rows.distance is None) == (expected is None)
    assert expected is None or torch.equal(rows.distance, expected)


@pytest.mark.parametrize("pattern", RANDOM, ids=repr)
def test_random_pattern_has_the_same_mean(pattern):
    drawn, whole, draws = source(3), source(4), 300
    found = torch.stack(
        [on_rows(pattern, GRAPH, ROWS, generator=drawn).to_dense() for _ in range(draws)]
    )
    expected = torch.stack([pattern(GRAPH, generator=whole).to_dense()[ROWS] for _ in range(draws)])
    error = ((found.var(0) + expected.var(0)) / draws) ** 0.5
    assert ((found.mean(0) - expected.mean(0)).abs() <= 5 * error + 1e-6).all()


@pytest.mark.parametrize("replace", [True, False])
def test_ladies_draws_for_these_targets(replace):
    sampler = LADIES(count=3, replace=replace)
    found = on_rows(sampler, GRAPH, ROWS, generator=source(1))
    expected = sampler(GRAPH, targets=ROWS, generator=source(1)).rows(ROWS)
    torch.testing.assert_close(found.to_dense(), expected.to_dense())


@pytest.mark.parametrize(("pattern", "cheap"), [
    (Compose(KHop(2), Sample(2), AddSelf()), True),
    (Compose(Sample(2, whole_graph=True), GraphSAGE(1)), True),
    (DilatedHops(), True),
    (LADIES(3), True),
    (FastGCN(3), True),
    (DegreeGroups(), True),
    (DegreeGroups(symmetric=True), False),
    (Compose(Sample(3), FastGCN(3)), False),
    (Compose(Sample(2), KHop(2)), False),
    (Compose(AddSelf(), SymmetricNormalize()), False),
])  # fmt: skip
def test_what_costs_its_rows_alone(pattern, cheap):
    assert pattern.costs_rows == cheap


@dataclass(frozen=True)
class EvenSources(Pattern):
    """Keeps sources with an even id, and can do so for some rows without a look at the others."""

    by_row: ClassVar[bool] = True

    def apply(self, neighborhood, *, generator=None):
        assert neighborhood.num_dst == 3, "applied to the whole graph"
        return neighborhood.keep(neighborhood.indices % 2 == 0)

    def mask(self, base):
        return base & (torch.arange(base.size(1)) % 2 == 0)


@dataclass(frozen=True)
class Ring(Pattern):
    """Each node's successor by id; the rows are made from the ids alone."""

    def apply(self, neighborhood, *, generator=None):
        raise AssertionError("applied to the whole graph")

    def on_rows(self, graph, targets, *, generator=None):
        places = torch.arange(len(targets) + 1)
        return Neighborhood(places, (targets + 1) % graph.num_dst, graph.num_dst)

    def mask(self, base):
        return torch.eye(base.size(0), dtype=torch.bool).roll(1, 1)


@pytest.mark.parametrize(
    "pattern", [EvenSources(), Ring(), Compose(Ring(), EvenSources())], ids=repr
)
def test_a_pattern_of_the_users_own_costs_its_rows(pattern):
    assert pattern.costs_rows
    expected = pattern.mask(dense(GRAPH))[ROWS]
    assert torch.equal(dense(on_rows(pattern, GRAPH, ROWS)), expected)
    assert not Compose(EvenSources(), Ring()).costs_rows


def test_layers_on_rows_of_the_users_own_pattern_of_a_square_graph():
    nodes, layers = layers_on_rows(Ring(), GRAPH, ROWS, 2)
    assert nodes.tolist() == [5, 0, 3, 1, 4, 6, 2]
    assert [(one.num_dst, one.num_src) for one in layers] == [(6, 7), (3, 6)]
    with pytest.raises(ValueError, match="on_rows"):
        on_rows(KHop(1), bipartite([2], [3]), torch.tensor([0]))


SAMPLERS: list[Pattern] = [
    DegreeGroups(share=0.6), FastGCN(count=4), FastGCN(count=4, replace=False), GraphSAGE(2),
    LADIES(count=4), LADIES(count=4, replace=False), UniformNodes(share=0.6),
]  # fmt: skip


@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
def test_product_of_the_layers_has_the_mean_of_the_powers(sampler: Pattern) -> None:
    base = Compose(AddSelf(), SymmetricNormalize())(GRAPH)
    base = base.replace(weight=base.weight.double())
    drawn, draws = source(3), 400
    layers = (per_layer(sampler, base, 2, generator=drawn) for _ in range(draws))
    found = torch.stack([top.to_dense() @ low.to_dense() for low, top in layers])
    expected = base.to_dense() @ base.to_dense()
    error = found.std(0) / draws**0.5
    assert ((found.mean(0) - expected).abs() <= 4 * error + 1e-12).all()


@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
def test_layers_are_different_draws_that_the_seed_decides(sampler: Pattern) -> None:
    pattern = Compose(AddSelf(), sampler)
    first, again = (per_layer(pattern, GRAPH, 3, generator=source(1)) for _ in range(2))
    assert [pairs(a) for a in first] == [pairs(b) for b in again]
    assert len({str(sorted(pairs(a))) for a in first}) == 3


@pytest.mark.parametrize(
    "sampler",
    [*SAMPLERS, FastGCN(share=0.6), FastGCN(share=0.3, replace=False), LADIES(normalize=True)],
    ids=repr,
)
def test_threads_change_nothing(sampler: Pattern, two_threads: None) -> None:
    edges = torch.randint(50_000, (2, 200_000), generator=source())
    weight = torch.rand(200_000, generator=source())
    graph = Neighborhood.from_edge_index(edges, 50_000, weight=weight)
    two = sampler(graph, generator=source(6))
    torch.set_num_threads(1)
    one = sampler(graph, generator=source(6))
    assert torch.equal(one.indices, two.indices) and torch.equal(one.weight, two.weight)


def test_ladies_goes_down_from_the_targets_that_are_needed() -> None:
    needed = torch.tensor([3])
    low, middle, top = per_layer(
        LADIES(count=3), AddSelf()(GRAPH), 3, generator=source(), targets=needed
    )
    assert top.targets().unique().tolist() == [3]
    assert set(middle.targets().tolist()) <= set(top.indices.tolist())
    assert set(low.targets().tolist()) <= set(middle.indices.tolist())
    pattern = Compose(Compose(AddSelf(), SymmetricNormalize()), LADIES(count=2))
    _, top = per_layer(pattern, GRAPH, 2, generator=source(), targets=torch.tensor([0]))
    assert top.targets().unique().tolist() == [0]


def test_what_is_not_random_is_made_once() -> None:
    first, second = per_layer(KHop(2), GRAPH, 2)
    assert first is second
    assert len(per_layer(Compose(Sample(1), AddSelf()), GRAPH, 1, generator=source())) == 1


@dataclass(frozen=True)
class Alternating(Pattern):
    """Two hops in the layers of even number; one hop elsewhere."""

    is_random: ClassVar[bool] = True

    def apply(self, neighborhood: Neighborhood, *, generator: Randomness = None) -> Neighborhood:
        return KHop(1)(neighborhood)

    def mask(self, base: Tensor) -> Tensor:
        return KHop(1).mask(base)

    def layers(
        self, neighborhood: Neighborhood, num_layers: int, **options: object
    ) -> list[Neighborhood]:
        return [KHop(2 - place % 2)(neighborhood) for place in range(num_layers)]


@pytest.mark.parametrize("pattern", [Alternating(), Compose(KHop(1), Alternating())], ids=repr)
def test_a_pattern_of_the_users_own_says_what_its_layers_are(pattern: Pattern) -> None:
    found = per_layer(pattern, GRAPH, 3)
    two, one = (pairs(KHop(hops)(GRAPH)) for hops in (2, 1))
    assert [pairs(layer) for layer in found] == [two, one, two]


def test_what_does_not_fit_is_refused() -> None:
    for wrong in (0, 1.5):
        with pytest.raises(ValueError, match=f"num_layers: got {wrong}, expected at least 1"):
            per_layer(FastGCN(), GRAPH, wrong)
    with pytest.raises(ValueError, match="3 sources and 2 targets"):
        per_layer(FastGCN(), bipartite([2], [3]), 2)
    assert len(per_layer(FastGCN(), GRAPHS["no nodes"], 2)) == 2
    for rows, kind in (([0], "list"), (torch.tensor([True, False]), "torch.bool")):
        with pytest.raises(TypeError, match=f"nodes: got {kind}, expected a tensor of int64"):
            on_rows(AddSelf(), GRAPH, rows)


@pytest.mark.parametrize("limit", [1, 64, 65, 4_096, 4_097, 300_000])
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_nodes_of_rows_are_numbered_targets_first_and_the_others_ascending(limit, dtype) -> None:
    draw = source()
    targets = torch.randperm(limit, generator=draw)[:50]
    ends = torch.tensor([0, limit - 1, *torch.randint(limit, (400,), generator=draw).tolist()])
    indptr = torch.linspace(0, len(ends), len(targets) + 1).long()
    for ids in (ends, ends[:0]):
        rows = Neighborhood(indptr.clamp(max=len(ids)), ids.to(dtype), limit)
        nodes, local = relabel(targets, rows)
        others = sorted(set(ids.tolist()) - set(targets.tolist()))
        assert nodes.tolist() == targets.tolist() + others
        assert torch.equal(nodes[local.indices], ids) and local.num_src == len(nodes)
    wrong = Neighborhood(indptr, ends + 1, limit, validate=False)
    with pytest.raises(IndexError, match=f"indices: entry [01] is {limit}"):
        relabel(targets, wrong)
    with pytest.raises(IndexError, match="targets: entry 0 is -1"):
        relabel(targets - targets[0] - 1, rows)
