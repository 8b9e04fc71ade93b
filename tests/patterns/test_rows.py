"""Rows drawn alone are rows of the whole pattern."""

from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch

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
)
from tests.patterns.laws import dense, kinds_of, random_directed, source

GRAPH = random_directed(7, 0.4, seed=2)
ROWS = torch.tensor([5, 0, 3])
# Besides the default of every kind, which a new pattern is tried with without a line here.
FIXED = [
    *(kind() for kind in kinds_of(Pattern) if not kind().is_random),
    KHop(2),
    AtDistance(2),
    DilatedHops(2, 1),
    Compose(KHop(2), AddSelf()),
    Compose(AddSelf(), SymmetricNormalize()),
    Compose(AtDistance(2), KHop(2)),
]
RANDOM = [
    *(kind() for kind in kinds_of(Pattern) if kind().is_random),
    Sample(2),
    Compose(KHop(2), Sample(2), AddSelf()),
    GraphSAGE(2),
    UniformNodes(share=0.6),
    FastGCN(count=4),
    DegreeGroups(share=0.6),
    DegreeGroups(share=0.6, symmetric=True),
    Compose(AddSelf(), GraphSAGE(2)),
    Compose(Sample(3, whole_graph=True), AddSelf()),
    Compose(Sample(3), FastGCN(count=4)),
]


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
    drawn, whole = source(3), source(4)
    found = torch.stack(
        [on_rows(pattern, GRAPH, ROWS, generator=drawn).to_dense() for _ in range(1500)]
    )
    expected = torch.stack([pattern(GRAPH, generator=whole).to_dense()[ROWS] for _ in range(1500)])
    error = ((found.var(0) + expected.var(0)) / 1500) ** 0.5
    assert ((found.mean(0) - expected.mean(0)).abs() <= 5 * error + 1e-6).all()


@pytest.mark.parametrize("replace", [True, False])
def test_ladies_draws_for_these_targets(replace):
    sampler = LADIES(count=3, replace=replace)
    found = on_rows(sampler, GRAPH, ROWS, generator=source(1))
    expected = sampler(GRAPH, targets=ROWS, generator=source(1)).rows(ROWS)
    torch.testing.assert_close(found.to_dense(), expected.to_dense())


@pytest.mark.parametrize(
    ("pattern", "cheap"),
    [
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
    ],
)
def test_what_costs_its_rows_alone(pattern, cheap):
    assert pattern.costs_rows == cheap


@dataclass(frozen=True)
class EvenSources(Pattern):
    """Keeps sources with an even id, and can do so for some rows without a look at the others."""

    by_row: ClassVar[bool] = True

    def __call__(self, neighborhood, *, generator=None):
        assert neighborhood.num_dst == 3, "applied to the whole graph"
        return neighborhood.keep(neighborhood.indices % 2 == 0)

    def mask(self, base):
        return base & (torch.arange(base.size(1)) % 2 == 0)


@dataclass(frozen=True)
class Ring(Pattern):
    """Each node's successor by id; the rows are made from the ids alone."""

    def __call__(self, neighborhood, *, generator=None):
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


def test_layers_on_rows_of_the_users_own_pattern():
    nodes, layers = layers_on_rows(Ring(), GRAPH, ROWS, 2)
    assert nodes.tolist() == [5, 0, 3, 1, 4, 6, 2]
    assert [(one.num_dst, one.num_src) for one in layers] == [(6, 7), (3, 6)]


def test_graph_is_square():
    with pytest.raises(ValueError, match="on_rows"):
        on_rows(KHop(1), bipartite([2], [3]), torch.tensor([0]))
