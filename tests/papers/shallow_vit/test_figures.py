import math
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from graphtheory.papers.figure import Figure
from graphtheory.papers.shallow_trials import Curves
from graphtheory.papers.shallow_vit import backgrounds as scenes
from graphtheory.papers.shallow_vit import figures, figures_backgrounds
from graphtheory.papers.shallow_vit.figures import FIGURES, Case, Phases, Sparsified, looks, trials
from graphtheory.papers.shallow_vit.figures_backgrounds import (
    AGREEING,
    CONFLICTING,
    DRAWN,
    PRETRAINED,
    Backgrounds,
    Spurious,
    accuracies,
    gain,
    gaps,
)
from graphtheory.papers.shallow_vit.training import NOISE, RANDOM, RELEVANT, Learner, TokenPatterns
from tests.lab.bench.conftest import nearly
from tests.papers.conftest import entries

LEARNER = Learner(steps=4, batch_size=4, width=12)
DATA = TokenPatterns(10, 0.4, 0.1)
CASES = (Case(LEARNER, DATA),)


def test_two_readings_of_the_confusion_share() -> None:
    kept = Case(LEARNER, DATA).at("alpha_star", 0.3)[1]
    rest = Case(LEARNER, DATA, others=0.5).at("alpha_star", 0.3)[1]
    assert (kept.alpha_star, kept.alpha_confusion) == (0.3, 0.1)
    assert rest.alpha_star == 0.3 and rest.alpha_confusion == pytest.approx(0.2)
    learner, data = Case(LEARNER, DATA).at("sigma", 0.7)
    assert learner.sigma == 0.7 and data == DATA


def test_rows_of_phases_curves_and_sparsifiers() -> None:
    grid = Phases(cases=CASES, setting="alpha_star", values=(0.3, 0.6), labels=(4, 8), seeds=2)
    rows = grid.measure(trials)
    assert entries(rows, "alpha_star", "labels", "seed") == [*product((0.3, 0.6), (4, 8), (0, 1))]
    assert grid.measure(trials) == nearly(rows)
    settings = {"setting": "alpha_star", "values": (0.4,), "labels": 10, "every": 2, "seeds": 2}
    grid = Curves(cases=CASES, **settings, first=5)
    rows = grid.measure(looks)
    assert [(r["step"], r["seed"]) for r in rows] == [(s, t) for s in (0, 2, 4) for t in (5, 6)]
    assert all(0 < r["mass"] < 1 and r["hinge"] > 0 for r in rows)
    grid = Sparsified(CASES[0], (RELEVANT, RANDOM), (10, 5), 6, 2)
    rows = grid.measure(figures.losses)
    share = {(r["rule"], r["kept"]): r["alpha_star"] for r in rows}
    assert share[RELEVANT, 10] == share[RANDOM, 10] == pytest.approx(0.4)
    assert share[RELEVANT, 5] == pytest.approx(0.8) and len(rows) == 8


def test_every_value_has_data() -> None:
    for grid in (figure.grid for figure in FIGURES[:-1]):
        assert all(case.at(grid.setting, v) for case in grid.cases for v in grid.values)


def test_the_square_roots_fall_along_a_line() -> None:
    figure = next(figure for figure in FIGURES if figure.id == "fig-2-1b")
    *_, falls = figure.claims
    grid = replace(figure.grid, values=(0.05, 0.1, 0.2, 0.4), labels=(4, 8, 16, 32, 64), seeds=20)

    def told(needed: dict[float, float]) -> str:
        rows = [
            {"case": grid.cases[0].name, "sigma": sigma, "labels": labels, "seed": seed,
             "hinge": float(labels < needed[sigma])}
            for sigma, labels, seed in product(grid.values, grid.labels, range(20))
        ]  # fmt: skip
        return falls(grid, rows).text

    assert told({s: (0.45 - 0.8 * s) ** -2 for s in grid.values}).endswith("line: holds.")
    assert told({s: 64 - 140 * s for s in grid.values}).endswith("line: not found.")


def test_every_rule_but_a_random_one_is_claimed_to_help() -> None:
    rows = [
        {"rule": rule, "kept": kept, "seed": seed, "hinge": kept + seed}
        for rule, kept, seed in product((RANDOM, NOISE), (50, 40, 30), range(3))
    ]
    told = [claim(FIGURES[-1].grid, rows).text for claim in FIGURES[-1].claims]
    assert told[0].startswith("at random: ") and told[0].endswith("does not rise: not found.")
    assert told[1].startswith("noisiest first: ") and told[1].endswith("claimed: rises: holds.")


SCENE = replace(scenes.SCENES["digits"], updates=2, batch_size=16)
OVER_SHARES, OVER_NUMBERS, SPURIOUS = figures_backgrounds.FIGURES


def test_rows_of_shares_and_numbers() -> None:
    grid = Backgrounds(scene=SCENE, kept=(25, 16), labels=(40,), most=40, seeds=1)
    rows = grid.measure(accuracies)
    assert entries(rows, "kept", "alpha_star", "labels") == [(25, 0.64, 40), (16, 1.0, 40)]
    assert all(0 <= r["accuracy"] <= 1 for r in rows)
    with pytest.raises(ValueError, match="labels: got 2000, expected at most 1237 images"):
        replace(grid, most=2000).measure(accuracies)


