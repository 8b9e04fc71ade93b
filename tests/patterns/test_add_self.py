import torch

from graphtheory import Neighborhood
from graphtheory.patterns import AddSelf, KHop
from tests.patterns.laws import GRAPHS, pairs, weighted


def test_self_has_distance_0_and_weight_1_and_others_keep_theirs() -> None:
    ball = weighted(KHop(2)(GRAPHS["random directed"]))
    with_self = AddSelf()(ball)
    loops = {(i, i, 1.0, 0) for i in range(ball.num_dst)}
    assert pairs(with_self) == pairs(ball) | loops


def test_adding_self_twice_is_adding_it_once() -> None:
    once = AddSelf()(GRAPHS["random directed"])  # which has some loops already
    assert torch.equal(AddSelf()(once).edge_index(), once.edge_index())


def test_a_loop_that_is_there_keeps_its_weight() -> None:
    graph = Neighborhood.from_edge_index(
        torch.tensor([[0, 0], [0, 1]]), 2, weight=torch.tensor([5.0, 2.0])
    )
    assert pairs(AddSelf()(graph)) == {(0, 0, 5.0), (0, 1, 2.0), (1, 1, 1.0)}


def test_weights_stay_differentiable() -> None:
    weight = torch.ones(2, requires_grad=True)
    graph = Neighborhood.from_edge_index(torch.tensor([[0, 1], [1, 0]]), 2, weight=weight)
    AddSelf()(graph).weight.square().sum().backward()
    assert weight.grad.tolist() == [2.0, 2.0]
