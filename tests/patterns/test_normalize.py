import torch

from graphtheory import Neighborhood
from graphtheory.patterns import AddSelf, Compose, SymmetricNormalize
from tests.patterns.laws import GRAPHS


def test_gcn_matrix_by_dense_algebra() -> None:
    graph = GRAPHS["two components"]
    found = Compose(AddSelf(), SymmetricNormalize())(graph).to_dense()
    with_self = graph.to_dense() + torch.eye(graph.num_dst)
    root = with_self.sum(1).rsqrt()
    torch.testing.assert_close(found, root[:, None] * with_self * root)


def test_weighted_degrees() -> None:
    # d = [2 + 2, 1]: weight / sqrt(d_i d_j) by hand.
    edges = torch.tensor([[0, 1, 0], [0, 0, 1]])
    graph = Neighborhood.from_edge_index(edges, 2, weight=torch.tensor([2.0, 2.0, 1.0]))
    assert SymmetricNormalize()(graph).to_dense().tolist() == [[0.5, 1.0], [0.5, 0.0]]


def test_a_source_that_nothing_leads_to_has_weight_0() -> None:
    graph = Neighborhood.from_edge_index(torch.tensor([[0], [1]]), 2)
    assert SymmetricNormalize()(graph).weight.tolist() == [0.0]


def test_edges_distances_and_positions_stay() -> None:
    graph = GRAPHS["random directed"]
    known = graph.replace(distance=torch.ones(graph.num_edges, dtype=torch.uint8))
    out = SymmetricNormalize()(known)
    assert torch.equal(out.edge_index(), graph.edge_index())
    assert out.perm is graph.perm and out.distance is known.distance


def test_gradient_reaches_the_given_weights() -> None:
    drawn = torch.Generator().manual_seed(0)
    weight = torch.rand(4, generator=drawn, dtype=torch.float64).requires_grad_()

    def normalized(weight: torch.Tensor) -> torch.Tensor:
        edges = torch.tensor([[0, 1, 2, 0], [1, 0, 1, 2]])
        return SymmetricNormalize()(Neighborhood.from_edge_index(edges, 3, weight=weight)).weight

    assert torch.autograd.gradcheck(normalized, weight)
