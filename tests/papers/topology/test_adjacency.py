import pytest
import torch

from graphtheory import Neighborhood, bipartite
from graphtheory.papers.topology.adjacency import (
    deviation,
    infinity_distance,
    infinity_norm,
    influence,
    influence_change,
)
from graphtheory.patterns import DegreeGroups, GraphSAGE, KHop, UniformNodes


def matrix(rows: list[list[float]]) -> Neighborhood:
    dense = torch.tensor(rows, dtype=torch.float64)
    targets, sources = dense.nonzero().t()
    weight = dense[targets, sources]
    return Neighborhood.from_edge_index(torch.stack([sources, targets]), len(rows), weight=weight)


A = matrix([[1, -2, 0], [0, 0, 4], [0.5, 0, 0]])
B = matrix([[1, 1, 0], [0, 0, 0], [0, 2, 0]])


def test_norms_by_hand() -> None:
    assert infinity_norm(A) == 4
    assert infinity_norm(A.replace(weight=None)) == 2
    assert infinity_distance(A, B) == 4  # rows 3, 4, 2.5
    assert infinity_distance(A, A) == 0


@pytest.mark.parametrize("order", [1, -1])
def test_distance_is_that_of_the_dense_matrices(order: int) -> None:
    first, second = (A, B)[::order]
    dense = (first.to_dense() - second.to_dense()).abs().sum(1).max()
    assert infinity_distance(first, second) == float(dense)


def test_edges_that_come_twice_are_summed_first() -> None:
    twice = Neighborhood.from_edge_index(
        torch.tensor([[0, 0], [1, 1]]), 2, weight=torch.tensor([3.0, -1.0])
    )
    assert infinity_norm(twice) == 2


def test_nothing_has_norm_0() -> None:
    for nodes in (0, 3):
        nb = Neighborhood.from_edge_index(torch.zeros(2, 0, dtype=torch.int64), nodes)
        assert infinity_norm(nb) == infinity_distance(nb, nb) == 0


def test_influence_is_the_column_sum() -> None:
    assert influence(A).tolist() == A.to_dense().sum(0).tolist()
    assert influence(bipartite([2], [3])).tolist() == [2, 2, 2]


def test_influence_that_is_gained_and_lost() -> None:
    index = torch.tensor([0, 1, 1])
    star = DegreeGroups(assignment=index, p_star=(0.5, 2.0)).effective(A)
    change = influence_change(A, star)
    assert change.before.tolist() == [1.5, -2, 4] and change.ratio.tolist() == [0.5, 2, 2]
    silent = A.keep(A.indices != 2)
    assert influence_change(silent, silent).ratio.tolist() == [1, 1, 1]


def test_deviation_is_the_mean_over_draws(generator: torch.Generator) -> None:
    # One of two columns, twice as heavy: either way row 0 is off by 1 + 2 = 3.
    pair = matrix([[1, 2], [0, 0]])
    found = deviation(UniformNodes(count=1), pair, pair, draws=10, generator=generator)
    assert found == (3, 0)
    none = deviation(KHop(1), A, KHop(1)(A), draws=2)
    assert none == (0, 0)


@pytest.mark.parametrize("symmetric", [False, True])
def test_deviation_shrinks_with_the_sample(symmetric: bool, generator: torch.Generator) -> None:
    # (D.2) and (D.18).
    clique = KHop(1)(bipartite([20], [20]))
    means = [
        deviation(pattern, clique, clique, generator=generator).mean
        for pattern in (DegreeGroups(count=s, symmetric=symmetric) for s in (2, 5, 10, 15, 20))
    ]
    assert means == sorted(means, reverse=True) and means[-1] == pytest.approx(0, abs=1e-5)
    assert deviation(GraphSAGE(3), clique, clique, generator=generator).mean > 0


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match=r"second: \(2, 3\) targets and sources"):
        infinity_distance(A, bipartite([2], [3]))
    with pytest.raises(ValueError, match="effective: 2 sources, expected 3"):
        influence_change(A, bipartite([2], [2]))
    with pytest.raises(ValueError, match="draws: got 1, expected at least 2"):
        deviation(UniformNodes(), A, A, draws=1)
