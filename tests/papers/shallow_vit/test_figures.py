from dataclasses import replace

import pytest

from graphtheory.papers.shallow_trials import Curves
from graphtheory.papers.shallow_vit.figures import (
    FIGURES,
    Case,
    Phases,
    Sparsified,
    looks,
    losses,
    trials,
)
from graphtheory.papers.shallow_vit.training import NOISE, RANDOM, RELEVANT, Learner, TokenPatterns
from tests.lab.bench.conftest import nearly

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
    assert [(r["alpha_star"], r["labels"], r["seed"]) for r in rows] == [
        (value, labels, seed) for value in (0.3, 0.6) for labels in (4, 8) for seed in (0, 1)
    ]
    assert grid.measure(trials) == nearly(rows)
    grid = Curves(
        cases=CASES, setting="alpha_star", values=(0.4,), labels=10, every=2, seeds=2, first=5
    )
    rows = grid.measure(looks)
    assert [(r["step"], r["seed"]) for r in rows] == [(s, t) for s in (0, 2, 4) for t in (5, 6)]
    assert all(0 < r["mass"] < 1 and r["hinge"] > 0 for r in rows)
    grid = Sparsified(CASE, (RELEVANT, RANDOM), (10, 5), 6, 2)
    rows = grid.measure(losses)
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
            for sigma in grid.values
            for labels in grid.labels
            for seed in range(20)
        ]  # fmt: skip
        return falls(grid, rows).text

    assert told({s: (0.45 - 0.8 * s) ** -2 for s in grid.values}).endswith("line: holds.")
    assert told({s: 64 - 140 * s for s in grid.values}).endswith("line: not found.")


CASE = Case(Learner(steps=4, batch_size=4, width=12), TokenPatterns(10, 0.4, 0.1))
FIGURE = FIGURES[-1]


def test_every_rule_but_a_random_one_is_claimed_to_help() -> None:
    rows = [
        {"rule": rule, "kept": kept, "seed": seed, "hinge": kept + seed}
        for rule in (RANDOM, NOISE)
        for kept in (50, 40, 30)
        for seed in range(3)
    ]
    told = [claim(FIGURE.grid, rows).text for claim in FIGURE.claims]
    assert told[0].startswith("at random: ") and told[0].endswith("does not rise: not found.")
    assert told[1].startswith("noisiest first: ") and told[1].endswith("claimed: rises: holds.")
