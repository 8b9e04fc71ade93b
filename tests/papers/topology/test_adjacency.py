from typing import Any

import pytest
import torch
from torch import Generator

from graphtheory import Neighborhood, bipartite, patterns
from graphtheory.lab.bench.rows import Row
from graphtheory.papers.topology import adjacency as measures
from graphtheory.papers.topology import diagnosis
from graphtheory.papers.topology.adjacency import deviation, infinity_distance, psi, smallest_share
from graphtheory.papers.topology.figures_targets import Descent, TargetFunction, least_risk
from graphtheory.patterns import AddSelf, Compose, DegreeGroups, FastGCN, KHop, UniformNodes


def matrix(rows: list[list[float]]) -> Neighborhood:
    dense = torch.tensor(rows, dtype=torch.float64)
    targets, sources = dense.nonzero().t()
    weight = dense[targets, sources]
    return Neighborhood.from_edge_index(torch.stack([sources, targets]), len(rows), weight=weight)


A = matrix([[1, -2, 0], [0, 0, 4], [0.5, 0, 0]])
B = matrix([[1, 1, 0], [0, 0, 0], [0, 2, 0]])


def test_norms_by_hand() -> None:
    assert measures.infinity_norm(A) == 4
    assert measures.infinity_norm(A.replace(weight=None)) == 2
    assert infinity_distance(A, B) == 4  # rows 3, 4, 2.5
    assert infinity_distance(A, A) == 0
    edges = torch.tensor([[0, 0], [1, 1]])
    twice = Neighborhood.from_edge_index(edges, 2, weight=torch.tensor([3.0, -1.0]))
    assert measures.infinity_norm(twice) == 2
    for nodes in (0, 3):
        nb = Neighborhood.from_edge_index(torch.zeros(2, 0, dtype=torch.int64), nodes)
        assert measures.infinity_norm(nb) == infinity_distance(nb, nb) == 0


@pytest.mark.parametrize("order", [1, -1])
def test_distance_is_that_of_the_dense_matrices(order: int) -> None:
    first, second = (A, B)[::order]
    dense = (first.to_dense() - second.to_dense()).abs().sum(1).max()
    assert infinity_distance(first, second) == float(dense)


def test_influence_is_the_column_sum_gained_and_lost() -> None:
    assert measures.influence(A).tolist() == A.to_dense().sum(0).tolist()
    assert measures.influence(bipartite([2], [3])).tolist() == [2, 2, 2]
    index = torch.tensor([0, 1, 1])
    star = DegreeGroups(assignment=index, p_star=(0.5, 2.0)).effective(A)
    change = measures.influence_change(A, star)
    assert change.before.tolist() == [1.5, -2, 4] and change.ratio.tolist() == [0.5, 2, 2]
    silent = A.keep(A.indices != 2)
    assert measures.influence_change(silent, silent).ratio.tolist() == [1, 1, 1]


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
    samplers = (DegreeGroups(count=s, symmetric=symmetric) for s in (2, 5, 10, 15, 20))
    means = [deviation(one, clique, clique, generator=generator).mean for one in samplers]
    assert means == sorted(means, reverse=True) and means[-1] == pytest.approx(0, abs=1e-5)
    assert deviation(patterns.GraphSAGE(3), clique, clique, generator=generator).mean > 0


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match=r"second: \(2, 3\) targets and sources"):
        infinity_distance(A, bipartite([2], [3]))
    with pytest.raises(ValueError, match="effective: 2 sources, expected 3"):
        measures.influence_change(A, bipartite([2], [2]))
    with pytest.raises(ValueError, match="draws: got 1, expected at least 2"):
        deviation(UniformNodes(), A, A, draws=1)


DEGREE, SIZE = torch.tensor([1.0, 4.0]), torch.tensor([8, 2])  # psi = (1, 0.5)
P = torch.tensor([0.5, 0.25])


def star(leaves: int) -> Neighborhood:
    hub = torch.zeros(leaves, dtype=torch.int64)
    leaf = torch.arange(1, leaves + 1)
    edges = torch.stack([torch.cat([hub, leaf]), torch.cat([leaf, hub])])
    nb = Neighborhood.from_edge_index(edges, leaves + 1)
    return Compose(AddSelf(), patterns.SymmetricNormalize())(nb)


def test_psi_scalings_and_shares_by_hand() -> None:
    # Two groups: sqrt(4 * 1) * 8 / 16 and sqrt(4 * 4) * 2 / 16.
    assert psi(DEGREE, SIZE).tolist() == [1.0, 0.5]
    assert psi(torch.tensor([3.0]), torch.tensor([7])).tolist() == [1.0]
    found = psi(DEGREE, SIZE)
    assert measures.largest_scaling(found, c=3).tolist() == [1.5, 3.0]
    assert measures.largest_scaling(found, c=3, symmetric=True).tolist() == [0.75, 3.0]
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
    assert measures.group_degrees(nb, groups.group).tolist() == [2, 7]


