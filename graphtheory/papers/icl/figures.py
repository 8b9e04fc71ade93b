"""Step sizes of chapter 6, and figure 6.3a: the error out of the domain over the sum S_1."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean
from typing import Any

from graphtheory.lab.bench.rows import mean_spread, percent_spread
from graphtheory.papers.figure import Figure, Verdict, changed, small, verdict_of
from graphtheory.papers.grid import Grid, Measured, axis
from graphtheory.papers.icl import training
from graphtheory.papers.icl.data import section_6_5, unmet_conditions
from graphtheory.papers.icl.picture import prompt_errors
from graphtheory.papers.icl.training import INSIDE, OUTSIDE, GptLearner, Learner, PromptTest, World
from graphtheory.papers.pictures import picture_of
from graphtheory.papers.pivot import Measurements, Pivot, Shown, groups, where
from graphtheory.papers.shallow import LINEAR, ROOT, ShallowAttention

LEARNER = Learner()
"""Printed: d_x = d_y = 30, beta = 3, K = 0.5, K' = 5, M1 = 6, M2 = 24, alpha = 0.8, l_tr = 20,
m_a = m_b = 60. Not printed: m, eta, B, T, l_ts, delta within (0, 0.2], the norm of q, here 1. Step
sizes are those of the least loss on unseen tasks in the domain in "steps-6", whose seeds no figure
has; delta = 0.1 is the middle of its range, and figure 6.3a has its end, 0.2, too."""
LARGEST_SUM = 1.28  # S_1 with a = b = 0.64
TEST_OF_E = PromptTest(0.6, 20)  # appendix E
UNSEEN, SMALL, LARGE = 0.005, 0.01, 0.03  # errors of the claims


@dataclass(frozen=True)
class Errors(Grid):
    """Learners on the same test prompts."""

    learners: tuple[Any, ...] = axis("learner")  # each has networks of its own
    tests: tuple[PromptTest, ...] = ()  # of each learner
    prompts: int = 2000  # test prompts of each network and test
    seeds: int = 10
    first: int = 0


def errors(grid: Errors, learner: Learner) -> list[Measured]:
    """Error and hinge loss of each test and network."""
    given = training.world(learner.relevant, grid.first)
    model = training.train(learner, given, grid.seeds, grid.first)
    return [
        {"method": learner.name} | test.facts | row
        for test in grid.tests
        for row in tested(grid, model, given, test)
    ]


def tested(grid: Any, model: ShallowAttention, given: World, test: PromptTest) -> list[Measured]:
    """Seed, error and hinge loss of each network on `grid.prompts` prompts of a test."""
    found = training.outcomes(model, given.test(test), grid.prompts, test.seed(grid.first))
    return [{"seed": seed} | outcome._asdict() for seed, outcome in enumerate(found, grid.first)]


@dataclass(frozen=True)
class GptErrors(Errors):
    """GPT-2-style learners on test prompts; every network has patterns and training of its own.

    Tests are at most as long as the prompts of training.
    """

    seeds: int = axis("seed", 3)


def gpt_errors(grid: GptErrors, learner: GptLearner, seed: int) -> list[Measured]:
    """Error and hinge loss of each test."""
    given = training.world(learner.relevant, seed, learner.blocks)
    model = training.train_gpt(learner, given, seed)
    return [
        {"method": learner.name, "seed": seed} | test.facts
        | training.gpt_outcome(
            model, learner, given.test(test), grid.prompts, test.seed(seed)
        )._asdict()
        for test in grid.tests
    ]  # fmt: skip


def quick(few: dict[str, Any] | None = None, **more: Any) -> Callable[[Any], Any]:
    """A quick form of two learners with few steps, prompts and networks, and of other changes."""
    learner = few or {"steps": 300}
    learners = partial(lambda to, old: changed(old[:2], to), learner)
    return small(**{"learners": learners, "prompts": 100, "seeds": 2} | more)


quick_gpt = quick({"dim": 32, "steps": 60})
_step_sizes = Pivot(
    "hinge loss and error of test prompts", {"hinge": "test hinge loss", "error": "test error"},
    {"method": "learner"}, "domain", cell=partial(mean_spread, digits=".4f"),
)  # fmt: skip


def best_step_sizes(grid: Errors, measured: Measurements) -> Verdict:
    """The step size of least loss in the domain; a loss that is not finite is never least."""
    losses: dict[str, dict[float, float]] = {}
    for learner in grid.learners:
        mine = where(measured, method=learner.name, domain=INSIDE)
        loss = fmean(one["hinge"] for one in mine)
        finite = loss if math.isfinite(loss) else math.inf
        losses.setdefault(learner.family, {})[learner.step_size] = finite
    best = (f"{family}: {min(of, key=of.__getitem__):g}" for family, of in losses.items())
    return Verdict(f"Least loss on unseen tasks: {'; '.join(best)}.")


def _sums(grid: Errors, measured: Measurements) -> Shown:
    named = [one | {"s_1": INSIDE} if one["s_1"] is None else one for one in measured]
    return Pivot(
        "test error % over S_1", {"error": "test error"}, {"method": "learner"}, "s_1",
        heads=("S_1",), cell=percent_spread, turned=True,
        note=f"Mean ± standard deviation over networks, {grid.prompts} prompts each.",
    )(grid, named)  # fmt: skip


def sum_decides(grid: Errors, measured: Measurements) -> Verdict:
    """Figure 6.3a: the error is small where theorem 6.3.4 applies: for S_1 of at least 1."""
    told = []
    for (name,), mine in groups(measured, "method").items():
        error = {s_1: fmean(r["error"] for r in of) for (s_1,), of in groups(mine, "s_1").items()}
        inside = error.pop(None)
        below = {s_1: value for s_1, value in error.items() if unmet_conditions(section_6_5(s_1))}
        above = max(value for s_1, value in error.items() if s_1 not in below)
        largest, nearest = max(below.values()), max(below)
        holds = inside < UNSEEN and above < SMALL and largest >= LARGE
        told.append(
            f"{name}: {percent(inside)} % on unseen tasks (expected below {percent(UNSEEN)}), at "
            f"most {percent(above)} % for S_1 >= 1 (claimed below {percent(SMALL)}), up to "
            f"{percent(largest)} % below 1 (expected {percent(LARGE)} or more), "
            f"{percent(below[nearest])} % at {nearest:g}: {verdict_of(holds, grid.seeds)}."
        )
    return Verdict(" ".join(told))


def percent(share: float) -> str:
    """Three digits, without the sign."""
    return f"{100 * share:.3g}"


_picture = picture_of(
    prompt_errors, lambda measured: [one for one in measured if one["domain"] == OUTSIDE],
    panel="{domain}", series="{method}", at="s_1", xlabel="S_1 (dotted: 1)",
    marks=(100 * SMALL,), upright=1.0,
)  # fmt: skip


_GPT = GptLearner(steps=1000, step_size=3e-3)
"""Printed: 3 layers, 2 heads, U = 4. Not printed: all else; the step size is the one of the least
loss in the domain in "steps-6-gpt"."""
_NO_NORM = replace(_GPT, norm=False)
_ETAS = {LINEAR: (1.0, 2.0, 4.0, 8.0), ROOT: (0.1, 0.3, 1.0, 3.0)}
_BOTH = (PromptTest(0.8, 20), PromptTest(0.8, 20, LARGEST_SUM))
SUMS = tuple(
    PromptTest(0.8, 20, s_1)
    for s_1 in (None, -0.6, 0.0, 0.3, 0.6, 0.8, 0.9, 1.0, 1.1, 1.2, LARGEST_SUM)
)
"""Tests of figure 6.3a."""
FIGURES = (
    Figure(
        "steps-6", "step sizes for chapter 6, losses on seeds that no figure uses",
        Errors(
            tuple(
                replace(LEARNER, scale=scale, delta=delta, step_size=eta)
                for scale, etas in _ETAS.items()
                for delta in (0.1, 0.2)
                for eta in etas
            ),
            _BOTH, seeds=5, first=1000,
        ),
        errors, _step_sizes, (best_step_sizes,), quick=quick(),
    ),
    Figure(
        "steps-6-gpt", "step sizes and tokens for figure 6.3a's GPT-2-style network, likewise",
        GptErrors(
            tuple(
                replace(learner, step_size=eta)
                for learner in (_GPT, _NO_NORM, replace(_GPT, tokens="in turn"))
                for eta in (3e-4, 1e-3, 3e-3)
            ),
            _BOTH, seeds=1, first=1000,
        ),
        gpt_errors, _step_sizes, (best_step_sizes,), quick=quick_gpt,
    ),
    Figure(
        "fig-6-3a", "error out of the domain, over the sum S_1",
        Errors(
            (
                LEARNER,
                replace(LEARNER, delta=0.2, step_size=8.0),
                replace(LEARNER, scale=ROOT, step_size=1.0),
            ),
            SUMS,
        ),
        errors, _sums, (sum_decides,), _picture, quick(),
    ),
    Figure(
        "fig-6-3a-gpt", "the same of a GPT-2-style network of three layers and two heads",
        GptErrors((_GPT, _NO_NORM), SUMS),
        gpt_errors, _sums, (sum_decides,), _picture, quick_gpt,
    ),
)  # fmt: skip
