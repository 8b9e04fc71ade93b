"""Figures 5.1 to 5.4: rows of a small grid, verdicts on made-up rows, and the command."""

from dataclasses import replace
from typing import Any

import pytest

from graphtheory.papers import figure as index
from graphtheory.papers.topology.figures import READINGS, SampledTasks, errors
from graphtheory.papers.topology.training import SAMPLERS, DegreeGroupTask
from tests.lab.bench.conftest import nearly

BY_ID = index.figures()
TASKS = tuple(
    DegreeGroupTask(sampler, (10, 30), (5, 2), (0.9, 0.1), (0.5, 0.5), sampler)
    for sampler in SAMPLERS
)
SMALL = SampledTasks(TASKS, labels=(8, 12), widths=(6,), seeds=2)


def test_rows_of_a_small_grid() -> None:
    rows = SMALL.measure(errors)
    assert [(r["reading"], r["labels"], r["name"], r["seed"]) for r in rows] == [
        (reading, labels, sampler, seed)
        for reading in ("SGD", "Adam")
        for labels in (8, 12)
        for sampler in SAMPLERS
        for seed in (0, 1)
    ]
    assert all(r["error"] == pytest.approx(r["mse"] / r["variance"]) for r in rows)
    assert SMALL.measure(errors) == nearly(rows)


def test_held_out_errors_never_see_an_unlabeled_node() -> None:
    grid = replace(SMALL, labels=(10,), tasks=TASKS[:1], readings=READINGS[1:], held_out=0.3)
    task = TASKS[0].draw(10, seed=1)[0]
    rest = task.y[task.labeled[7:]]
    (_, row) = grid.measure(errors)
    assert row["variance"] == pytest.approx(float(rest.var(0, correction=0).mean()))


def test_every_figure_learns_under_both_readings_and_the_search_holds_nodes_out() -> None:
    for name in ("fig-5-1", "fig-5-2", "fig-5-3", "fig-5-4"):
        grid = index.figures()[name].grid
        assert grid.held_out == 0 and [reading.adam for reading in grid.readings] == [False, True]
    assert BY_ID["steps-5"].grid.held_out > 0


def row(**entries: Any) -> dict[str, Any]:
    return {
        "reading": "SGD",
        "name": "a",
        "norm": 1.0,
        "labels": 10,
        "width": 5,
        "seed": 0,
    } | entries


def test_norms_at_the_most_labels_by_hand() -> None:
    rows = [
        row(name=f"graph {norm}", norm=norm + seed, labels=labels, seed=seed,
            error=norm * labels + seed)
        for norm in (1.0, 3.0, 2.0) for labels in (20, 10) for seed in (0, 1)
    ]  # fmt: skip
    expected = {"SGD": {1.5: [20, 21], 2.5: [40, 41], 3.5: [60, 61]}}
    _, _, over_norms, *_ = BY_ID["fig-5-1"].claims
    assert over_norms.read(SMALL, rows) == expected
    assert over_norms.read(SMALL, rows[::-1]) == expected  # seeds stay together


def verdict(figure: str, error: Any, seeds: int = 3, **more: Any) -> str:
    """Of rows of `error(task, place on the axis)`, seeds a little apart, variance 1."""
    grid = replace(BY_ID[figure].grid, readings=READINGS[1:], seeds=seeds)
    rows = [
        {"reading": "Adam", "name": task.name, "sampler": task.sampler, "learner": task.learner,
         "p_star": task.p_star, "p_hat": task.p_hat, "norm": task.degrees[0] / 2, "labels": labels,
         "width": width, "seed": seed, "mse": found, "variance": 1.0, "error": found} | more
        for task in grid.tasks for labels in grid.labels for width in grid.widths
        for seed in range(seeds)
        for found in [error(task, labels * width) * (1 + seed / 1000)]
    ]  # fmt: skip
    return " ".join(claim(grid, rows).text for claim in BY_ID[figure].claims)


@pytest.mark.parametrize("figure", ["fig-5-1", "fig-5-2"])
def test_error_over_labels_and_norms(figure: str) -> None:
    told = verdict(figure, lambda task, at: task.degrees[0] / at)
    assert told.count("claimed: falls: holds.") == 4 and "not found" not in told
    assert told.count("with the norm of A* (1.00 [1.00, 1.00]), claimed: rises: holds.") == 2
    assert "variance at the most" in told and "has no trend with the norm of A*" in told
    told = verdict(figure, lambda task, at: at / task.degrees[0])
    assert told.count("claimed: falls: not found.") == 4
    assert told.count("claimed: rises: not found.") == 2
    told = verdict(figure, lambda task, at: task.degrees[0] / at, seeds=2)
    assert told.count("no verdict of fewer than 3 seeds") == 6 and "holds" not in told


def test_what_holds_of_one_measure_alone_and_networks_that_diverge() -> None:
    told = verdict("fig-5-1", lambda task, at: task.degrees[0] / at, mse=1.0)
    assert "variance at the most labels rises with the norm of A* (1.00" in told
    assert "squared error at the most labels has no trend with the norm of A*" in told

    def diverges(task: DegreeGroupTask, at: int) -> float:
        return float("inf") if task.degrees[0] == 40 else task.degrees[0] / at

    told = verdict("fig-5-1", diverges)
    assert "at the most labels rises with the norm of A* (1.00 [1.00, 1.00])" in told