@pytest.mark.parametrize("leaves", [5, 20])
def test_samples_of_the_required_size_are_as_close_as_the_lemma_says(leaves: int) -> None:
    # Mean of row i of |A^s - A*|: 2 sum_l p_l (1 - S_l / N_l) a_il, which (5.10) bounds by
    # 2 c tau sum_l a_il / (L psi_l), a_il the row's mass in group l: (D.12).
    nb, tolerance, p_star = star(leaves), 0.3, (0.7, 0.3)
    groups = DegreeGroups(2, p_star=p_star).groups_of(nb)
    found = psi(measures.group_degrees(nb, groups.group), groups.size)
    least = smallest_share(found, groups.p_star, tolerance=tolerance)
    size = tuple((least * groups.size).ceil().long().tolist())
    pattern = DegreeGroups(2, p_star=p_star, count=size)
    target, drawn = pattern.effective(nb).to_dense(), torch.Generator().manual_seed(0)
    draws = torch.stack([pattern(nb, generator=drawn).to_dense() for _ in range(300)])
    off = (draws - target).abs().sum(2).mean(0)
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


@pytest.fixture
def adjacency(generator: Generator) -> Neighborhood:
    dense, there = (torch.rand(12, 12, generator=generator) for _ in range(2))
    dense = dense * (there < 0.4)
    rows, columns = dense.nonzero().t()
    edges = torch.stack([columns, rows])
    return Neighborhood.from_edge_index(edges, 12, weight=dense[rows, columns])


def test_targets_are_the_printed_formula_and_projections_in_the_class(adjacency, generator) -> None:
    made, x = TargetFunction(5, 3, 2, generator), torch.randn(12, 5, generator=generator)
    a = adjacency.to_dense()
    r_1 = a @ (a @ x @ made.W[0]).sin() @ made.V[0]
    r_2 = a @ (a @ x @ made.W[1]).tanh() @ made.V[1]
    assert torch.allclose(made(x, adjacency), a @ (r_1.sin() * r_2) @ made.C, atol=1e-6)
    made = TargetFunction(5, 3, 2, generator)
    with torch.no_grad():
        for value in made.parameters():
            value.mul_(7)
    made.project()
    for matrices in (made.W, made.V):
        assert torch.allclose(matrices.norm(dim=1), torch.ones(2, 3))
    assert made.C.abs().max() == 1


def test_output_weights_are_the_best_of_their_box(adjacency: Neighborhood, generator) -> None:
    true, x = TargetFunction(5, 3, 2, generator), torch.randn(12, 5, generator=generator)
    y, found = true(x, adjacency).detach(), TargetFunction(5, 3, 2, generator)
    found.W, found.V = true.W, true.V
    assert found.fit_outputs(x, y, adjacency) < 1e-10
    assert torch.allclose(found.C, true.C, atol=1e-3)
    found.requires_grad_(False)
    left = found.fit_outputs(x, 5 * y, adjacency)  # out of reach of entries up to 1
    assert found.C.abs().max() <= 1
    assert left == pytest.approx(float((found(x, adjacency) - 5 * y).square().mean()), rel=1e-3)
    nearer = [((1 - e) * found.C) for e in (0.02, -0.02)]
    for other in nearer:
        error = found.hidden(x, adjacency) @ other.clamp(-1, 1) - 5 * y
        assert float(error.square().mean()) >= left - 1e-9


def test_least_risk_is_at_most_that_of_zero_and_finds_a_function(adjacency, generator) -> None:
    true, x = TargetFunction(3, 2, 2, generator), torch.randn(12, 3, generator=generator)
    y = 1e-4 * true(x, adjacency).detach()  # small, as sampled targets are
    descent = Descent(starts=3, rounds=30, steps=5)
    least = least_risk(x, y, adjacency, 4, descent, Generator().manual_seed(1))
    assert least < 0.02 * float(y.square().mean())
    noise = torch.randn(12, 2, generator=generator)
    assert least_risk(x, noise, adjacency, 1, descent, generator) > 0.2
    x, y = (torch.randn(12, n, generator=generator) for n in (3, 2))
    least = least_risk(x, 1e-9 * y, adjacency, 4, Descent(1, 1, 1), generator)
    assert least <= 1e-18 * float(y.square().mean()) * (1 + 1e-5)


NAMES = ("nodes", "mean degree", "psi", "largest p*", "smallest share")


def named(rows: list[Row], name: str) -> list[float]:
    return [row.value for row in rows if row.name == name]


