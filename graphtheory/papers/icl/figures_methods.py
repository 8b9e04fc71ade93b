"""Figures 6.4 and E.2: in-context learning beside other methods, and over training tasks."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

import numpy as np
import torch
from scipy.stats import sem
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import SVC
from torch import Generator, Tensor

from graphtheory.lab.bench.rows import percent_spread
from graphtheory.papers.figure import Figure, Verdict, small, verdict_of
from graphtheory.papers.grid import Grid, Measured, axis
from graphtheory.papers.icl import figures, training
from graphtheory.papers.icl.data import all_tasks, training_tasks, uncovered
from graphtheory.papers.icl.figures import LARGEST_SUM, LEARNER, SMALL, TEST_OF_E, Errors, percent
from graphtheory.papers.icl.picture import prompt_errors
from graphtheory.papers.icl.training import Choose, Learner, PromptTest
from graphtheory.papers.pictures import picture_of
from graphtheory.papers.pivot import Measurements, Pivot, Shown, groups
from graphtheory.patterns.draw import generator_of

LEAST_SQUARES = "least squares"
_MAKE: dict[str, Callable[[int], Any]] = {
    "logistic regression": lambda n: LogisticRegression(max_iter=1000),
    "linear SVM": lambda n: SVC(kernel="linear"),
    "RBF SVM": lambda n: SVC(kernel="rbf"),
    "1-NN": lambda n: KNeighborsClassifier(1),
    "3-NN": lambda n: KNeighborsClassifier(min(3, n)),
}
BASELINES = (*_MAKE, LEAST_SQUARES)
"""Methods, with scikit-learn's own settings; least squares takes the shortest solution."""


def context_predictions(name: str, x: Tensor, y: Tensor) -> Tensor:
    """The answer of one of `BASELINES` to each query, from that prompt's contexts alone.

    Inputs are [P, l + 1, d_x], the query last, labels +1 or -1 of the contexts [P, l] or more
    columns, which are not read. Where all contexts have one label, that is the answer; of least
    squares it is any number, whose sign is the answer, [P].

    Source: Li (2024), figure 6.4, but for least squares.
    """
    if name not in BASELINES:
        raise ValueError(f"name: got {name!r}, expected one of {', '.join(BASELINES)}")
    if x.dim() != 3 or x.size(1) < 2 or y.shape[:1] != x.shape[:1] or y.size(1) < x.size(1) - 1:
        raise ValueError(
            f"x: shapes {tuple(x.shape)} and {tuple(y.shape)} of y, expected [P, l + 1, d_x] and "
            "[P, l]"
        )
    inputs, query = x[:, :-1].double(), x[:, -1].double()
    label = y[:, : inputs.size(1)].double()
    if name == LEAST_SQUARES:
        weight = torch.linalg.pinv(inputs) @ label[..., None]
        return (query[:, None] @ weight).flatten().float()
    found = []
    for own, told, asked in zip(inputs.numpy(), label.numpy(), query.numpy(), strict=True):
        if len(np.unique(told)) > 1:
            told = _MAKE[name](len(told)).fit(own, told).predict(asked[None])
        found.append(float(told[0]))
    return torch.tensor(found, dtype=torch.float32)


ICL = "ICL"


@dataclass(frozen=True)
class Method:
    """A textbook method on the prompts of one test."""

    method: str  # one of `BASELINES`
    test: PromptTest  # of these prompts alone

    @property
    def name(self) -> str:
        """The name in progress messages."""
        test = self.test
        return f"{self.method}, alpha' = {test.alpha:g}, {test.length} contexts, {test.domain}"


def errors(grid: Errors, learner: Learner | Method) -> list[Measured]:
    """Errors of a learner in all tests, or of a method in its own, on the learner's prompts."""
    if not isinstance(learner, Method):
        return figures.errors(grid, learner)
    test, wrong = learner.test, torch.zeros(grid.seeds)
    source = training.world(grid.learners[0].relevant, grid.first).test(test)
    for prompts, _ in training.prompts_of(source, grid.seeds, grid.prompts, test.seed(grid.first)):
        answers = context_predictions(learner.method, prompts.x, prompts.y[:, :-1])
        wrong += (~(answers * prompts.answer > 0)).view(grid.seeds, -1).sum(1)
    return [
        {"method": learner.method, "seed": seed, "error": float(count) / grid.prompts} | test.facts
        for seed, count in enumerate(wrong, grid.first)
    ]


def named(grid: Errors, measured: Measurements) -> list[Measured]:
    """The measurements domain by domain, those of the learner under the name ICL."""
    icl = grid.learners[0].name
    renamed = [one | {"method": ICL} if one["method"] == icl else one for one in measured]
    return sorted(renamed, key=lambda one: one["domain"])


def _show(grid: Errors, measured: Measurements) -> Shown:
    return Pivot(
        f"test error %, alpha' = {grid.tests[0].alpha:g}", {"error": "test error"},
        {"method": "method", "domain": "domain"}, "length",
        heads=("", "method"), begin=lambda one: [one["domain"], one["method"]], words=2,
        column="{} contexts", cell=percent_spread,
        note=f"Mean ± standard deviation over seeds, {grid.prompts} prompts each, the same for "
        "every method.",
    )(grid, named(grid, measured))  # fmt: skip


