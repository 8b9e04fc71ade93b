"""Figures 7.3 to 7.5: what they ask, what they claim, and the command that makes them."""

import pytest

from graphtheory.papers.chain.data import ChainData
from graphtheory.papers.chain.figures import FIGURES, fewer_examples
from graphtheory.papers.figure import Figure

DATA = ChainData()
BY_ID = {figure.id: figure for figure in FIGURES}


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