@pytest.mark.parametrize("sampling", diagnosis.SAMPLERS)
def test_every_sampler_has_its_report(sampling: str) -> None:
    rows = diagnosis.SamplingDiagnosis(sampling=sampling, draws=4).run()
    norms, groups, *nodes = diagnosis.sampling_tables(rows)
    assert len(groups.rows) == 3
    assert len(norms.rows) == (4 if sampling.endswith("symmetric") else 3)
    assert sum(named(rows, "group nodes")) == 34
    assert named(rows, "norm of A^s - A*")[0] > 0
    assert diagnosis.sampling_picture(rows).axes
    kept = named(rows, "group influence of A* over A")
    if sampling == "ladies-normalized":
        assert nodes[0].rows
    else:  # A* = A: of half of the karate club nobody comes for certain
        assert kept == pytest.approx([1, 1, 1]) and nodes == []
    if sampling == "ladies-normalized":
        assert "mean of 200 draws" in norms.rows[1][0] and "±" in norms.rows[1][1]


def test_biased_fastgcn_takes_from_the_largest_columns() -> None:
    rows = diagnosis.SamplingDiagnosis(sampling="fastgcn-biased", share=0.8).run()
    assert named(rows, "loses most")[0] < 1 < named(rows, "gains most")[0]
    hub = [r.parameters["node"] for r in rows if r.name == "loses most"]
    assert 33 in hub  # the node of the largest degree


def test_groups_are_those_of_the_formulas() -> None:
    p_star = (0.9, 0.5, 0.1)
    names = ("degree-groups", "degree-groups-symmetric")
    reports = (diagnosis.SamplingDiagnosis(sampling=name, p_star=p_star, draws=2) for name in names)
    plain, both = (report.run() for report in reports)
    found = [named(plain, f"group {name}") for name in NAMES]
    size, degree, psi, largest, share = torch.tensor(found, dtype=torch.float64)
    p = torch.tensor(p_star, dtype=torch.float64)
    torch.testing.assert_close(psi, (degree[2] * degree).sqrt() * size / (degree * size).sum())
    torch.testing.assert_close(largest, 1 / (3 * psi))
    torch.testing.assert_close(share, 1 / (1 + 0.1 / (3 * p * psi)))
    squared = torch.tensor(named(both, "group largest p*"), dtype=torch.float64)
    torch.testing.assert_close(squared, largest.square())
    assert named(plain, "group influence of A* over A") == pytest.approx(p_star)


def test_what_is_unknown_is_refused_and_the_seed_decides() -> None:
    with pytest.raises(ValueError, match="sampling: got 'no', expected one of"):
        diagnosis.SamplingDiagnosis(sampling="no").run()
    with pytest.raises(ValueError, match="p_star: 1 values, expected one for each of 3 groups"):
        diagnosis.SamplingDiagnosis(sampling="uniform", p_star=(1.0,)).run()
    with pytest.raises(ValueError, match="draws"):
        diagnosis.SamplingDiagnosis(draws=1).run()
    one, same, other = (diagnosis.SamplingDiagnosis(seed=s, draws=3).run() for s in (1, 1, 2))
    assert one == same and named(one, "norm of A^s - A*") != named(other, "norm of A^s - A*")


def test_what_is_used_stands_beside_what_is_admitted() -> None:
    rows = diagnosis.SamplingDiagnosis(share=1.0, p_star=(0.9, 0.01, 0.01), draws=2).run()
    assert named(rows, "group p*") == [0.9, 0.01, 0.01]
    assert named(rows, "group share drawn") == [1, 1, 1]
    norms, table, *_ = diagnosis.sampling_tables(rows)
    assert table.columns[-2:] == ("p*", "share drawn")
    large = named(rows, "group largest p*")[0] < 0.9
    outside = "Outside: group 1: p* too large." if large else "All groups are inside."
    assert table.note.endswith(outside)
    few = diagnosis.SamplingDiagnosis(share=0.1, p_star=(0.9, 9.0, 0.01), draws=2).run()
    note = diagnosis.sampling_tables(few)[1].note
    assert "group 2: p* too large" in note and "group 2: share too small" in note
    assert "E[A^s]" not in str(norms.rows)


def test_symmetric_draws_and_nodes_of_an_estimate_beside_their_error() -> None:
    rows = diagnosis.SamplingDiagnosis(sampling="degree-groups-symmetric", draws=2).run()
    (off,) = named(rows, "norm of E[A^s] - A*")
    assert 0 < off < named(rows, "norm of A*")[0]
    assert diagnosis.sampling_tables(rows)[0].rows[3] == ("norm of E[A^s] - A*", f"{off:.4f}")
    rows = diagnosis.SamplingDiagnosis(sampling="ladies-normalized").run()
    listed = [r for r in rows if r.name in ("loses most", "gains most")]
    assert listed and all(abs(r.value - 1) > 3 * r.parameters["error"] > 0 for r in listed)
    assert all("±" in line[-1] for line in diagnosis.sampling_tables(rows)[2].rows)


def test_chance_alone_lists_no_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FastGCN, "expected", lambda *_: None)  # A* = A, but only draws tell
    rows = diagnosis.SamplingDiagnosis(sampling="fastgcn", draws=4).run()
    assert named(rows, "loses most") == named(rows, "gains most") == []
    assert named(rows, "standard error of the norm of A*")[0] > 0
