"""The least risk of the concept class on targets."""

from dataclasses import replace
from typing import Any

import pytest

from graphtheory.papers.topology.figures_targets import FIGURES, Classes, Descent, least_risks
from graphtheory.papers.topology.training import pair

(FIGURE,) = [figure for figure in FIGURES if figure.id == "opt-5"]
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
