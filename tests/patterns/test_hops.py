import numpy as np
import pytest
import torch

from graphtheory import Neighborhood
from graphtheory.patterns import AtDistance, KHop
from tests.patterns.laws import GRAPHS, pairs


def test_ball_by_hand() -> None:
    # 0 -> 1 -> 2 -> 3: source, target, hops.
    path = Neighborhood.from_edge_index(torch.tensor([[0, 1, 2], [1, 2, 3]]), 4)
    assert pairs(KHop(2)(path)) == {(0, 1, 1), (1, 2, 1), (2, 3, 1), (0, 2, 2), (1, 3, 2)}


def test_ring_by_hand() -> None:
    # Two leaves of a star are two hops apart, through the hub; the hub has nobody there.
    ring = AtDistance(2)(GRAPHS["star"])
    assert ring.degree().tolist() == [0, 5, 5, 5, 5, 5, 5]
    assert ring.distance is not None and ring.distance.unique().tolist() == [2]


def test_a_ball_is_its_rings_together() -> None:
    graph = GRAPHS["random directed"]
    rings = set().union(*(pairs(AtDistance(z)(graph)) for z in (1, 2, 3)))
    assert pairs(KHop(3)(graph)) == rings


def test_loops_duplicates_and_weights_are_dropped() -> None:
    edges = torch.tensor([[0, 0, 1, 1], [1, 1, 1, 0]])
    ball = KHop(1)(Neighborhood.from_edge_index(edges, 2, weight=torch.ones(4)))
    assert ball.edge_index().tolist() == [[1, 0], [0, 1]]
    assert ball.weight is None


@pytest.mark.parametrize("radius", [0, -1, 255])
def test_radius_out_of_range(radius: int) -> None:
    with pytest.raises(ValueError, match=rf"radius: got {radius}, expected 1\.\.254 hops"):
        KHop(radius)


@pytest.mark.parametrize("z", [-1, 255])
def test_distance_out_of_range(z: int) -> None:
    with pytest.raises(ValueError, match=rf"z: got {z}, expected 0\.\.254 hops"):
        AtDistance(z)


def test_a_whole_number_of_numpy_is_one() -> None:
    path = Neighborhood.from_edge_index(torch.tensor([[0, 1], [1, 2]]), num_nodes=np.int64(3))
    assert KHop(np.int64(2))(path).indices.tolist() == KHop(2)(path).indices.tolist()
    assert AtDistance(np.int64(2))(path).indices.tolist() == [0]
    with pytest.raises(ValueError, match="radius: got '2'"):
        KHop("2")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="radius: got True"):
        KHop(True)
