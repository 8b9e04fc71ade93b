from dataclasses import replace

import pytest

from graphtheory.papers.core_neighborhood import figures as steps
from graphtheory.papers.core_neighborhood.figures import FIGURES, Case, Curves, Phases, trials
from graphtheory.papers.core_neighborhood.training import GCN, Learner
from tests.lab.bench.conftest import nearly

LEARNER = Learner(steps=4, batch_size=4, width=12, embedding=18, samples=5)
CASES = (Case(LEARNER, "regular"), Case(replace(LEARNER, network=GCN), "regular"))


@pytest.mark.usefixtures("small_graphs")
def test_rows_of_a_small_grid() -> None:
    grid = Phases(cases=CASES, setting="gamma_d", values=(0.3, 0.5), labels=(4, 8), seeds=2)
    rows = grid.measure(trials)
    assert [(r["case"], r["labels"], r["seed"], r["gamma_d"]) for r in rows] == [
        (case.name, labels, seed, value)
        for case in CASES
        for labels in (4, 8)
        for seed in (0, 1)
        for value in (0.3, 0.5)
    ]
    assert grid.measure(trials) == nearly(rows)
    rows = GRID.measure(steps.looks)
    assert [(r["eps_0"], r["step"], r["seed"]) for r in rows] == [
        (value, step, seed) for value in (0.0, 0.2) for step in (0, 2, 4) for seed in (0, 1)
    ]
    assert all(0 < r["mass"] < 1 and r["hinge"] > 0 for r in rows)


GRID = Curves(cases=CASES[:1], setting="eps_0", values=(0.0, 0.2), labels=10, every=2, seeds=2)


def losses(eps_0: float, seed: int, *hinges: float) -> list[dict]:
    """A look every ten steps."""
    return [
        {"case": "GT", "eps_0": eps_0, "seed": seed, "step": 10 * i, "hinge": hinge}
        for i, hinge in enumerate(hinges)
    ]


def test_settling_and_the_last_loss_over_twice_the_share() -> None:
    assert steps.settling(losses(0.1, 0, 1.0, 0.4, 0.25, 0.2)) == [20.0]
    level, slower = next(figure for figure in FIGURES if figure.id == "fig-3-4").claims
    rows = []
    for seed, off in enumerate((0.9, 1.0, 1.1)):
        rows += losses(0.0, seed, 1.0, 0.0, 0.0, 0.0)
        rows += losses(0.1, seed, 1.0, 1.0, 0.2 * off, 0.2 * off)
    assert steps.last_ratios(GRID, rows) == {"GT": {0.1: pytest.approx([0.9, 1.0, 1.1])}}
    assert steps.steps_to_settle(GRID, rows) == {"GT": {0.0: [10.0] * 3, 0.1: [20.0] * 3}}
    assert "1.00 [0.9" in level(GRID, rows).text and "1.25: holds" in level(GRID, rows).text
    assert "rises with eps_0" in slower(GRID, rows).text
    same = [row for seed in range(3) for eps in (0.0, 0.1) for row in losses(eps, seed, 1.0, eps)]
    assert "has no trend with eps_0" in slower(GRID, same).text


def told(name: str, value: float, rise: float, seeds: int = 3, slower: int = 100) -> str:
    """The verdict on losses that settle at `value` times 2 eps_0, and attention that rises."""
    figure = next(figure for figure in FIGURES if figure.id == name)
    cases = {case.name for case in figure.grid.cases}
    rows = [
        {"case": case, "eps_0": eps, "gamma_d": 0.2, "seed": seed, "step": step, "error": 0.0,
         "hinge": 2 * eps * value if step > slower * eps else 1.0 + 0.001 * seed,
         "mass": (mass := 0.2 + rise * step / 40 + 0.001 * seed), "decisive": mass, "other": mass}
        for case in sorted(cases) for eps in ((0.0, 0.05, 0.1, 0.15) if name == "fig-3-4" else (0,))
        for seed in range(seeds) for step in (0, 10, 20, 30, 40)
    ]  # fmt: skip
    return figure.report(replace(figure.grid, seeds=seeds), rows).verdict


def test_a_loss_that_settles_at_twice_the_share_of_flipped_labels() -> None:
    found = told("fig-3-4", 1.1, 0.0)
    assert "1.10 [1.10, 1.10] at eps_0 = 0.15, claimed at least 0.75 and at most 1.25: hol" in found
    assert found.count("holds") == 2
    assert told("fig-3-4", 1.4, 0.0).count("not found") == 1
    assert told("fig-3-4", 1.0, 0.0, slower=0).endswith("claimed: rises: not found.")
    assert told("fig-3-4", 1.1, 0.0, seeds=2).count("no verdict") == 2


@pytest.mark.parametrize(("rise", "close", "rises"), [(0.79, 3, 3), (0.4, 0, 3), (-0.1, 0, 0)])
def test_attention_that_rises_to_1(rise: float, close: int, rises: int) -> None:
    found = told("fig-3-5", 1.0, rise)
    assert found.count("claimed at least 0.95: holds") == close
    assert found.count("claimed: rises: holds") == rises
