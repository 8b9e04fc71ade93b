"""Figures 7.3 to 7.7 and F.1: what they ask and claim, stages of training, the best head."""

import math

import pytest

from graphtheory.papers.chain.data import ChainData
from graphtheory.papers.chain.figures import FIGURES, fewer_examples
from graphtheory.papers.chain.figures_attention import FIGURES as ATTENTION_FIGURES
from graphtheory.papers.chain.figures_attention import Dynamics, best_heads, stages
from graphtheory.papers.chain.training import MASSES, Learner
from graphtheory.papers.figure import Figure

DATA = ChainData()
BY_ID = {figure.id: figure for figure in (*FIGURES, *ATTENTION_FIGURES)}


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.id)
def test_lines_are_where_they_say(figure: Figure) -> None:
    for case in figure.grid.cases:
        facts = case.facts(DATA)
        if case.letter in ("tau", "rho", "tau_o", "rho_o"):
            assert facts[case.letter] == pytest.approx(case.value, abs=1e-3)
        if figure.id == "fig-7-5":
            assert facts["tau_o"] == pytest.approx(0.4, abs=1e-3)
            assert facts["rho_o"] == pytest.approx(0.1, abs=1e-3)
            assert facts["condition"] == bool(case.value)
        elif figure.id.startswith("fig-7-3"):
            assert facts["condition"] and facts["tau"] <= facts["tau_o"] + 1e-3
        else:
            assert facts["condition"]


@pytest.mark.parametrize(
    ("fails", "chain", "holds"), [(0.7, 0.0, True), (0.4, 0.0, False), (0.7, 0.5, False)]
)
def test_the_verdict_of_figure_7_5(fails: float, chain: float, holds: bool) -> None:
    figure = BY_ID["fig-7-5"]
    lengths = figure.grid.lengths
    last = {("ICL", True): 0.1, ("ICL", False): fails, ("CoT", True): 0.0, ("CoT", False): chain}
    facts = dict.fromkeys(("tau", "rho", "tau_o", "rho_o"), 0.5)
    rows = [
        {"panel": panel, "series": str(condition), "condition": condition, "contexts": contexts,
         "error": end if contexts == lengths[-1] else 0.5 + seed / 100, "seed": seed}
        | facts
        for (panel, condition), end in last.items()
        for contexts in lengths
        for seed in (0, 1)
    ]  # fmt: skip
    rows = [r | {"error": r["error"] + 0.02 * (r["panel"] == "ICL")} for r in rows]
    verdict = figure.report(figure.grid, rows).verdict
    assert verdict.endswith("holds." if holds else "not found.")


def test_the_data_of_the_section_are_the_default() -> None:
    assert ChainData() == ChainData(30, 20, 10, 3, 0.4, 20, 0.2)


def lengths_needed(value: float, needed: float, error: float | None = None) -> list[dict]:
    """Of three trials, errors that fall as the length to the power -2, or do not."""
    return [
        {"panel": "CoT", "series": f"tau = {value}", "value": value, "seed": seed, "contexts": n,
         "error": error or 0.05 * (needed * (1 + seed / 10) / n) ** 2}
        for seed in range(3)
        for n in (5, 10, 20, 40, 80, 160)
    ]  # fmt: skip


def test_fewer_examples_with_every_larger_value() -> None:
    falling = fewer_examples(None, [r for v in (0.2, 0.4) for r in lengths_needed(v, 3 * v**-1.5)])
    assert "fewer with every larger value: holds" in falling.text
    assert any(row.name == "exponent" for row in falling.rows)
    never = fewer_examples(None, [r for v in (0.2, 0.4) for r in lengths_needed(v, 9, 0.5)])
    assert "needs more, more examples" in never.text and "not found" in never.text
    assert [row.value for row in never.rows] == [0, 0]


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
