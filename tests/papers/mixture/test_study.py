import math

import pytest
import torch

from graphtheory.papers.mixture import study as studies
from graphtheory.papers.mixture.bounds import weight_error
from graphtheory.papers.mixture.study import RateStudy, RiskStudy, SampleStudy, StartStudy
from graphtheory.papers.mixture.training import Learner, Setting, draw
from tests.bench.conftest import nearly

SHORT = (Learner(steps=6),)
SMALL = Setting(dim=2, neurons=1)


@pytest.mark.parametrize(
    ("axis", "value", "wanted"),
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
def test_one_letter_changes(axis: studies.Axis, value: float, wanted: dict[str, object]) -> None:
    made = studies.at(Setting(), axis, value)
    assert vars(made) == vars(Setting()) | wanted


def test_the_norm_of_a_turned_spread_is_what_was_asked() -> None:
    made = studies.at(Setting(turned=True), "sigma", 3.0)
    spread = draw(made, 3, 0, torch.float64).mixture.covariances
    assert float(torch.linalg.matrix_norm(spread[0], 2)) == pytest.approx(3)


def test_starts_that_end_alike_have_no_spread() -> None:
    learner = (Learner(steps=60),)
    study = SampleStudy("d", (2,), SMALL, learner, 2, examples=(40, 400), starts=3)
    rows = study.run()
    assert [(r["n"], r["seed"]) for r in rows] == [(40, 0), (40, 1), (400, 0), (400, 1)]
    assert all(r["spread"] < 1e-4 for r in rows)
    few = SampleStudy("d", (3,), Setting(neurons=3), learner, 3, 5, (60,), 3).run()
    assert max(r["spread"] for r in few) > 1e-3 and few[0]["seed"] == 5


def test_a_rate_is_that_of_a_straight_line() -> None:
    gap = 3 * torch.tensor([0.9**t for t in range(0, 200, 2)])
    found = studies._line(list(range(0, 200, 2)), gap.double())
    assert found["rate"] == pytest.approx(0.9, abs=1e-4)
    assert found["straight"] == pytest.approx(1, abs=1e-4)
    assert math.isnan(studies._line([0, 1], torch.tensor([1.0, 0.5]))["rate"])


def test_rows_of_rates() -> None:
    learner = (Learner(factor=8.0, steps=60),)
    rows = RateStudy("means", (0.1, 1.0), SMALL, learner, 2, examples=400).run()
    assert [(r["value"], r["seed"]) for r in rows] == [(0.1, 0), (0.1, 1), (1.0, 0), (1.0, 1)]
    for r in rows:
        assert 0 < r["rate"] < 1 and r["ended"] and r["gap"][-1] < r["gap"][0]
        assert r["straight"] > 0.99 and len(r["steps"]) == len(r["gap"]) == 61


def test_rows_of_risks() -> None:
    rows = RiskStudy("n", (40, 400), SMALL, SHORT, 1).run()
    assert [r["n"] for r in rows] == [40, 400]
    assert all(0 < r["excess"] < r["average"] and r["off"] > 0 for r in rows)


def test_rows_of_starts() -> None:
    study = StartStudy("sigma", (1.0,), Setting((-0.3, 0.0), dim=4, neurons=2), SHORT, 1,
                       examples=300)  # fmt: skip
    rows = study.run()
    assert [r["start"] for r in rows] == [
        studies.TENSOR, studies.PRINTED, studies.NEAR, studies.FAR,
    ]  # fmt: skip
    near, far = rows[2:]
    assert near["error"][0] < 0.1 < 1 < far["error"][0]
    assert near["steps"][-1] == 6 and len(near["error"]) == len(near["gap"]) == 7
    assert [r["error"] for r in study.run()] == nearly([r["error"] for r in rows])


def test_the_tensor_start_of_figure_c_1_is_nearer_than_the_claimed_error() -> None:
    """At a tenth of the dimension and of the examples."""
    trial = draw(Setting((-0.3, 0.0), (2.0, 2.0), dim=5, neurons=2, size=0.3), 20_000, 0)
    found = studies.starting_points(trial, 0.1, 0)
    error = {k: float(weight_error(w, trial.teacher) / trial.teacher.norm())
             for k, w in found.items()}  # fmt: skip
    assert error[studies.TENSOR] < 0.65 < error[studies.PRINTED]
