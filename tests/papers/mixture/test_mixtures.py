import math

import pytest
import torch

from graphtheory.papers.mixture import figures, figures_samples
from graphtheory.papers.mixture.mixtures import Counted, Letter, ends, varied
from graphtheory.papers.mixture.training import Setting, draw
from tests.papers.mixture.conftest import row

BY_ID = {figure.id: figure for figure in (*figures.FIGURES, *figures_samples.FIGURES)}


@pytest.mark.parametrize(
    ("letter", "value", "wanted"),
    [
        ("d", 7, {"dim": 7}),
        ("K", 2, {"neurons": 2}),
        ("n", 2000, {}),
        ("mean 1", 0.5, {"means": (0.5, -1.0)}),
        ("mean 2", 0.5, {"means": (1.0, 0.5)}),
        ("means", 0.5, {"means": (0.5, -0.5)}),
        ("sigma 1", 4.0, {"deviations": (2.0, 1.0)}),
        ("sigma 2", 4.0, {"deviations": (1.0, 2.0)}),
        ("sigma", 4.0, {"deviations": (2.0, 2.0)}),
        ("lambda 2", 0.2, {"weights": (0.8, 0.2)}),
    ],
)
def test_one_letter_changes(letter: Letter, value: float, wanted: dict[str, object]) -> None:
    assert vars(varied(Setting(), letter, value)) == vars(Setting()) | wanted


def test_what_is_shown_and_the_norm_of_a_turned_spread() -> None:
    assert BY_ID["fig-4-6b"].grid.shown(-2.0) == pytest.approx(2 * 5**0.5)
    assert BY_ID["fig-4-5b"].grid.shown(2000) == pytest.approx(math.log(2000) / 2000)
    assert BY_ID["fig-4-7a"].grid.shown(0.3) == 0.3
    grid = BY_ID["fig-4-6b"].grid
    assert grid.places == sorted(grid.places) and ends(grid.values) == (0.0, -2.0, -4.0)
    assert ends((1.0, 2.0)) == (1.0, 2.0)
    made = varied(Setting(turned=True), "sigma", 3.0)
    spread = draw(made, 3, 0, torch.float64).mixture.covariances
    assert float(torch.linalg.matrix_norm(spread[0], 2)) == pytest.approx(3)


def verdict(name: str, rows: list[dict]) -> str:
    return BY_ID[name].claims[0](BY_ID[name].grid, rows).text


def test_the_same_seeds_count_at_every_value_with_a_risk_and_a_rate_where_it_is_a_number() -> None:
    grid, root = BY_ID["fig-4-4a"].grid, 5**0.5
    rows = [
        row(v, s, rate=10 * v + s, ended=(s < 2 if v == 2 else not (v == 1 and s == 1)))
        for v in (0.5, 1.0, 2.0)
        for s in range(5)
    ]
    read = Counted("rate")
    assert read(grid, rows)["a"] == {0.5 * root: [5, 7, 8, 9], root: [10, 12, 13, 14]}
    few = [r for r in rows if r["value"] < 2 and r["seed"] < 3]  # two seeds at both values
    assert read(grid, few)["a"] == {0.5 * root: [5, 7], root: [10, 12]}
    assert "no verdict of fewer than 3 seeds" in verdict("fig-4-4a", few)
    shown = BY_ID["fig-4-4a"].show(grid, [r | {"straight": 1.0} for r in few])
    assert shown.table.rows[0][-1] == "-" and "rho" not in {r.name for r in shown.rows}
    grid = BY_ID["fig-4-6a"].grid
    rows = [row(v, s, average=v, ended=s == 0) for v in (0.1, 2.0) for s in range(3)]
    read = Counted("average", everywhere=True)
    assert read(grid, rows)["a"] == {0.1: [0.1] * 3, 2.0: [2.0] * 3}
    rates = [row(1.0, s, rate=math.nan if s == 1 else 0.9) for s in range(3)]
    assert Counted("speed")(grid, rates)["a"] == {1.0: [pytest.approx(0.1)] * 2}


def test_a_trend_is_one_within_seeds() -> None:
    rows = [  # each seed alike everywhere; those of a small rate end at small values alone
        row(v, s, rate=float(s), ended=abs(s - 2 * i) <= 3)
        for i, v in enumerate((0.1, 0.5, 1.0, 1.5, 2.0))
        for s in range(12)
    ]
    assert "holds" not in verdict("fig-4-4a", rows)
    rows = [
        row(v, s, average=100.0 * ((7 * s) % 11) + v)
        for v in (0.0, 0.1, 0.2, 0.3)
        for s in range(11)
    ]
    assert "rises with lambda_2 (1.00 [1.00, 1.00])" in verdict("fig-4-7b", rows)
