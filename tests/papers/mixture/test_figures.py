"""Figures 4.4 to 4.7: rows, verdicts, and the command that makes them."""

from typing import Any

from graphtheory.papers.mixture.figures import FIGURES, rates, risks
from graphtheory.papers.mixture.mixtures import Mixtures
from graphtheory.papers.mixture.training import Learner, Setting
from tests.papers.mixture.conftest import row

BY_ID = {figure.id: figure for figure in FIGURES}
SMALL = Setting(dim=2, neurons=1)


def test_rows_of_rates_and_risks() -> None:
    learners = (Learner(factor=8.0, steps=60),)
    rows = Mixtures("means", learners, (0.1, 1.0), SMALL, 400, 2).measure(rates)
    assert [(r["value"], r["seed"]) for r in rows] == [(0.1, 0), (0.1, 1), (1.0, 0), (1.0, 1)]
    for r in rows:
        assert 0 < r["rate"] < 1 and r["ended"] and r["gap"][-1] < r["gap"][0]
        assert r["straight"] > 0.99 and len(r["steps"]) == len(r["gap"]) == 61
    rows = Mixtures("n", (Learner(steps=6),), (40, 400), SMALL, seeds=1).measure(risks)
    assert [r["n"] for r in rows] == [40, 400]
    assert all(0 < r["excess"] < r["average"] and r["off"] > 0 for r in rows)


def holds(figure: str, rows: list[dict[str, Any]], claim: int = 0) -> bool:
    text = BY_ID[figure].claims[claim](BY_ID[figure].grid, rows).text
    return text.endswith("holds.")


def test_verdicts_and_what_is_told_beside_them() -> None:
    rows = [row(k, s, rate=1 - 0.1 * (1 + 0.1 * s) / k**2) for k in (2, 3, 5) for s in range(3)]
    assert holds("fig-4-5a", rows)
    assert "1 - v ~ (K)^-2.00" in BY_ID["fig-4-5a"].claims[0](BY_ID["fig-4-5a"].grid, rows).text
    slower = [row(k, s, rate=1 - 0.1 / k) for k in (2, 3, 5) for s in range(3)]
    assert not holds("fig-4-5a", slower)
    rising = [row(v, s, average=v + s) for v in (0.0, 0.2, 0.5) for s in range(3)]
    assert not holds("fig-4-7a", rising) and holds("fig-4-7b", rising)
    assert not holds("fig-4-6a", rising)
    bowl = [row(v, s, average=abs(v - 0.2) + s) for v in (0.0, 0.2, 0.5) for s in range(3)]
    assert holds("fig-4-6a", bowl)
    figure = BY_ID["fig-4-5a"]
    rows = [
        row(k, s, rate=0.9, straight=0.99, ended=k < 5 and (k, s) != (2, 0), steps=[0], gap=[1.0])
        for k in (2, 3, 4, 5)
        for s in range(8)
    ]
    told = " ".join(claim(figure.grid, rows).text for claim in figure.claims)
    assert "a: log distances are straight lines with R^2 of at least 0.990." in told
    assert "a: 72 % of trials end at a minimum; 7 of 8 seeds do so at every value but K = 5" in told
