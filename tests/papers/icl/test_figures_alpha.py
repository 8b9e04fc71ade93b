"""Figures 6.3b and E.1: where errors settle, and the power of alpha."""

import math
from dataclasses import replace

import pytest

from graphtheory.papers.icl.figures_alpha import (
    FIGURES,
    Case,
    Growth,
    _sizes,
    growth,
    law,
    trainings,
)
from graphtheory.papers.icl.training import Learner, PromptTest

SMALL = Learner(steps=4, batch_size=6, width=8, length=4)


def test_steps_are_read_where_the_error_of_each_network_stays_below() -> None:
    rows = [
        {"alpha": alpha, "seed": seed, "step": step, "error": alpha / step}
        for alpha in (1.0, 0.5)
        for seed in (1, 0)
        for step in (4, 2, 1)
    ]
    lengths = [{"alpha": 0.5, "seed": 0, "length": 2, "error": 1.0}]
    found = _sizes(Growth((), threshold=0.3), [*rows, *lengths])
    assert found["contexts of a training prompt"] == {0.5: [math.inf]}
    assert found["steps of SGD"] == {
        0.5: pytest.approx([1.67, 1.67], abs=0.01), 1.0: pytest.approx([3.33, 3.33], abs=0.01)
    }  # fmt: skip


def test_curves_end_when_all_networks_are_there_and_have_the_power_of_alpha() -> None:
    grid = Growth(
        trainings((0.5, 1.0), (2, 3)), SMALL, PromptTest(0.8, 5), every=2, threshold=4.0,
        prompts=30, seeds=2,
    )  # fmt: skip
    rows = grid.measure(growth)
    short = [(r["alpha"], r["length"]) for r in rows if r["kind"] == "length"]
    assert short[::2] == [(0.5, 2), (0.5, 3), (1.0, 2), (1.0, 3)]
    steps = [r["step"] for r in rows if r["kind"] == "steps" and r["alpha"] == 1.0]
    assert steps == [2, 2]  # below 4 / 4
    assert growth(replace(grid, every=9), Case(1.0)) == []  # no test on the way
    found = law({0.2: [math.inf], 0.25: [40.0, 40.0], 0.5: [20.0], 1.0: [10.0]})
    assert found is not None and found.exponent == pytest.approx(-1)
    assert law({0.2: [math.inf], 0.5: [1.0]}) is None


def test_medians_and_exponents_of_figure_6_3b() -> None:
    figure = FIGURES[0]
    rows = [
        {"alpha": alpha, "domain": domain, "seed": seed, "length": n,
         "error": 0.05 * (5 / alpha / n) ** 3}
        for domain in ("in domain", "out of domain")
        for alpha in (0.25, 0.5)
        for seed in range(3)
        for n in (3, 6, 12, 24, 48)
    ]  # fmt: skip
    found = figure.report(figure.grid, rows)
    assert (
        "in domain: an error that stays below 5 % needs 20, 10 contexts at alpha' = 0.25, 0.5"
        in found.verdict
    )
    assert found.verdict.count("fewer with every larger value: holds") == 2
    assert found.verdict.count("contexts ~ (alpha')^-1.00 [-1.00, -1.00], claimed -1") == 2
    exponents = [row.value for row in found.rows if row.name.endswith("in the contexts")]
    assert exponents == pytest.approx([-1, -1])
