"""Balls, rings and dilated balls, worked out by hand; `test_laws.py` compares them with masks."""

import re
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from graphtheory import Neighborhood
from graphtheory.patterns import AtDistance, Compose, DilatedHops, KHop, Pattern, Sample
from graphtheory.patterns.base import on_rows
from graphtheory.structure import draw_from_ball, hop_ball
from tests.patterns import laws
from tests.patterns.laws import GRAPHS, pairs, random_directed, source

PATH = GRAPHS["path"]  # 0 -> 1 -> 2 -> 3 -> 4 -> 5
WRONG = [-1, 255, 2.0, "4", True, None]  # for every number of hops


def test_by_hand_without_loops_duplicates_and_weights() -> None:
    # Source, target, hops: never against an edge.
    one = {(i, i + 1, 1) for i in range(5)}
    two = {(0, 2, 2), (1, 3, 2), (2, 4, 2), (3, 5, 2)}
    assert pairs(KHop(2)(PATH)) == one | two and pairs(AtDistance(2)(PATH)) == two
    assert pairs(DilatedHops(3, 2)(PATH)) == two
    assert pairs(DilatedHops(4, 2)(PATH)) == two | {(0, 4, 4), (1, 5, 4)}
    assert pairs(DilatedHops(5, 2)(PATH)) == two | {(0, 4, 4), (1, 5, 4)}  # 5 is no multiple of 2
    edges = torch.tensor([[0, 0, 0, 1, 0], [0, 1, 1, 2, 0]])
    graph = Neighborhood.from_edge_index(edges, 3, weight=torch.ones(5))
    for pattern, found in ((KHop(1), [[0, 1], [1, 2]]), (DilatedHops(2, 2), [[0], [2]])):
        out = pattern(graph)
        assert out.edge_index().tolist() == found and out.weight is None
    path = Neighborhood.from_edge_index(torch.tensor([[0, 1], [1, 2]]), num_nodes=np.int64(3))
    assert KHop(np.int64(2))(path).indices.tolist() == KHop(2)(path).indices.tolist()
    assert AtDistance(np.int64(2))(path).indices.tolist() == [0]
    assert pairs(DilatedHops(np.int64(4), np.int64(2))(PATH)) == pairs(DilatedHops(4, 2)(PATH))


@pytest.mark.parametrize("pattern", [AtDistance(2), DilatedHops(4, 2)], ids=repr)
def test_a_node_with_none_at_these_distances_has_an_empty_row(pattern: Pattern) -> None:
    # Two leaves of a star are two hops apart, through the hub; the hub has nobody there.
    ring = pattern(GRAPHS["star"])
    assert ring.degree().tolist() == [0, 5, 5, 5, 5, 5, 5]
    assert ring.distance is not None and ring.distance.unique().tolist() == [2]
    assert pattern(GRAPHS["clique"]).num_edges == 0


@pytest.mark.parametrize(("make", "name", "span", "values"), [
    (KHop, "radius", "1..254", [0, *WRONG]),
    (AtDistance, "z", "0..254", WRONG),
    (partial(DilatedHops, step=1), "hops", "1..254", [0, *WRONG]),
    (partial(DilatedHops, 4), "step", "1..4", [0, 5, *WRONG]),
])  # fmt: skip
def test_hops_out_of_range(make: Any, name: str, span: str, values: list[Any]) -> None:
    for value in values:
        message = re.escape(f"{name}: got {value!r}, expected {span} hops")
        with pytest.raises(ValueError, match=message):
            make(**{name: value})


@pytest.mark.parametrize("value", [0, -1, 2.0, True, "3"])
def test_a_largest_degree_out_of_range(value: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=f"max_degree: got {value!r}, expected"):
        KHop(2, max_degree=value)


def test_hubs_are_found_and_not_passed_through() -> None:
    star = GRAPHS["star"]  # 0 is the hub
    assert pairs(KHop(2, max_degree=5)(star)) == pairs(KHop(1)(star))
    assert pairs(KHop(2, max_degree=6)(star)) == pairs(KHop(2)(star))


class OnRows(Compose):
    """A pattern by its rows, as loaders ask for it, in another order and back."""

    def __call__(self, neighborhood: Neighborhood, *, generator: Any = None) -> Neighborhood:
        order = torch.arange(neighborhood.num_dst).flip(0)
        return on_rows(Compose(*self.patterns), neighborhood, order, generator=generator).rows(
            order
        )


DRAWN = [
    OnRows(KHop(2), Sample(3)), OnRows(KHop(1), Sample(1)), OnRows(AtDistance(2), Sample(2)),
    OnRows(KHop(3, max_degree=3), Sample(4)),
]  # fmt: skip


@pytest.mark.parametrize("pattern", DRAWN, ids=repr)
def test_a_sample_is_drawn_while_the_ball_is_found(pattern, monkeypatch) -> None:
    graph = random_directed(40, 0.06, seed=1)
    ball, size = pattern.patterns[0], pattern.patterns[1].n
    for seed in range(3):
        drawn, whole = pattern(graph, generator=source(seed)), ball(graph)
        assert pairs(drawn) <= pairs(whole)
        assert torch.equal(drawn.degree(), whole.degree().clamp(max=size))
        assert all(row.diff().gt(0).all() for row in drawn.indices.split(drawn.degree().tolist()))
    laws.draws_uniformly(pattern, graph)
    laws.draws_from_its_mask(pattern, graph)

    never = lambda *args, **kwargs: pytest.fail("the whole ball was written")  # noqa: E731
    monkeypatch.setattr("graphtheory.patterns.hops.hop_ball", never)
    pattern(graph, generator=source())


def test_draws_that_prefer_what_is_near_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    even = torch.rand
    monkeypatch.setattr(torch, "rand", lambda *args, **given: even(*args, **given) ** 1.3)
    with pytest.raises(AssertionError):
        laws.draws_uniformly(DRAWN[0], random_directed(40, 0.06, seed=1))


@pytest.mark.parametrize("n", [1, 64, 65, 200])
def test_balls_around_the_length_of_a_word_of_the_bitmap(n: int) -> None:
    graph = Neighborhood.from_edge_index(laws.clique(131), 131)
    drawn = draw_from_ball(graph, 1, n, inner=1, generator=source())
    assert drawn.degree().tolist() == [min(n, 130)] * 131
    if n == 200:
        assert pairs(drawn) == pairs(hop_ball(graph, 1, inner=1)[0])


@pytest.mark.parametrize(("n", "error"), [(0, ValueError), (-1, ValueError), (2.5, TypeError)])
def test_how_many_are_drawn_is_a_number_of_sources(n, error) -> None:
    with pytest.raises(error, match=f"n: got {n}, expected"):
        draw_from_ball(Neighborhood.from_edge_index(torch.tensor([[0], [1]]), 2), 1, n)
