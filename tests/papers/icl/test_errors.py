import math

import pytest
import torch

from graphtheory.papers.icl import errors as icl_errors
from graphtheory.papers.icl.errors import ErrorStudy, Exam
from graphtheory.papers.icl.training import Learner

SMALL = Learner(steps=2, batch_size=4, width=6, length=3)
TESTS = (Exam(0.8, 4), Exam(0.8, 4, 1.2))


def test_learners_and_methods_answer_the_same_prompts() -> None:
    study = ErrorStudy((SMALL,), TESTS, ("1-NN",), prompts=30, seeds=2, first=5)
    rows = study.run()
    assert [r["method"] for r in rows] == [SMALL.name] * 4 + ["1-NN"] * 4
    assert {r["seed"] for r in rows} == {5, 6}
    assert [r["s_1"] for r in rows[::2]] == [None, 1.2, None, 1.2]
    assert rows == ErrorStudy((SMALL,), TESTS, ("1-NN",), prompts=30, seeds=2, first=5).run()
    near = [r["error"] for r in rows if r["method"] == "1-NN"]
    assert max(near) < 0.5
    with pytest.raises(ValueError, match="none with"):
        icl_errors.matching(rows, method="2-NN")


def test_answers_that_are_no_numbers_are_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = lambda name, x, y: torch.full((len(x),), torch.nan)  # noqa: E731
    monkeypatch.setattr(icl_errors, "context_predictions", lost)
    study = ErrorStudy((SMALL,), TESTS[:1], ("1-NN",), prompts=30, seeds=2)
    assert [r["error"] for r in study.steps()[1].run()] == [1, 1]


def test_tests_have_prompts_of_their_own() -> None:
    every = [Exam(a, n, s) for a in (0.6, 0.8) for n in (4, 5) for s in (None, -0.6, 0.0, 1.0)]
    assert len({test.seed(0) for test in every}) == len(every)


def test_the_length_from_which_the_error_stays_below() -> None:
    curves = {0.5: [(5, 0.4), (10, 0.1), (20, 0.001)], 1.0: [(5, 0.01), (10, 0.2), (20, 0.01)],
              0.2: [(5, 0.4), (20, 0.06)]}  # fmt: skip
    rows = [
        {"alpha": alpha, "seed": 0, "length": length, "error": error}
        for alpha, curve in curves.items()
        for length, error in curve
    ]
    needed = icl_errors.needed_lengths(rows, 0.05)
    fall = math.log(0.1 / 0.05) / math.log(100)
    assert needed[0.5] == [pytest.approx(10 * 2**fall)]
    assert needed[1.0] == [pytest.approx(10 * 2 ** (math.log(4) / math.log(20)))]
    assert needed[0.2] == [math.inf]
    zero = [r | {"error": 0.0} for r in rows]
    assert icl_errors.needed_lengths(zero, 0.05)[0.5] == [5.0]


def test_the_power_of_alpha() -> None:
    law = icl_errors.length_law({0.2: [math.inf], 0.25: [40.0, 40.0], 0.5: [20.0], 1.0: [10.0]})
    assert law is not None and law.exponent == pytest.approx(-1)
    assert icl_errors.length_law({0.2: [math.inf], 0.5: [1.0]}) is None
