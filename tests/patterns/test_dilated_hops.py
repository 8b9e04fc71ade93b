import re

import numpy as np
import pytest
import torch

from graphtheory import Neighborhood, bipartite
from graphtheory.patterns import AddSelf, AtDistance, Compose, DilatedHops, KHop, on_rows
from tests.patterns.laws import GRAPHS, carries_distances, pairs

# 0 -> 1 -> 2 -> 3 -> 4 -> 5
PATH = GRAPHS["path"]


def test_every_second_distance_by_hand() -> None:
    # Source, target, hops: never against an edge.
    found = {(0, 2, 2), (1, 3, 2), (2, 4, 2), (3, 5, 2), (0, 4, 4), (1, 5, 4)}
    assert pairs(DilatedHops(4, 2)(PATH)) == found
    assert pairs(DilatedHops(5, 2)(PATH)) == found  # 5 is no multiple of 2
    assert pairs(DilatedHops(3, 2)(PATH)) == {edge for edge in found if edge[2] == 2}


def test_a_node_with_none_at_these_distances_has_an_empty_row() -> None:
    assert DilatedHops(4, 2)(GRAPHS["star"]).degree().tolist() == [0, 5, 5, 5, 5, 5, 5]
    assert DilatedHops(4, 2)(GRAPHS["clique"]).num_edges == 0


def test_step_1_is_the_ball_and_step_k_the_ring() -> None:
    graph = GRAPHS["random directed"]
    for k in (1, 2, 3, 254):
        assert pairs(DilatedHops(k, 1)(graph)) == pairs(KHop(k)(graph))
        assert pairs(DilatedHops(k, k)(graph)) == pairs(AtDistance(k)(graph))


def test_it_is_its_rings_together() -> None:
    graph = GRAPHS["random directed"]
    rings = pairs(AtDistance(2)(graph)) | pairs(AtDistance(4)(graph))
    assert rings and pairs(DilatedHops(4, 2)(graph)) == rings


def test_loops_duplicates_and_weights_are_dropped() -> None:
    edges = torch.tensor([[0, 0, 0, 1], [0, 1, 1, 2]])
    out = DilatedHops(2, 2)(Neighborhood.from_edge_index(edges, 3, weight=torch.ones(4)))
    assert out.edge_index().tolist() == [[0], [2]]
    assert out.weight is None


def test_the_node_itself_comes_by_add_self() -> None:
    together = Compose(DilatedHops(2, 2), AddSelf())
    carries_distances(together, PATH)
    assert pairs(together(PATH)) == pairs(DilatedHops(2, 2)(PATH)) | {(n, n, 0) for n in range(6)}


def test_rows_come_in_the_order_asked_for() -> None:
    rows = on_rows(DilatedHops(4, 2), PATH, torch.tensor([5, 2]))
    assert rows.edge_index().tolist() == [[1, 3, 0], [0, 0, 1]]
    assert rows.distance is not None and rows.distance.tolist() == [4, 2, 2]


@pytest.mark.parametrize("hops", [0, -1, 255, 2.0, "4", True, None])
def test_hops_out_of_range(hops: int) -> None:
    message = re.escape(f"hops: got {hops!r}, expected 1..254 hops")
    with pytest.raises(ValueError, match=message):
        DilatedHops(hops, 1)


@pytest.mark.parametrize("step", [0, -2, 5, 2.0, "2", True, None])
def test_step_out_of_range(step: int) -> None:
    message = re.escape(f"step: got {step!r}, expected 1..4 hops")
    with pytest.raises(ValueError, match=message):
        DilatedHops(4, step)


def test_a_whole_number_of_numpy_is_one() -> None:
    assert pairs(DilatedHops(np.int64(4), np.int64(2))(PATH)) == pairs(DilatedHops(4, 2)(PATH))


def test_graph_is_square() -> None:
    with pytest.raises(ValueError, match="3 sources and 2 targets"):
        DilatedHops()(bipartite([2], [3]))
