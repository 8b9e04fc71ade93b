"""Balls, rings and dilated balls, worked out by hand; `test_laws.py` compares them with masks."""

import re
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from graphtheory import Neighborhood
from graphtheory.patterns import AtDistance, DilatedHops, KHop, Pattern
from tests.patterns.laws import GRAPHS, pairs

PATH = GRAPHS["path"]  # 0 -> 1 -> 2 -> 3 -> 4 -> 5
WRONG = [-1, 255, 2.0, "4", True, None]  # for every number of hops


def test_by_hand_without_loops_duplicates_and_weights() -> None:
    # Source, target, hops: never against an edge.
    one = {(i, i + 1, 1) for i in range(5)}
    two = {(0, 2, 2), (1, 3, 2), (2, 4, 2), (3, 5, 2)}
    assert pairs(KHop(2)(PATH)) == one | two
    assert pairs(AtDistance(2)(PATH)) == two
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


@pytest.mark.parametrize(
    ("make", "name", "span", "values"),
    [
        (KHop, "radius", "1..254", [0, *WRONG]),
        (AtDistance, "z", "0..254", WRONG),
        (partial(DilatedHops, step=1), "hops", "1..254", [0, *WRONG]),
        (partial(DilatedHops, 4), "step", "1..4", [0, 5, *WRONG]),
    ],
)
def test_hops_out_of_range(make: Any, name: str, span: str, values: list[Any]) -> None:
    for value in values:
        message = re.escape(f"{name}: got {value!r}, expected {span} hops")
        with pytest.raises(ValueError, match=message):
            make(**{name: value})
