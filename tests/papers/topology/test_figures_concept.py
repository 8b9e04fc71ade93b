"""The least risk of the concept class on targets."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Generator

from graphtheory.graph import Neighborhood
from graphtheory.papers.topology.data import pair
from graphtheory.papers.topology.figures_concept import (
    FIGURES,
    Classes,
    Descent,
    TargetFunction,
    least_risk,
    least_risks,
)


@pytest.fixture
def adjacency(generator: Generator) -> Neighborhood:
    dense = torch.rand(12, 12, generator=generator) * (
        torch.rand(12, 12, generator=generator) < 0.4
    )
    rows, columns = dense.nonzero().t()
    return Neighborhood.from_edge_index(
        torch.stack([columns, rows]), 12, weight=dense[rows, columns]
    )


def dense_of(nb: Neighborhood) -> torch.Tensor:
    dense = torch.zeros(nb.num_dst, nb.num_src)
    dense[nb.targets(), nb.indices] = nb.weight
    return dense


def test_it_is_the_printed_formula_and_projected_parameters_are_in_the_class(
    adjacency: Neighborhood, generator: Generator
) -> None:
    made, x = TargetFunction(5, 3, 2, generator), torch.randn(12, 5, generator=generator)
    a = dense_of(adjacency)
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


def test_output_weights_are_the_best_of_their_box(
    adjacency: Neighborhood, generator: Generator
) -> None:
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


def test_least_risk_is_at_most_that_of_zero_and_finds_a_function_of_the_class(
    adjacency: Neighborhood, generator: Generator
) -> None:
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


(FIGURE,) = FIGURES
SMALL = Classes(
    p_stars=((0.9, 0.1), (0.1, 0.9)), sizes=(1, 4), seeds=1, groups=(10, 30), degrees=(6, 2),
    descent=Descent(1, 8),
)  # fmt: skip


def test_targets_of_the_class_are_fitted_with_the_adjacency_that_made_them() -> None:
    rows = SMALL.measure(least_risks)
    error = {(r["target"], r["p_star"], r["size"]): r["error"] for r in rows}
    assert len(error) == 8
    assert error["(5.12)", "(0.9, 0.1)", 4] < 0.2
    assert error["(5.12)", "(0.1, 0.9)", 4] > 0.8
    assert all(r["error"] == pytest.approx(r["risk"] / _variance(r, rows)) for r in rows)
    one = replace(SMALL, p_stars=SMALL.p_stars[:1], sizes=(1,), targets=SMALL.targets[:1])
    assert one.measure(least_risks) == rows[:1]


def _variance(row: dict[str, Any], rows: list[dict[str, Any]]) -> float:
    """The same for every A* and size, since the targets are the same."""
    (first, *_) = (r for r in rows if r["target"] == row["target"])
    return first["risk"] / first["error"]


def report(error: Any, seeds: int = 3) -> Any:
    grid = replace(FIGURE.grid, seeds=seeds)
    rows = [
        {"target": target, "p_star": pair(p), "size": size, "seed": seed, "risk": 0.0,
         "error": error(p, size) + seed / 1e4}
        for target in grid.targets
        for p in grid.p_stars
        for size in grid.sizes
        for seed in range(seeds)
    ]  # fmt: skip
    return FIGURE.report(grid, rows)


def test_verdicts_by_hand() -> None:
    made = report(lambda p, size: (p != (0.9, 0.1)) + 1 / size)
    assert "(5.12), p* = (0.9, 0.1): least risk / variance falls" in made.verdict
    assert made.verdict.count("claimed: falls: holds") == 6
    assert made.verdict.count("claimed at p^ = (0.9, 0.1): holds") == 2
    assert made.table.rows[0][:3] == ["(5.12)", "(0.9, 0.1)", "1.00 ± 0.00"]
    assert made.rows[0].name == "opt-5 least risk / variance" and made.picture is not None
    other = report(lambda p, size: (p != (0.5, 0.5)) + size)
    assert other.verdict.count("claimed: falls: not found") == 6
    assert other.verdict.count("claimed at p^ = (0.9, 0.1): not found") == 2
    assert "no verdict of fewer than 3 seeds" in report(lambda p, size: size, seeds=1).verdict
