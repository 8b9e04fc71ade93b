"""Figure 6.4, where learners and methods answer the same prompts, and textbook methods."""

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.svm import SVC
from torch import Tensor

from graphtheory.papers.icl import figures_methods
from graphtheory.papers.icl.data import all_tasks, training_tasks, uncovered
from graphtheory.papers.icl.figures import Errors
from graphtheory.papers.icl.figures_methods import FIGURES, context_predictions, errors
from graphtheory.papers.icl.in_context import BASELINES as TEXTBOOK
from graphtheory.papers.icl.in_context import GradientDescent, baseline
from graphtheory.papers.icl.prompts import Linear, SparseLinear, TwoLayer
from graphtheory.papers.icl.training import Learner, PromptTest

SMALL = Learner(steps=2, batch_size=4, width=6, length=3)
TESTS = (PromptTest(0.8, 4), PromptTest(0.8, 4, 1.2))
METHODS = tuple(figures_methods.Method("1-NN", test) for test in TESTS)
GRID = Errors((SMALL, *METHODS), TESTS, prompts=30, seeds=2, first=5)


def test_learners_and_methods_answer_the_same_and_no_number_is_an_error(monkeypatch) -> None:
    rows = GRID.measure(errors)
    assert [r["method"] for r in rows] == [SMALL.name] * 4 + ["1-NN"] * 4
    assert {r["seed"] for r in rows} == {5, 6}
    assert [r["s_1"] for r in rows[::2]] == [None, 1.2, None, 1.2]
    assert rows == GRID.measure(errors)
    assert max(r["error"] for r in rows if r["method"] == "1-NN") < 0.5
    lost = lambda name, x, y: torch.full((len(x),), torch.nan)  # noqa: E731
    monkeypatch.setattr(figures_methods, "context_predictions", lost)
    assert [r["error"] for r in errors(GRID, figures_methods.Method("1-NN", TESTS[0]))] == [1, 1]


def test_differences_are_paired_by_seed() -> None:
    grid = replace(figures_methods.compared(0.6, (5, 40), ("1-NN", "3-NN"), SMALL), seeds=3)
    wrong = {SMALL.name: 0.1, "1-NN": 0.2, "3-NN": 0.0}
    rows = [
        {"method": name, "seed": seed, "error": wrong[name] + 0.1 * seed + 0.001 * seed * seed}
        | test.facts
        for name, test, seed in product(wrong, grid.tests, range(3))
    ]  # fmt: skip
    found = FIGURES[1].report(grid, rows)
    assert found.verdict.startswith("Claimed for ICL: the fewest errors. in domain: ICL - 3-NN, ")
    assert "+10.00 ± 0.00 points over 5 to 40 contexts" in found.verdict
    assert found.verdict.count("better than 1-NN, worse than 3-NN.") == 2
    lines = [line[:2] for line in found.table.rows[:2]]
    assert lines == [["in domain", figures_methods.ICL], ["in domain", "1-NN"]]


@pytest.mark.parametrize("name", figures_methods.BASELINES)
def test_two_clusters_are_told_apart(name: str, generator: torch.Generator) -> None:
    y = torch.randint(2, (12, 9), generator=generator) * 2.0 - 1
    y[1:, :8] = torch.tensor([1.0, -1.0]).repeat(4)
    y[0, :8], y[0, 8] = 1, -1  # one label alone, and the query is on the other side
    x = y[..., None] * torch.tensor([3.0, 0.0, -1.0])
    x = x + 0.3 * torch.randn(x.shape, generator=generator)
    found = context_predictions(name, x, y)
    assert torch.equal(found.sign()[1:], y[1:, -1])
    if name == "least squares":
        weight = np.linalg.lstsq(x[3, :-1].double().numpy(), y[3, :-1].double().numpy(), rcond=None)
        assert float(found[3]) == pytest.approx(float(x[3, -1].double().numpy() @ weight[0]))
    else:
        assert found[0] == 1


def test_each_query_is_answered_from_its_own_contexts(generator: torch.Generator) -> None:
    x = torch.randn(5, 8, 3, generator=generator)
    y = torch.randint(2, (5, 7), generator=generator) * 2.0 - 1
    found = context_predictions("RBF SVM", x, y)
    for p in range(5):
        own = SVC().fit(x[p, :-1].double(), y[p]).predict(x[p, -1:].double())
        assert found[p] == own[0]


def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match="name: got '2-NN', expected one of logistic regression"):
        context_predictions("2-NN", torch.zeros(1, 3, 2), torch.zeros(1, 2))
    with pytest.raises(ValueError, match="x: shapes"):
        context_predictions("1-NN", torch.zeros(1, 3, 2), torch.zeros(2, 2))


