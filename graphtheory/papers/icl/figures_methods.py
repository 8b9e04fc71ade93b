"""Figure 6.4: the in-context learner beside textbook methods that are fitted to each prompt."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import fmean, stdev
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import SVC
from torch import Tensor

from graphtheory.lab.report.table import percent_spread
from graphtheory.papers.figure import Figure, Measurements, Shown, Verdict
from graphtheory.papers.grid import Measured
from graphtheory.papers.icl import figures
from graphtheory.papers.icl.figures import LARGEST_SUM, LEARNER, Errors
from graphtheory.papers.icl.picture import prompt_errors
from graphtheory.papers.icl.training import Learner
from graphtheory.papers.icl.world import PromptTest, prompts_of, world
from graphtheory.papers.pivot import Pivot, groups

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

    Raises:
        ValueError: If the name is unknown or shapes do not fit.

    Source: Li (2024), figure 6.4, but for least squares.

    Example:
        >>> x = torch.tensor([[[0.0], [1.0], [0.9]]])
        >>> context_predictions("1-NN", x, torch.tensor([[-1.0, 1.0]])).tolist()
        [1.0]
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
    prompts = zip(inputs.numpy(), label.numpy(), query.numpy(), strict=True)
    return torch.tensor([_answer(name, *prompt) for prompt in prompts], dtype=torch.float32)


def _answer(
    name: str, x: NDArray[np.float64], y: NDArray[np.float64], query: NDArray[np.float64]
) -> float:
    if len(np.unique(y)) == 1:
        return float(y[0])
    return float(_MAKE[name](len(y)).fit(x, y).predict(query[None])[0])


ICL = "ICL"


@dataclass(frozen=True)
class Method:
    """A textbook method on the prompts of one test."""

    method: str  # one of `BASELINES`
    test: PromptTest  # of these prompts alone

    @property
    def name(self) -> str:
        """In progress."""
        test = self.test
        return f"{self.method}, alpha' = {test.alpha:g}, {test.length} contexts, {test.domain}"


def errors(grid: Errors, learner: Learner | Method) -> list[Measured]:
    """Errors of a learner in all tests, or of a method in its own."""
    if isinstance(learner, Method):
        return fitted(grid, learner)
    return figures.errors(grid, learner)


def fitted(grid: Errors, learner: Method) -> list[Measured]:
    """Error of each seed; the prompts are those that the learner is asked."""
    test, wrong = learner.test, torch.zeros(grid.seeds)
    source = world(grid.learners[0].relevant, grid.first).test(test)
    for prompts, _ in prompts_of(source, grid.seeds, grid.prompts, test.seed(grid.first)):
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
        half = {name: 2 * _standard_error(gap) for name, gap in gaps.items()}
        ahead = ", ".join(name for name in gaps if mean[name] + half[name] < 0)
        behind = ", ".join(name for name in gaps if mean[name] - half[name] > 0)
        best = max(mean, key=mean.__getitem__)
        told.append(
            f"{domain}: ICL - {best}, the best other, {100 * mean[best]:+.2f} ± "
            f"{50 * half[best]:.2f} points over {lengths[0]} to {lengths[-1]} contexts; beyond two "
            f"standard errors better than {ahead or 'none'}, worse than {behind or 'none'}."
        )
    return Verdict(f"Claimed for ICL: {claim}. {' '.join(told)}")


def _standard_error(values: list[float]) -> float:
    return stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.inf


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
FIGURES = tuple(
    Figure(
        name, f"error beside methods fitted to each prompt, alpha' = {alpha:g}",
        compared(alpha, _LENGTHS, BASELINES), errors, _show, (beside_the_others,), _picture, _quick,
    )
    for name, alpha in (("fig-6-4a", 0.8), ("fig-6-4b", 0.6))
)  # fmt: skip
