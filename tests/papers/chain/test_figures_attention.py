"""Figures 7.6, 7.7 and F.1: stages of training and the best head of each layer."""

import math

import pytest

from graphtheory.papers.chain.data import ChainData
from graphtheory.papers.chain.figures_attention import FIGURES, Dynamics, best_heads, stages
from graphtheory.papers.chain.training import MASSES, Learner

BY_ID = {figure.id: figure for figure in FIGURES}


def look(step: int, seed: int, head: int, *mass: float) -> dict:
    own = {"own columns": 1 - sum(mass)}
    where = {"step": step, "seed": seed, "layer": 1, "head": head}
    return where | own | dict(zip(MASSES, mass, strict=True))


def test_stages_and_the_best_head() -> None:
    rows = [
        look(0, 0, 1, 0.2, 0.2, 0.3, 0.3), look(0, 0, 2, 0.25, 0.25, 0.25, 0.25),
        look(9, 0, 1, 0.3, 0.6, 0.05, 0.0), look(9, 0, 2, 0.1, 0.1, 0.4, 0.4),
    ]  # fmt: skip
    later = look(20, 0, 1, 0.98, 0.02, 0.0, 0.0)
    first = [row for row in rows if row["head"] == 1]
    assert stages(first) == {0: (9, math.inf)}  # 0.05 of 0.6 is less than a tenth
    assert stages([*first, later]) == {0: (9, 20)}  # 0.02 / 1 of 0.2 / 0.4
    pattern_first = look(9, 0, 1, 0.49, 0.01, 0.25, 0.25)
    assert stages([first[0], pattern_first]) == {0: (math.inf, 9)}
    best = best_heads(rows)[1]
    assert best == {"start": 0.2, "end": 0.3, "leads": 0, "seeds": 1}
    assert best_heads([*rows, later])[1]["leads"] == 1
    own_columns = look(20, 0, 1, 0.3, 0.2, 0.0, 0.0)
    assert best_heads([*rows, own_columns])[1]["leads"] == 0


def test_rows_of_a_small_grid() -> None:
    data = ChainData(dim=12, num_patterns=6, num_test_patterns=6, contexts=6)
    grid = Dynamics(Learner(steps=2, batch_size=4), data, every=2, seeds=1)
    rows = grid.measure(BY_ID["fig-7-6"].run)
    assert [r["step"] for r in rows] == [0, 2] and "error" in rows[1] and "error" not in rows[0]


def looks(layer: int, *ends: float) -> list[dict]:
    """Rows of one head per seed that begins at a quarter and ends with so much of what it seeks."""
    others = ("same step, other pattern", "other step, same pattern", "other step, other pattern")
    return [
        {"step": step, "seed": seed, "layer": layer, "head": 1, "same step, same pattern": seeks,
         "own columns": 0.0} | dict.fromkeys(others, (1 - seeks) / 3)
        | ({"error": 0.0} if step else {})
        for seed, end in enumerate(ends)
        for step, seeks in ((0, 0.25), (9, end))
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("first", "verdict"),
    [
        (0.95, "found"), (0.775, "it selects, not to 1: layer 1 to 0.775"),
        (0.2, "in part, in layers 2"), (None, "not found"),
    ],
)  # fmt: skip
def test_the_verdict_of_figure_7_7(first: float | None, verdict: str) -> None:
    rows = looks(1, first or 0.2, first or 0.2)
    rows += looks(2, 0.97, 0.98) if first else looks(2, 0.2, 0.2)
    told = BY_ID["fig-7-7"].report(BY_ID["fig-7-7"].grid, rows).verdict
    assert f"A head of every layer selects: {verdict}. Test error" in told


def test_trials_without_an_end_of_a_stage_are_told() -> None:
    found = BY_ID["fig-7-6"].report(BY_ID["fig-7-6"].grid, looks(1, 0.97, 0.6)).rows
    shares = [r.value for r in found if "share of trials where a tenth is left" in r.name]
    assert shares == [0.5, 0.5]
