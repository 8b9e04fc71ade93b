"""Figures 4.2 and 4.3."""

import math
from typing import Any

import pytest

from graphtheory.papers.mixture.figures_samples import (
    FAR,
    NEAR,
    PRINTED,
    TENSOR,
    Samples,
    found_of,
    paths,
    spreads,
    starting_points,
    successes,
)
from graphtheory.papers.mixture.mixtures import Mixtures
from graphtheory.papers.mixture.model import weight_error
from graphtheory.papers.mixture.training import Learner, Setting, draw
from tests.lab.bench.conftest import nearly
from tests.papers.mixture.conftest import row

LEARNERS = (Learner(steps=60),)


def test_success_is_a_small_spread_of_starts() -> None:
    small = Setting(dim=2, neurons=1)
    rows = Samples("d", LEARNERS, (2,), small, seeds=2, counts=(40, 400), starts=3).measure(spreads)
    assert [(r["n"], r["seed"]) for r in rows] == [(40, 0), (40, 1), (400, 0), (400, 1)]
    assert all(r["spread"] < 1e-4 for r in rows)
    grid = Samples("d", LEARNERS, (3,), Setting(neurons=3), 0, 3, 5, (60,), 3)
    few = grid.measure(spreads)
    assert max(r["spread"] for r in few) > 1e-3 and few[0]["seed"] == 5
    grid = Samples("d", LEARNERS, (2, 4), seeds=2, counts=(10, 20))
    rows = [
        row(d, seed, n=n, spread=spread)
        for d, n, spreads in ((2, 10, (0, 1)), (2, 20, (1e-3, 0)), (4, 10, (1, 1)), (4, 20, (1, 0)))
        for seed, spread in enumerate(spreads)
    ]
    assert successes(grid, rows)["a"].counts.tolist() == [[1, 2], [0, 1]]


SKEW = Setting((-0.3, 0.0), dim=4, neurons=2)


def test_rows_of_starts_and_the_error_of_the_tensor_start() -> None:
    grid = Mixtures("sigma", (Learner(steps=6),), (1.0,), SKEW, 300, 1)
    rows = grid.measure(paths)
    assert [r["start"] for r in rows] == [TENSOR, PRINTED, NEAR, FAR]
    near, far = rows[2:]
    assert near["error"][0] < 0.1 < 1 < far["error"][0]
    assert near["steps"][-1] == 6 and len(near["error"]) == len(near["gap"]) == 7
    assert [r["error"] for r in grid.measure(paths)] == nearly([r["error"] for r in rows])
    # At a tenth of the dimension and of the examples.
    trial = draw(Setting((-0.3, 0.0), (2.0, 2.0), dim=5, neurons=2, size=0.3), 20_000, 0)
    found = starting_points(trial, 0.1, 0)
    error = {k: float(weight_error(w, trial.teacher) / trial.teacher.norm())
             for k, w in found.items()}  # fmt: skip
    assert error[TENSOR] < 0.65 < error[PRINTED]


def test_what_the_starts_say() -> None:
    rows: list[dict[str, Any]] = [
        {"start": start, "seed": seed, "value": 4.0, "error": [first, last], "rate": rate,
         "ended": True}
        for seed, shift in enumerate((0.0, 0.02, 0.04))
        for start, first, last, rate in (
            (TENSOR, 0.58 + shift, 0.3, 0.99), (NEAR, 0.1, 0.1, 0.989), (FAR, 70.0, 60.0, 0.9999),
        )
    ]  # fmt: skip
    error, speed, far = found_of(rows, 4.0)
    assert error.spread == pytest.approx((0.6, 0.58, 0.62))
    assert speed.spread == pytest.approx((0.909,) * 3, abs=1e-3)
    assert far.spread[0] == 60 and error.holds and speed.holds and far.holds

    def holds(given: list[dict[str, Any]]) -> list[bool]:
        return [found.holds for found in found_of(given, 4.0)]

    slow = [r | {"rate": 0.999} if r["start"] == TENSOR else r for r in rows]
    assert holds(slow) == [True, False, True]
    nowhere = [r | {"ended": False} for r in rows]
    assert holds(nowhere) == [True, False, True]
    assert math.isnan(found_of(nowhere, 4.0)[1].spread[0])
    told = "not defined, because the near start reaches no minimum: not found"
    assert told in str(found_of(nowhere, 4.0)[1])
    lost = [r | {"rate": math.nan, "error": [1.0, 0.2]} for r in rows]
    assert holds(lost) == [False, False, False]
