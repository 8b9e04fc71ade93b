"""Figure 6.4: learners and methods answer the same prompts."""

from dataclasses import replace

import pytest
import torch

from graphtheory.papers.icl import figures_methods
from graphtheory.papers.icl.figures import Errors
from graphtheory.papers.icl.figures_methods import FIGURES, ICL, Method, compared, errors
from graphtheory.papers.icl.training import Learner
from graphtheory.papers.icl.world import PromptTest

SMALL = Learner(steps=2, batch_size=4, width=6, length=3)
TESTS = (PromptTest(0.8, 4), PromptTest(0.8, 4, 1.2))
GRID = Errors(
    (SMALL, *(Method("1-NN", test) for test in TESTS)), TESTS, prompts=30, seeds=2, first=5
)


def test_learners_and_methods_answer_the_same_prompts() -> None:
    rows = GRID.measure(errors)
    assert [r["method"] for r in rows] == [SMALL.name] * 4 + ["1-NN"] * 4
    assert {r["seed"] for r in rows} == {5, 6}
    assert [r["s_1"] for r in rows[::2]] == [None, 1.2, None, 1.2]
    assert rows == GRID.measure(errors)
    assert max(r["error"] for r in rows if r["method"] == "1-NN") < 0.5


def test_answers_that_are_no_numbers_are_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = lambda name, x, y: torch.full((len(x),), torch.nan)  # noqa: E731
    monkeypatch.setattr(figures_methods, "context_predictions", lost)
    assert [r["error"] for r in errors(GRID, Method("1-NN", TESTS[0]))] == [1, 1]


def test_differences_are_paired_by_seed() -> None:
    grid = replace(compared(0.6, (5, 40), ("1-NN", "3-NN"), SMALL), seeds=3)
    wrong = {SMALL.name: 0.1, "1-NN": 0.2, "3-NN": 0.0}
    rows = [
        {"method": name, "seed": seed, "error": wrong[name] + 0.1 * seed + 0.001 * seed * seed}
        | test.facts
        for name in wrong
        for test in grid.tests
        for seed in range(3)
    ]  # fmt: skip
    found = FIGURES[1].report(grid, rows)
    assert found.verdict.startswith("Claimed for ICL: the fewest errors. in domain: ICL - 3-NN, ")
    assert "+10.00 ± 0.00 points over 5 to 40 contexts" in found.verdict
    assert found.verdict.count("better than 1-NN, worse than 3-NN.") == 2
    assert [line[:2] for line in found.table.rows[:2]] == [
        ["in domain", ICL],
        ["in domain", "1-NN"],
    ]
