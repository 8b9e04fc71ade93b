"""Figure E.2: training tasks, unseen tasks, and the error between them."""

from dataclasses import replace

import torch

from graphtheory.papers.icl.data import all_tasks, training_tasks, uncovered
from graphtheory.papers.icl.figures_methods import (
    FIGURES,
    TaskCounts,
    chosen_tasks,
    draws_from,
    others,
    unseen_errors,
)
from graphtheory.papers.icl.training import Learner, PromptTest

SMALL = Learner(steps=4, batch_size=6, width=8, length=4)


def test_training_sets_of_every_size(generator: torch.Generator) -> None:
    every, cycle = all_tasks(4), set(map(tuple, training_tasks(4).tolist()))
    for count in (2, 4, 7):
        ids = chosen_tasks(4, count, generator)
        drawn = set(map(tuple, every[ids].tolist()))
        assert len(drawn) == count
        assert drawn <= cycle if count <= 4 else drawn > cycle
    assert not uncovered(every[chosen_tasks(4, 4, generator)], 4)
    assert len({tuple(chosen_tasks(4, 2, generator).tolist()) for _ in range(20)}) > 3


def test_networks_are_tested_on_tasks_they_have_not_seen() -> None:
    grid = TaskCounts((3,), (-1, 0), SMALL, PromptTest(0.8, 5), prompts=40, seeds=2, first=4)
    rows = grid.measure(unseen_errors)
    assert [(r["tasks"], r["seed"]) for r in rows] == [(2, 4), (2, 5), (3, 4), (3, 5)]
    assert [r["covered"] for r in rows] == [False, False, True, True]
    left = others(torch.tensor([[0, 2], [1, 4]]), 6)
    assert left.tolist() == [[1, 3, 4, 5], [0, 2, 3, 5]]
    drawn = draws_from(left)(50, torch.Generator().manual_seed(0)).view(2, 50)
    assert set(drawn[0].tolist()) == {1, 3, 4, 5} and set(drawn[1].tolist()) == {0, 2, 3, 5}


def test_where_the_error_falls() -> None:
    grid = replace(FIGURES[0].grid, seeds=3)

    def verdict(*errors: float) -> str:
        rows = [
            {"relevant": 4, "tasks": tasks, "error": error + spread}
            for tasks, error in zip((2, 3, 4, 5), errors, strict=True)
            for spread in (-0.0005, 0.0, 0.0005)
        ]
        return FIGURES[0].report(grid, rows).verdict

    assert verdict(0.3, 0.2, 0.001, 0.004) == (
        "M1 = 4: at least 20 % with fewer tasks, 0.1 % with M1, at most 0.4 % from there on: holds."
    )
    for wrong in ((0.3, 0.2, 0.001, 0.02), (0.3, 0.005, 0.001, 0.004)):
        assert verdict(*wrong).endswith("not found.")