@pytest.mark.parametrize("dataset", list(scenes.SCENES))
@pytest.mark.parametrize("figure", figures_backgrounds.FIGURES, ids=lambda figure: figure.id)
def test_a_quick_form_is_a_small_one(figure: Figure, dataset: str) -> None:
    grid = figure.settings(dataset)
    canvas = grid.scene.canvas
    assert grid.dataset == dataset and canvas.alpha_star(grid.kept[0]) == pytest.approx(0.64)
    assert canvas.alpha_star(grid.kept[-1]) == 1 == canvas.alpha_star(canvas.relevant)
    few = figure.settings(dataset, quick=True)
    assert len(few.cells()) < len(grid.cells()) and few.kept == (25, 16)
    if isinstance(grid, Backgrounds):
        assert grid.most == few.most == max(grid.labels) == max(few.labels)


def rows_of(labels: tuple[int, ...], slope: float) -> list[dict[str, Any]]:
    """Accuracies of 0.8 where N alpha_*^2 is 200."""
    return [
        {"kept": 16, "alpha_star": a, "labels": n, "seed": s,
         "accuracy": 0.8 + slope * (n * a**2 / 200 - 1) + 0.001 * s}
        for a in (0.64, 0.8, 1.0) for n in labels for s in range(3)
    ]  # fmt: skip


def test_accuracy_over_the_share_and_its_gain_of_each_seed() -> None:
    grid = OVER_SHARES.settings("digits")
    made = OVER_SHARES.report(grid, rows_of((300, 900), 0.02))
    assert made.verdict.count("holds") == 5 and "not found" not in made.verdict
    assert "300 images: accuracy rises with alpha_* (1.00 [1.00, 1.00]), by 1.8 po" in made.verdict
    assert OVER_SHARES.report(grid, rows_of((300, 900), -0.02)).verdict.count("not found") == 5
    first = made.rows[0]
    assert first.name == "fig-2-6a test accuracy"
    assert list(first.parameters.items()) == [("alpha_star", 0.64), ("labels", 300)]
    found = gain({1.0: [0.5, 0.9], 0.6: [0.3, 0.8], 0.8: [math.nan] * 2})
    assert found == ", by 15.0 points from end to end (10.0 to 20.0)"


def test_the_images_that_are_needed_fall_as_a_power_inside_the_grid() -> None:
    grid = replace(OVER_NUMBERS.settings("digits"), target=0.8)
    made = OVER_NUMBERS.report(grid, rows_of((100, 300, 900), 0.02))
    assert "images ~ (alpha_*)^-2" in made.verdict and made.picture is not None
    assert any(r.name == "fig-2-6b exponent of the images" for r in made.rows)
    assert "alpha_* = 1: images for an accuracy of 80 %: 164." in made.verdict
    _, needed = OVER_NUMBERS.claims
    grid = replace(OVER_NUMBERS.settings("digits"), target=0.4, labels=(100, 400))
    ends = {0.5: (0.2, 0.6), 0.6: (0.1, 0.3), 1.0: (0.5, 0.7)}
    rows = [
        {"alpha_star": alpha, "labels": labels, "seed": 0, "accuracy": accuracy}
        for alpha, found in ends.items()
        for labels, accuracy in zip((100, 400), found, strict=True)
    ]
    found = needed(grid, rows)
    told = "alpha_* = {:g}: images for an accuracy of 40 %: {}."
    for line in ((0.5, "200"), (0.6, "more than 400"), (1.0, "at most 100")):
        assert told.format(*line) in found.text
    assert "too few images inside the grid for an exponent" in found.text
    assert [row.value for row in found.rows] == [pytest.approx(200)]


@pytest.mark.usefixtures("few_images")
def test_rows_of_backgrounds_that_say_the_class() -> None:
    rows = Spurious(scene=SCENE, kept=(16,), labels=30, seeds=1).measure(gaps)
    assert [row["start"] for row in rows] == [DRAWN, PRETRAINED]
    for row in rows:
        assert row["accuracy"] == pytest.approx((row[AGREEING] + row[CONFLICTING]) / 2)
        assert row[AGREEING] == row[CONFLICTING] and row["gap"] == 0  # no background is left


def test_the_gap_between_backgrounds() -> None:
    rows = [
        {"start": start, "kept": 16, "alpha_star": a, "seed": s, "accuracy": a / 2 + 0.1 * more,
         "agreeing": 0.9, "conflicting": a - 0.1 - 0.01 * s, "gap": 1.0 - a + 0.01 * s}
        for more, start in enumerate((DRAWN, PRETRAINED)) for a in (0.64, 0.8, 1.0)
        for s in range(3)
    ]  # fmt: skip
    made = SPURIOUS.report(SPURIOUS.settings("digits"), rows)
    assert made.verdict.count("holds") == 4
    assert "+10.0 points on average, ahead in 9 of 9 runs" in made.verdict
    gap = next(r for r in made.rows if "gap" in r.name and r.parameters["alpha_star"] == 0.64)
    assert gap.value == pytest.approx(0.37)
    assert list(made.table.rows[0]) == ["drawn weights", "test accuracy", "32.0", "40.0", "50.0"]
