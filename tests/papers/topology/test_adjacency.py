from typing import Any

import pytest
import torch

from graphtheory import Neighborhood, bipartite
from graphtheory.papers.topology.adjacency import (
    deviation,
    group_degrees,
    infinity_distance,
    infinity_norm,
    influence,
    influence_change,
    largest_scaling,
    psi,
    smallest_share,
)
from graphtheory.patterns import (
    AddSelf,
    Compose,
    DegreeGroups,
    GraphSAGE,
    KHop,
    SymmetricNormalize,
    UniformNodes,
)


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
    twice = Neighborhood.from_edge_index(
        torch.tensor([[0, 0], [1, 1]]), 2, weight=torch.tensor([3.0, -1.0])
    )
    assert infinity_norm(twice) == 2
    for nodes in (0, 3):
        nb = Neighborhood.from_edge_index(torch.zeros(2, 0, dtype=torch.int64), nodes)
        assert infinity_norm(nb) == infinity_distance(nb, nb) == 0


@pytest.mark.parametrize("order", [1, -1])
def test_distance_is_that_of_the_dense_matrices(order: int) -> None:
    first, second = (A, B)[::order]
    dense = (first.to_dense() - second.to_dense()).abs().sum(1).max()
    assert infinity_distance(first, second) == float(dense)


def test_influence_is_the_column_sum_gained_and_lost() -> None:
    assert influence(A).tolist() == A.to_dense().sum(0).tolist()
    assert influence(bipartite([2], [3])).tolist() == [2, 2, 2]
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


DEGREE, SIZE = torch.tensor([1.0, 4.0]), torch.tensor([8, 2])  # psi = (1, 0.5)
P = torch.tensor([0.5, 0.25])


def star(leaves: int) -> Neighborhood:
    hub = torch.zeros(leaves, dtype=torch.int64)
    leaf = torch.arange(1, leaves + 1)
    edges = torch.stack([torch.cat([hub, leaf]), torch.cat([leaf, hub])])
    nb = Neighborhood.from_edge_index(edges, leaves + 1)
    return Compose(AddSelf(), SymmetricNormalize())(nb)


def test_psi_scalings_and_shares_by_hand() -> None:
    # Two groups: sqrt(4 * 1) * 8 / 16 and sqrt(4 * 4) * 2 / 16.
    assert psi(DEGREE, SIZE).tolist() == [1.0, 0.5]
    assert psi(torch.tensor([3.0]), torch.tensor([7])).tolist() == [1.0]
    found = psi(DEGREE, SIZE)
    assert largest_scaling(found, c=3).tolist() == [1.5, 3.0]
    assert largest_scaling(found, c=3, symmetric=True).tolist() == [0.75, 3.0]
    # 1 + 2 * 0.5 / (2 p psi) = 1 + 1 / (2 p psi)
    share = smallest_share(found, P, tolerance=0.5, c=2)
    assert share.tolist() == [1 / (1 + 1 / 1.0), 1 / (1 + 1 / 0.25)]
    both = smallest_share(found, P, tolerance=0.5, c=2, symmetric=True)
    expected = [(1 + 1 / (2 * 0.5**0.5 * 1.0)) ** -2, (1 + 1 / (2 * 0.25**0.5 * 0.5)) ** -2]
    assert both.tolist() == pytest.approx(expected)
    assert smallest_share(found, 0 * P, tolerance=0.1).tolist() == [0, 0]
    found = psi(torch.tensor([1.0, 5.0, 25.0]), torch.tensor([4, 4, 4]))
    share = smallest_share(found, torch.ones(3), tolerance=0.1)
    assert share.tolist() == sorted(share.tolist()) and share.unique().numel() == 3
    nb = star(6)
    groups = DegreeGroups(2).groups_of(nb)
    assert group_degrees(nb, groups.group).tolist() == [2, 7]


@pytest.mark.parametrize("leaves", [5, 20])
def test_samples_of_the_required_size_are_as_close_as_the_lemma_says(leaves: int) -> None:
    # Mean of row i of |A^s - A*|: 2 sum_l p_l (1 - S_l / N_l) a_il, which (5.10) bounds by
    # 2 c tau sum_l a_il / (L psi_l), a_il the row's mass in group l: (D.12).
    nb, tolerance, p_star = star(leaves), 0.3, (0.7, 0.3)
    groups = DegreeGroups(2, p_star=p_star).groups_of(nb)
    found = psi(group_degrees(nb, groups.group), groups.size)
    least = smallest_share(found, groups.p_star, tolerance=tolerance)
    size = tuple((least * groups.size).ceil().long().tolist())
    pattern = DegreeGroups(2, p_star=p_star, count=size)
    target, drawn = pattern.effective(nb).to_dense(), torch.Generator().manual_seed(0)
    off = torch.stack(
        [(pattern(nb, generator=drawn).to_dense() - target).abs().sum(1) for _ in range(300)]
    ).mean(0)
    mass = torch.stack([nb.to_dense()[:, groups.group == g].sum(1) for g in (0, 1)], 1)
    assert (off <= 2 * tolerance * (mass / (2 * found)).sum(1) + 1e-6).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"c": 0.0}, "c: got 0.0, expected a number above 0"),
        ({"tolerance": -1.0}, "tolerance: got -1.0"),
        ({"p_star": torch.ones(3)}, r"p_star: got \[1.0, 1.0, 1.0\], expected 2 numbers"),
        ({"p_star": -P}, "p_star: got"),
    ],
)
def test_what_does_not_fit_is_refused_of_bounds(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        smallest_share(psi(DEGREE, SIZE), **{"p_star": P, "tolerance": 0.1} | options)


def test_psi_needs_groups() -> None:
    with pytest.raises(ValueError, match=r"size: shape \(1,\), expected \[L\] as degree \(2,\)"):
        psi(DEGREE, torch.tensor([1]))
    with pytest.raises(ValueError, match="degree: got"):
        psi(torch.tensor([0.0, 1.0]), SIZE)
