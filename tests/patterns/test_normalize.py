"""Self-loops and normalized weights."""

import pytest
import torch

from graphtheory import Neighborhood
from graphtheory.patterns import (
    LADIES,
    AddSelf,
    Compose,
    KHop,
    MeanNormalize,
    SymmetricNormalize,
)
from tests.patterns.laws import GRAPHS, pairs, weighted


def test_self_comes_once_with_distance_0_and_weight_1_or_its_own() -> None:
    ball = weighted(KHop(2)(GRAPHS["random directed"]))
    with_self = AddSelf()(ball)
    loops = {(i, i, 1.0, 0) for i in range(ball.num_dst)}
    assert pairs(with_self) == pairs(ball) | loops
    once = AddSelf()(GRAPHS["random directed"])  # which has some loops already
    assert torch.equal(AddSelf()(once).edge_index(), once.edge_index())
    graph = Neighborhood.from_edge_index(
        torch.tensor([[0, 0], [0, 1]]), 2, weight=torch.tensor([5.0, 2.0])
    )
    assert pairs(AddSelf()(graph)) == {(0, 0, 5.0), (0, 1, 2.0), (1, 1, 1.0)}


def test_gcn_matrix_by_dense_algebra_and_weighted_degrees() -> None:
    graph = GRAPHS["two components"]
    found = Compose(AddSelf(), SymmetricNormalize())(graph).to_dense()
    with_self = graph.to_dense() + torch.eye(graph.num_dst)
    root = with_self.sum(1).rsqrt()
    torch.testing.assert_close(found, root[:, None] * with_self * root)
    # d = [2 + 2, 1]: weight / sqrt(d_i d_j) by hand.
    edges = torch.tensor([[0, 1, 0], [0, 0, 1]])
    graph = Neighborhood.from_edge_index(edges, 2, weight=torch.tensor([2.0, 2.0, 1.0]))
    assert SymmetricNormalize()(graph).to_dense().tolist() == [[0.5, 1.0], [0.5, 0.0]]
    to_source = Neighborhood.from_edge_index(torch.tensor([[0], [1]]), 2)  # of degree 0
    assert SymmetricNormalize()(to_source).weight.tolist() == [0.0]


def test_edges_distances_and_positions_stay() -> None:
    graph = GRAPHS["random directed"]
    known = graph.replace(distance=torch.ones(graph.num_edges, dtype=torch.uint8))
    out = SymmetricNormalize()(known)
    assert torch.equal(out.edge_index(), graph.edge_index())
    assert out.perm is graph.perm and out.distance is known.distance


def test_gradient_reaches_the_given_weights() -> None:
    weight = torch.rand(4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def normalized(weight: torch.Tensor) -> torch.Tensor:
        edges = torch.tensor([[0, 1, 2, 0], [1, 0, 1, 2]])
        graph = Neighborhood.from_edge_index(edges, 3, weight=weight)
        return Compose(AddSelf(), SymmetricNormalize())(graph).weight

    assert torch.autograd.gradcheck(normalized, weight.requires_grad_())


@pytest.mark.parametrize(
    ("weight", "wanted"),
    [([0.0, 0.0, 2.0], [0.0, 0.0, 1.0]), ([-1.0, -3.0, 2.0], [0.25, 0.75, 1.0])],
)
def test_means_of_weights_that_sum_to_0_or_less(weight, wanted) -> None:
    given = torch.tensor(weight, requires_grad=True)
    edges = torch.tensor([[0, 1, 2], [0, 0, 1]])
    found = MeanNormalize()(Neighborhood.from_edge_index(edges, 3, weight=given)).weight
    assert found.tolist() == wanted
    assert torch.autograd.grad(found.square().sum(), given)[0].isfinite().all()


def test_edges_of_a_node_with_a_negative_degree_have_no_weight() -> None:
    graph = Neighborhood.from_edge_index(torch.tensor([[0], [0]]), 1, weight=torch.tensor([-1.0]))
    assert SymmetricNormalize()(graph).weight.tolist() == [0.0]


def test_weights_of_16_bits_are_counted_in_float32() -> None:
    hub = torch.stack([torch.arange(1000), torch.zeros(1000, dtype=torch.int64)])
    nb = Neighborhood.from_edge_index(hub, 1000, weight=torch.ones(1000).bfloat16())
    for pattern in (MeanNormalize(), LADIES(1000, normalize=True)):
        weight = pattern(nb).weight
        assert weight.dtype is torch.bfloat16
        assert float(weight.float().sum()) == pytest.approx(1, abs=0.01)
    loop = SymmetricNormalize()(nb).weight[0]  # of which both ends are the hub
    assert float(loop) == pytest.approx(1 / 1000, rel=0.01)
    parallel = Neighborhood(
        torch.tensor([0, 300]), torch.zeros(300).long(), 1, weight=nb.weight[:300]
    )
    assert parallel.to_dense().item() == 300
