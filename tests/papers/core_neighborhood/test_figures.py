from dataclasses import replace

import pytest

from graphtheory.papers.core_neighborhood.figures import FIGURES, Case, Phases, trials
from graphtheory.papers.core_neighborhood.training import GCN, Learner
from graphtheory.papers.figure import Figure
from tests.lab.bench.conftest import nearly
from tests.papers.conftest import Reproduced

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


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.id)
def test_every_case_has_a_name_and_a_claim(figure: Figure) -> None:
    (law,) = figure.claims
    assert len(law.claimed) == len({case.name for case in figure.grid.cases})
    assert len(figure.quick(figure.grid).cells()) < len(figure.grid.cells())


@pytest.mark.usefixtures("small_graphs")
def test_the_command_prints_and_draws(reproduced: Reproduced) -> None:
    def small(grid: Phases) -> Phases:
        learner = Learner(steps=80, width=20, step_size=1.0)
        cases = tuple(replace(case, learner=learner) for case in grid.cases)
        return replace(grid, cases=cases, values=grid.values[::5], labels=(8, 18, 40), seeds=4)

    assert reproduced("fig-3-3b", small).count("regular graph: ") == 1
