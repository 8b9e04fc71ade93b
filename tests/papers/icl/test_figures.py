"""What figure 6.3a and the search of step sizes say of errors."""

from dataclasses import replace

import torch

from graphtheory.papers.icl.figures import FIGURES
from graphtheory.papers.icl.training import Learner

BY_ID = {figure.id: figure for figure in FIGURES}
TINY = Learner(steps=6, batch_size=4, width=12, length=4)


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
