"""Chapter 6 from the command line to its files, and what figure 6.3a says of errors."""

from dataclasses import fields, replace
from typing import Any

import pytest
import torch

from graphtheory.papers.figure import Figure
from graphtheory.papers.icl import (
    figures,
    figures_alpha,
    figures_mechanism,
    figures_methods,
    figures_pruning,
)
from graphtheory.papers.icl.figures_methods import BASELINES, Method
from graphtheory.papers.icl.gpt import GptLearner
from graphtheory.papers.icl.training import Learner
from tests.papers.conftest import Reproduced

MODULES = (
    figures, figures_alpha, figures_mechanism, figures_methods, figures_pruning,
)  # fmt: skip
BY_ID = {figure.id: figure for module in MODULES for figure in module.FIGURES}
TINY = Learner(steps=6, batch_size=4, width=12, length=4)


def tiny(grid: Any) -> Any:
    """The same with next to nothing to do."""

    def small(learner: Any) -> Any:
        if isinstance(learner, GptLearner):
            return replace(learner, depth=1, dim=8, steps=2, batch_size=4)
        return replace(TINY, delta=learner.delta)

    names = {field.name for field in fields(grid)}
    changes: dict[str, Any] = {"prompts": 20, "seeds": 2}
    if "learners" in names:
        tests = changes["tests"] = grid.tests[:: len(grid.tests) // 2 or 1]
        methods = [one for one in grid.learners if isinstance(one, Method)]
        few = [one for one in methods if one.test in tests and one.method in BASELINES[-2:]]
        learners = grid.learners[: 1 if methods else 2]
        changes["learners"] = (*map(small, learners), *few)
    else:
        changes["learner"] = TINY
    if "every" in names:
        changes["every"] = 3
    if "threshold" in names:
        changes["threshold"] = 0.9
    return replace(grid, **changes)


@pytest.mark.parametrize(
    "name", ["fig-6-2", "fig-6-3a", "fig-6-3a-gpt", "fig-6-4b", "fig-6-5b", "fig-e-1"]
)
def test_a_figure_prints_and_draws(name: str, reproduced: Reproduced) -> None:
    reproduced(name, tiny)


@pytest.mark.parametrize("figure", BY_ID.values(), ids=BY_ID)
def test_cells_differ_and_a_first_look_is_shorter(figure: Figure) -> None:
    grid, first = figure.grid, figure.settings(quick=True, first=7)
    keys = [repr(grid.key(cell)) for cell in grid.cells()]
    assert len(set(keys)) == len(keys)
    assert first.seeds == 2 and len(first.cells()) <= len(keys) and first.first == grid.first + 7


def test_verdicts_follow_the_errors() -> None:
    figure = BY_ID["fig-6-3a"]
    grid = replace(figure.grid, learners=figure.grid.learners[:1], seeds=3)

    def verdict(below: float, above: float, inside: float) -> str:
        rows = [
            {"method": TINY.name, "seed": seed,
             "error": inside if test.s_1 is None else above if test.s_1 >= 1 else below}
            | test.facts
            for test in grid.tests
            for seed in range(3)
        ]  # fmt: skip
        return figure.report(grid, rows).verdict

    assert verdict(0.05, 0.005, 0.001).endswith("holds.")
    for wrong in ((0.02, 0.005, 0.001), (0.05, 0.02, 0.001), (0.05, 0.005, 0.006)):
        assert verdict(*wrong).endswith("not found.")


def test_a_step_size_whose_loss_is_no_number_is_not_the_best() -> None:
    figure = BY_ID["steps-6-gpt"]
    first, second = (replace(figure.grid.learners[0], step_size=step) for step in (0.1, 0.2))
    grid = replace(figure.grid, learners=(first, second), seeds=1)
    rows = [
        {"method": learner.name, "error": 0.5, "hinge": hinge} | test.facts
        for learner, hinge in ((first, torch.nan), (second, 0.3))
        for test in grid.tests
    ]
    found = figure.report(grid, rows)
    assert found.verdict == f"Least loss on unseen tasks: {first.family}: 0.2."
    wanted = ["test hinge loss, in domain", "test error, in domain"]
    assert found.table.columns[1:3] == wanted