def test_training_sets_of_every_size_and_tests_on_unseen_tasks(generator: torch.Generator) -> None:
    every, cycle = all_tasks(4), set(map(tuple, training_tasks(4).tolist()))
    for count in (2, 4, 7):
        ids = figures_methods.chosen_tasks(4, count, generator)
        drawn = set(map(tuple, every[ids].tolist()))
        assert len(drawn) == count
        assert drawn <= cycle if count <= 4 else drawn > cycle
    assert not uncovered(every[figures_methods.chosen_tasks(4, 4, generator)], 4)
    draws = [figures_methods.chosen_tasks(4, 2, generator) for _ in range(20)]
    assert len({tuple(draw.tolist()) for draw in draws}) > 3
    settings = {"prompts": 40, "seeds": 2, "first": 4}
    learner = Learner(steps=4, batch_size=6, width=8, length=4)
    grid = figures_methods.TaskCounts((3,), (-1, 0), learner, PromptTest(0.8, 5), **settings)
    rows = grid.measure(figures_methods.unseen_errors)
    assert [(r["tasks"], r["seed"]) for r in rows] == [(2, 4), (2, 5), (3, 4), (3, 5)]
    assert [r["covered"] for r in rows] == [False, False, True, True]
    left = figures_methods.others(torch.tensor([[0, 2], [1, 4]]), 6)
    assert left.tolist() == [[1, 3, 4, 5], [0, 2, 3, 5]]
    drawn = figures_methods.draws_from(left)(50, torch.Generator().manual_seed(0)).view(2, 50)
    assert set(drawn[0].tolist()) == {1, 3, 4, 5} and set(drawn[1].tolist()) == {0, 2, 3, 5}


def test_where_the_error_falls() -> None:
    grid = replace(FIGURES[2].grid, seeds=3)

    def verdict(*errors: float) -> str:
        rows = [
            {"relevant": 4, "tasks": tasks, "error": error + spread}
            for tasks, error in zip((2, 3, 4, 5), errors, strict=True)
            for spread in (-0.0005, 0.0, 0.0005)
        ]
        return FIGURES[2].report(grid, rows).verdict

    told = "at least 20 % with fewer tasks, 0.1 % with M1, at most 0.4 % from there on: holds."
    assert verdict(0.3, 0.2, 0.001, 0.004) == f"M1 = 4: {told}"
    for wrong in ((0.3, 0.2, 0.001, 0.02), (0.3, 0.005, 0.001, 0.004)):
        assert verdict(*wrong).endswith("not found.")


def squared_errors(method: object, family: Any, noise: float = 0.0) -> Tensor:
    """Mean squared error by place."""
    draw = torch.Generator().manual_seed(0)
    prompts = family.prompts(20, 12, 4, draw)
    y = prompts.y + noise * torch.randn(prompts.y.shape, generator=draw)
    return (baseline(method, prompts.x, y) - prompts.y).square().mean(0)  # type: ignore[arg-type]


def test_every_method_sees_the_examples_before_a_place_alone() -> None:
    draw = np.random.default_rng(0)
    x, y = draw.normal(size=(2, 6, 3)), draw.normal(size=(2, 6))
    changed = y.copy()
    changed[:, 3] += 1
    for name in TEXTBOOK:
        before, after = baseline(name, x, y), baseline(name, x, changed)
        assert torch.equal(before[:, :4], after[:, :4]) and not before[:, 0].any()
        assert not torch.equal(before[:, 4:], after[:, 4:]), name


def test_each_method_is_best_where_it_belongs() -> None:
    exact = squared_errors("least squares", Linear())
    assert exact[4:].max() < 1e-9 < exact[3]  # from as many examples as dimensions on
    ridge, plain = (
        squared_errors(name, Linear(), noise=1.0) for name in ("ridge", "least squares")
    )
    assert ridge[4] < plain[4]
    lasso, plain = (squared_errors(name, SparseLinear(1)) for name in ("lasso", "least squares"))
    assert lasso[3] < plain[3]
    assert squared_errors(GradientDescent(500), Linear())[11] < 1e-2
    descent, mean = (squared_errors(name, Linear()) for name in ("gradient descent", "averaging"))
    assert descent[11] < mean[11]


def test_a_network_learns_a_network_from_examples() -> None:
    prompts = TwoLayer().prompts(8, 102, 4, torch.Generator().manual_seed(0))
    x, y = prompts.x.double().numpy(), prompts.y.double().numpy()
    found = {
        name: np.mean([
            (TEXTBOOK[name](own[:100], told[:100], own[100]) - told[100]) ** 2
            for own, told in zip(x, y, strict=True)
        ])
        for name in ("two-layer network", "least squares")
    }  # fmt: skip
    assert found["two-layer network"] < found["least squares"] / 3


def test_names_and_shapes_are_checked() -> None:
    with pytest.raises(ValueError, match="method: got 'least', expected one of least squares"):
        baseline("least", np.zeros((1, 2, 2)), np.zeros((1, 2)))
    with pytest.raises(ValueError, match=r"x, y: shapes \(1, 2, 2\) and \(1, 3\)"):
        baseline("ridge", np.zeros((1, 2, 2)), np.zeros((1, 3)))
    with pytest.raises(ValueError, match=r"rate in \(0, 2\)"):
        GradientDescent(rate=2.0)
