"""Figure E.2: the error on unseen tasks over the number of training tasks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

import torch
from torch import Generator, Tensor

from graphtheory.lab.report.table import percent_spread
from graphtheory.papers.figure import Figure, Measurements, Verdict, became
from graphtheory.papers.grid import Grid, Measured, axis
from graphtheory.papers.icl.figures import LEARNER, SMALL, TEST_OF_E, percent
from graphtheory.papers.icl.model import icl_predict
from graphtheory.papers.icl.picture import prompt_errors
from graphtheory.papers.icl.tasks import all_tasks, training_tasks, uncovered
from graphtheory.papers.icl.training import Choose, Learner, train
from graphtheory.papers.icl.world import PromptTest, world
from graphtheory.papers.pivot import Pivot, groups
from graphtheory.patterns.draw import derive


@dataclass(frozen=True)
class TaskCounts(Grid):
    """Numbers of training tasks; every network has a draw of its own.

    Up to M1 tasks are a random part of those of section 6.5 with U = 1; more are these and random
    others.
    """

    relevant: tuple[int, ...] = axis("relevant")  # M1
    beyond: tuple[int, ...] = axis("beyond")  # numbers of tasks beyond M1, such as -1 and 2
    learner: Learner = LEARNER  # all else of the training
    # of tasks that the network was not trained on; its S_1 is not used
    test: PromptTest = TEST_OF_E
    prompts: int = 2000  # test prompts of each network
    seeds: int = 10
    first: int = 0


def unseen_errors(grid: TaskCounts, relevant: int, beyond: int) -> list[Measured]:
    """Error of each network on the tasks that it was not trained on."""
    learner, count = replace(grid.learner, relevant=relevant), relevant + beyond
    every = all_tasks(relevant)
    given = world(relevant, grid.first)._replace(tasks=every)
    generator = Generator().manual_seed(derive(grid.first, relevant, count))
    trained = torch.stack([chosen_tasks(relevant, count, generator) for _ in range(grid.seeds)])
    model = train(learner, given, grid.seeds, grid.first, choose=draws_from(trained))
    source = given.training(grid.test.alpha, grid.test.length)
    generator = Generator().manual_seed(grid.test.seed(grid.first))
    task = draws_from(others(trained, len(every)))(grid.prompts, generator)
    prompts = source.sample(grid.seeds * grid.prompts, generator, task=task)
    found = icl_predict(model, prompts.columns().unflatten(0, (grid.seeds, -1)), attention=False)
    answer = prompts.answer.view(grid.seeds, -1)
    hinge = (1 - answer * found.value).clamp(min=0).mean(1).tolist()
    error = found.wrong(answer).float().mean(1).tolist()
    return [
        {
            "relevant": relevant, "tasks": count, "seed": grid.first + t, "error": error[t],
            "hinge": hinge[t], "covered": not uncovered(every[trained[t]], relevant),
        }
        for t in range(grid.seeds)
    ]  # fmt: skip


def chosen_tasks(relevant: int, count: int, generator: Generator) -> Tensor:
    """Ids in `all_tasks` of a training set of that size, int64 [count]; see `TaskCounts`."""
    every, cycle = all_tasks(relevant), training_tasks(relevant)
    code = every[:, 0] * relevant + every[:, 1]
    first = torch.searchsorted(code, cycle[:, 0] * relevant + cycle[:, 1])
    if count <= relevant:
        return first[torch.randperm(relevant, generator=generator)[:count]]
    rest = others(first[None], len(every))[0]
    more = rest[torch.randperm(len(rest), generator=generator)[: count - relevant]]
    return torch.cat([first, more])


def others(chosen: Tensor, count: int) -> Tensor:
    """The ids below `count` that are not in each row [T, U] of different ids: [T, count - U]."""
    left = torch.ones(len(chosen), count, dtype=torch.bool).scatter(1, chosen, False)
    return left.nonzero()[:, 1].view(len(chosen), -1)


def draws_from(choices: Tensor) -> Choose:
    """Draws the tasks of each network's prompts evenly from its row [T, U]."""

    def choose(each: int, generator: Generator) -> Tensor:
        place = torch.randint(choices.size(1), (len(choices), each), generator=generator)
        return choices.gather(1, place).flatten()

    return choose


def enough_tasks(grid: TaskCounts, measured: Measurements) -> Verdict:
    """The error is small from M1 tasks on, and not with fewer."""
    told = []
    for (m_1,), mine in groups(measured, "relevant").items():
        mean = {
            tasks: fmean(one["error"] for one in of)
            for (tasks,), of in groups(mine, "tasks").items()
        }
        below = min(error for tasks, error in mean.items() if tasks < m_1)
        from_on = max(error for tasks, error in mean.items() if tasks >= m_1)
        told.append(
            f"M1 = {m_1}: at least {percent(below)} % with fewer tasks, {percent(mean[m_1])} % "
            f"with M1, at most {percent(from_on)} % from there on: "
            f"{became(from_on < SMALL < below, grid.seeds)}."
        )
    return Verdict(" ".join(told))


def _picture(grid: TaskCounts, measured: Measurements, title: str) -> Any:
    return prompt_errors(
        [one | {"beyond": one["tasks"] - one["relevant"]} for one in measured],
        panel="M1 = {relevant}", series="unseen tasks", at="beyond",
        xlabel="training tasks - M1", title=title, marks=(100 * SMALL,),
    )  # fmt: skip


def _quick(grid: TaskCounts) -> TaskCounts:
    learner = replace(grid.learner, steps=300)
    return replace(
        grid, relevant=grid.relevant[:2], beyond=(-1, 0), learner=learner, prompts=500, seeds=2
    )


FIGURES = (
    Figure(
        "fig-e-2", "error on unseen tasks over the number of training tasks",
        TaskCounts((4, 6, 8), (-3, -2, -1, 0, 1, 3)), unseen_errors,
        Pivot(
            "test error % on unseen tasks", {"error": "test error"},
            {"relevant": "relevant", "tasks": "tasks"}, heads=("M1", "training tasks"), words=0,
            cell=percent_spread,
            note="Mean ± standard deviation over networks, each with tasks of its own.",
        ),
        (enough_tasks,), _picture, _quick,
    ),
)  # fmt: skip
