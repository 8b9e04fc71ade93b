"""Figures 5.1 to 5.4: rows of a small grid, verdicts on made-up rows, and the command."""

from dataclasses import replace
from typing import Any

import pytest

from graphtheory.papers import index
from graphtheory.papers.topology.data import SAMPLERS, DegreeGroupTask
from graphtheory.papers.topology.figures import (
    FIGURES,
    READINGS,
    Lowest,
    SampledTasks,
    best_sampler,
    best_target,
    errors,
)
from tests.lab.bench.conftest import nearly

BY_ID = {figure.id: figure for figure in FIGURES}
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


def test_best_target_and_best_sampler_by_hand() -> None:
    a, b = (0.9, 0.1), (0.5, 0.5)
    errors = {(a, a): (0.2, 0.5), (a, b): (0.3, 0.3), (b, a): (0.1, 9.0), (b, b): (0.2, 0.2)}
    rows = [
        row(learner=f"{p}", sampler=SAMPLERS[0], p_star=list(p), p_hat=list(q), seed=s, error=error)
        for (p, q), both in errors.items()
        for s, error in enumerate(both)
    ]
    lost = row(learner="F", sampler=SAMPLERS[1], p_star=[1, 1], p_hat=list(b), error=float("inf"))
    found = best_target([*rows, lost])
    assert {name: (best.at, best.seeds, best.of) for name, best in found.items()} == {
        f"{a}": (b, 1, 2), f"{b}": (b, 1, 2), "F": (None, 0, 1),
    }  # fmt: skip
    assert found[f"{a}"].share == pytest.approx(0.75, abs=0.05)  # not of the first seed alone
    assert found["F"].share == 0 and not found[f"{a}"].holds(b)
    by_target = best_sampler([*rows, lost])
    assert (by_target[a].at, by_target[a].seeds) == (a, 1)
    assert by_target[b] == Lowest(b, 2, 2, 1.0)
    assert by_target[b].holds(b) and not by_target[b].holds(a)


def test_of_several_numbers_of_labels_the_best_is_of_the_largest() -> None:
    a, b = (0.9, 0.1), (0.5, 0.5)
    rows = [
        row(learner="L", sampler=SAMPLERS[0], p_star=list(q), p_hat=list(q), seed=s, labels=labels,
            error=error)
        for labels, errors in ((20, {a: 0.3, b: 0.2}), (10, {a: 0.1, b: 0.9}))
        for q, error in errors.items()
        for s in range(3)
    ]  # fmt: skip
    assert best_target(rows) == {"L": Lowest(b, 3, 3, 1.0)}
    assert best_sampler(rows) == {a: Lowest(a, 3, 3, 1.0), b: Lowest(b, 3, 3, 1.0)}


def test_every_sampler_meets_every_target_and_the_best_learned_is_told() -> None:
    def own(task: DegreeGroupTask, at: int) -> float:
        return 1.0 + abs(task.p_star[0] - task.p_hat[0])

    told = verdict("fig-5-3", own)
    assert "p* = (0.9, 0.1): lowest over the variance on (0.9, 0.1) (3 of 3 seeds, 100 %" in told
    assert told.count("holds") == 4  # FastGCN has p* = (1, 1) here, which is next to (0.9, 0.1)
    told = verdict("fig-5-4", own)
    assert told.count("claimed (0.5, 0.5): holds") == 1 and told.count("not found") == 3
    assert verdict("fig-5-4", own, seeds=1).count("no verdict of fewer than 3 seeds") == 4
    tasks = BY_ID["fig-5-3"].grid.tasks
    learners = ["p* = (0.9, 0.1)", "p* = (0.1, 0.9)", "p* = (0.5, 0.5)", "FastGCN"]
    assert [task.learner for task in tasks[::3]] == learners
    assert len({(task.learner, task.p_hat) for task in tasks}) == len(tasks) == 12
