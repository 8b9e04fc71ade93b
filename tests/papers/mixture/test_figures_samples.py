"""Figures 4.2 and 4.3."""

from dataclasses import replace

import pytest

from graphtheory.papers.mixture.figures_samples import Samples, spreads, successes
from graphtheory.papers.mixture.training import Learner, Setting
from tests.papers.conftest import Reproduced
from tests.papers.mixture.conftest import row

LEARNERS = (Learner(steps=60),)


def test_starts_that_end_alike_have_no_spread() -> None:
    small = Setting(dim=2, neurons=1)
    rows = Samples("d", LEARNERS, (2,), small, seeds=2, counts=(40, 400), starts=3).measure(spreads)
    assert [(r["n"], r["seed"]) for r in rows] == [(40, 0), (40, 1), (400, 0), (400, 1)]
    assert all(r["spread"] < 1e-4 for r in rows)
    grid = Samples("d", LEARNERS, (3,), Setting(neurons=3), 0, 3, 5, (60,), 3)
    few = grid.measure(spreads)
    assert max(r["spread"] for r in few) > 1e-3 and few[0]["seed"] == 5


def test_success_is_a_small_spread() -> None:
    grid = Samples("d", LEARNERS, (2, 4), seeds=2, counts=(10, 20))
    rows = [
        row(d, seed, n=n, spread=spread)
        for d, n, spreads in ((2, 10, (0, 1)), (2, 20, (1e-3, 0)), (4, 10, (1, 1)), (4, 20, (1, 0)))
        for seed, spread in enumerate(spreads)
    ]
    assert successes(grid, rows)["a"].counts.tolist() == [[1, 2], [0, 1]]


@pytest.mark.parametrize("figure", ["fig-4-2", "fig-4-3b"])
def test_a_figure_prints_and_draws(figure: str, reproduced: Reproduced) -> None:
    def small(grid: Samples) -> Samples:
        setting = replace(grid.setting, dim=3, neurons=1)
        learners = (replace(grid.learners[0], steps=20),)
        grid = replace(grid, values=grid.values[:2], learners=learners, setting=setting, seeds=2)
        return replace(grid, counts=(50, 100), starts=2)

    assert "examples at which half of the trials succeed" in reproduced(figure, small)