def beside_the_others(grid: Errors, measured: Measurements) -> Verdict:
    """ICL against each method in each domain: mean over the lengths, paired by seed."""
    claim = "no clear advantage" if grid.tests[0].alpha > 0.7 else "the fewest errors"
    lengths = sorted({test.length for test in grid.tests})
    told = []
    for (domain,), mine in groups(named(grid, measured), "domain").items():
        by_seed = {
            name: [fmean(r["error"] for r in own) for _, own in sorted(groups(of, "seed").items())]
            for (name,), of in groups(mine, "method").items()
        }
        icl = by_seed.pop(ICL)
        gaps = {
            name: [a - b for a, b in zip(icl, errors, strict=True)]
            for name, errors in by_seed.items()
        }
        mean = {name: fmean(gap) for name, gap in gaps.items()}
        alone = len(icl) < 2  # one seed has no standard error
        half = {n: math.inf if alone else 2 * float(sem(gap)) for n, gap in gaps.items()}
        ahead = ", ".join(name for name in gaps if mean[name] + half[name] < 0)
        behind = ", ".join(name for name in gaps if mean[name] - half[name] > 0)
        best = max(mean, key=mean.__getitem__)
        told.append(
            f"{domain}: ICL - {best}, the best other, {100 * mean[best]:+.2f} ± "
            f"{50 * half[best]:.2f} points over {lengths[0]} to {lengths[-1]} contexts; beyond two "
            f"standard errors better than {ahead or 'none'}, worse than {behind or 'none'}."
        )
    return Verdict(f"Claimed for ICL: {claim}. {' '.join(told)}")


def _picture(grid: Errors, measured: Measurements, title: str) -> Any:
    return prompt_errors(
        named(grid, measured), panel="{domain}", series="{method}", at="length", log=True,
        xlabel="contexts", title=f"{title}, alpha' = {grid.tests[0].alpha:g}",
    )  # fmt: skip


def domains(alphas: tuple[float, ...], lengths: tuple[int, ...]) -> tuple[PromptTest, ...]:
    """Tests in and out of the domain, for each alpha' and length."""
    return tuple(
        PromptTest(alpha, length, s_1)
        for s_1 in (None, LARGEST_SUM)
        for alpha in alphas
        for length in lengths
    )


def compared(
    alpha: float, lengths: tuple[int, ...], methods: tuple[str, ...], learner: Learner = LEARNER
) -> Errors:
    """The learner and the methods in and out of the domain."""
    tests = domains((alpha,), lengths)
    fitted = (Method(name, test) for test in tests for name in methods)
    return Errors((learner, *fitted), tests, prompts=200)


def _quick(grid: Errors) -> Errors:
    learner = replace(grid.learners[0], steps=300)
    few = compared(grid.tests[0].alpha, _LENGTHS[::3], BASELINES[:3], learner)
    return replace(few, prompts=100, seeds=2, first=grid.first)


_LENGTHS = (5, 10, 15, 20, 30, 40)


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
    given = training.world(relevant, grid.first)._replace(tasks=every)
    generator = generator_of(grid.first, relevant, count)
    trained = torch.stack([chosen_tasks(relevant, count, generator) for _ in range(grid.seeds)])
    model = training.train(learner, given, grid.seeds, grid.first, choose=draws_from(trained))
    source = given.training(grid.test.alpha, grid.test.length)
    generator = Generator().manual_seed(grid.test.seed(grid.first))
    task = draws_from(others(trained, len(every)))(grid.prompts, generator)
    prompts = source.sample(grid.seeds * grid.prompts, generator, task=task)
    found = training.icl_predict(
        model, prompts.columns().unflatten(0, (grid.seeds, -1)), attention=False
    )
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
            f"{verdict_of(from_on < SMALL < below, grid.seeds)}."
        )
    return Verdict(" ".join(told))


_picture_tasks = picture_of(
    prompt_errors,
    lambda measured: [one | {"beyond": one["tasks"] - one["relevant"]} for one in measured],
    panel="M1 = {relevant}", series="unseen tasks", at="beyond", xlabel="training tasks - M1",
    marks=(100 * SMALL,),
)  # fmt: skip


FIGURES = (
    *(
        Figure(
            name, f"error beside methods fitted to each prompt, alpha' = {alpha:g}",
            compared(alpha, _LENGTHS, BASELINES), errors, _show, (beside_the_others,), _picture,
            _quick,
        )
        for name, alpha in (("fig-6-4a", 0.8), ("fig-6-4b", 0.6))
    ),
    Figure(
        "fig-e-2", "error on unseen tasks over the number of training tasks",
        TaskCounts((4, 6, 8), (-3, -2, -1, 0, 1, 3)), unseen_errors,
        Pivot(
            "test error % on unseen tasks", {"error": "test error"},
            {"relevant": "relevant", "tasks": "tasks"}, heads=("M1", "training tasks"), words=0,
            cell=percent_spread,
            note="Mean ± standard deviation over networks, each with tasks of its own.",
        ),
        (enough_tasks,), _picture_tasks,
        small(relevant=slice(2), beyond=(-1, 0), learner={"steps": 300}, prompts=500, seeds=2),
    ),
)  # fmt: skip
