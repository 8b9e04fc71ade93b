"""Figure 6.4: the in-context learner beside textbook methods that are fitted to each prompt."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from statistics import fmean, stdev
from typing import Any

import torch

from graphtheory.papers.figure import Figure, Measurements, Shown, Verdict
from graphtheory.papers.grid import Measured
from graphtheory.papers.icl import figures
from graphtheory.papers.icl.baselines import BASELINES, context_predictions
from graphtheory.papers.icl.figures import LARGEST_SUM, LEARNER, Errors
from graphtheory.papers.icl.picture import prompt_errors
from graphtheory.papers.icl.training import Learner
from graphtheory.papers.icl.world import PromptTest, prompts_of, world
from graphtheory.papers.pivot import Pivot, groups
from graphtheory.report.table import percent_spread

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
