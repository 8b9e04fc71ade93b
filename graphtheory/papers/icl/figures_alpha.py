"""Figures 6.3b and E.1: how many contexts and steps are needed, over alpha' or alpha."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from typing import Any

from graphtheory.lab.bench.rows import Table, percent_spread
from graphtheory.papers import claims
from graphtheory.papers.figure import Figure, Verdict, small
from graphtheory.papers.grid import Grid, Measured, axis
from graphtheory.papers.icl import figures
from graphtheory.papers.icl.figures import LARGEST_SUM, LEARNER, SUMS, TEST_OF_E, Errors, GptErrors
from graphtheory.papers.icl.figures_methods import domains
from graphtheory.papers.icl.picture import prompt_errors
from graphtheory.papers.icl.training import GptLearner, Learner, PromptTest, train, world
from graphtheory.papers.pictures import needed_picture, picture_of
from graphtheory.papers.pivot import Measurements, Pivot, Shown
from graphtheory.papers.shallow import ShallowAttention
from graphtheory.papers.stats import Exponent, regression_of

ENOUGH = 0.05  # figure 6.3b: with so few errors a length is long enough


_NEEDED = claims.Crossing("length", threshold=ENOUGH, setting="alpha", line="{domain}", stays=True)


def law(sizes: claims.Numbers) -> Exponent | None:
    """The power of alpha in the sizes, over the alphas at which every network gets there."""
    return regression_of({alpha: of for alpha, of in sizes.items() if max(of) < math.inf})


def fewer_contexts(grid: Errors, measured: Measurements) -> Verdict:
    """Figure 6.3b: a larger alpha' needs fewer contexts."""
    about = f"an error that stays below {figures.percent(ENOUGH)} % needs"
    by_domain = _NEEDED(grid, measured).items()
    told = [f"{name}: {about} " + claims.fewer(of, "contexts", "alpha'") for name, of in by_domain]
    return Verdict(". ".join(told) + ".")


def _over_contexts(measured: Measurements) -> Measurements:
    """Those of figure 6.3b, in the domain and at one S_1."""
    return [one for one in measured if one["s_1"] in (None, LARGEST_SUM)]


_domains_picture = partial(
    picture_of, prompt_errors, panel="{domain}", series="alpha' = {alpha:g}", at="length", log=True,
    xlabel="contexts", marks=(100 * ENOUGH,),
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One training of figure E.1."""

    alpha: float  # of training
    # l_tr of the first panel; None for a training of the second, tested on the way
    length: int | None = None

    @property
    def name(self) -> str:
        """The name in progress messages."""
        return f"alpha = {self.alpha:g}, {f'{self.length} contexts' if self.length else 'steps'}"


def trainings(alphas: Sequence[float], lengths: Sequence[int]) -> tuple[Case, ...]:
    """Every length at every alpha, and then a training that is tested on the way at every alpha."""
    short = (Case(alpha, length) for alpha in alphas for length in lengths)
    return (*short, *(Case(alpha) for alpha in alphas))


@dataclass(frozen=True)
class Growth(Grid):
    """Prompt lengths and steps of training."""

    cases: tuple[Case, ...] = axis("case")  # what differs between trainings
    learner: Learner = LEARNER  # all else of the training
    test: PromptTest = TEST_OF_E  # of all networks
    every: int = 5  # steps between two tests of the second panel
    threshold: float = 0.01  # test error that is to be passed
    prompts: int = 1000  # test prompts of each network and test
    seeds: int = 5
    first: int = 0


def growth(grid: Growth, case: Case) -> list[Measured]:
    """Error of each network, after training or at each of the tests on the way."""
    learner = replace(grid.learner, alpha=case.alpha, length=case.length or grid.learner.length)
    given, rows = world(learner.relevant, grid.first), list[Measured]()

    def look(model: ShallowAttention, about: Measured) -> list[Measured]:
        about |= {"alpha": case.alpha}
        return [about | row for row in figures.tested(grid, model, given, grid.test)]

    def watch(step: int, model: ShallowAttention) -> bool:
        if case.length or step % grid.every or not step:
            return False
        found = look(model, {"kind": "steps", "step": step})
        rows.extend(found)
        return all(row["error"] < grid.threshold / 4 for row in found)

    model = train(learner, given, grid.seeds, grid.first, watch)
    return look(model, {"kind": "length", "length": case.length}) if case.length else rows


_PANELS = {"contexts of a training prompt": ("length", -1.0), "steps of SGD": ("step", -0.667)}


def _sizes(grid: Growth, measured: Measurements) -> dict[str, dict[float, list[float]]]:
    out: dict[str, dict[float, list[float]]] = {}
    for name, (size, _) in _PANELS.items():
        read = replace(_NEEDED, size=size, threshold=grid.threshold, line=name)
        out |= read(grid, [one for one in measured if size in one])
    return out


def _show(grid: Growth, measured: Measurements) -> Shown:
    lines, rows, sizes = [], [], _sizes(grid, measured)
    for name, by_alpha in sizes.items():
        lines.append([name, *(claims.size_text(median(of)) for of in by_alpha.values())])
        for alpha, of in by_alpha.items():
            rows += claims.reached(of, f"{name}, share that gets there", name, {"alpha": alpha})
    alphas = next(iter(sizes.values()))
    table = Table(
        f"median until the test error is below {figures.percent(grid.threshold)} %",
        ["needed", *(f"alpha = {alpha:g}" for alpha in alphas)], lines,
    )  # fmt: skip
    return Shown(table, rows)


def _picture(grid: Growth, measured: Measurements, title: str) -> Any:
    sizes = _sizes(grid, measured)
    laws = {name: found.line(_PANELS[name][1]) for name, of in sizes.items() if (found := law(of))}
    return needed_picture(sizes, laws, xlabel="alpha of training", ylabel="needed", title=title)


_SHARES = (0.2, 0.4, 0.6, 0.8)
_LENGTHS = (3, 5, 8, 12, 18, 27, 40, 60)
_UP_TO_TRAINING = domains(_SHARES, (3, 5, 8, 12, 16, 20))
_WIDE = GptLearner(
    tokens="in turn", dim=256, every_context=True, step_size=3e-4, steps=20_000, batch_size=32
)
"""Printed: as in figure 6.3a. Not printed: all else; the step size is that of the least loss of
tokens in turn in "steps-6-gpt"; a step has a loss at 21 inputs of each of its prompts."""
_ALPHAS, _TRAINING = (0.2, 0.3, 0.45, 0.65, 1.0), (1, 2, 3, 5, 8, 12, 18)
FIGURES = (
    Figure(
        "fig-6-3b", "error over the number of contexts, for several alpha'",
        Errors((LEARNER,), domains(_SHARES, _LENGTHS)), figures.errors,
        Pivot(
            "test error % over the contexts", {"error": "test error"},
            {"domain": "domain", "alpha": "alpha"}, "length", heads=("", "alpha'"), words=2,
            cell=partial(percent_spread, digits=".1f"),
        ),
        (
            fewer_contexts,
            claims.Power(
                what="contexts", letter="alpha'", read=_NEEDED, claimed=-1, fit=law,
                rows=lambda domain, found: claims.exponent_rows(
                    "exponent of alpha' in the contexts", found, domain=domain
                ),
            ),
        ),
        _domains_picture(), figures.quick(),
    ),
    Figure(
        "fig-6-3-gpt", "figures 6.3a and 6.3b of one GPT-2-style network, trained for longer",
        GptErrors((_WIDE,), tuple(dict.fromkeys((*SUMS, *_UP_TO_TRAINING)))), figures.gpt_errors,
        Pivot(
            "test error %", {"error": "test error"},
            {"domain": "domain", "s_1": "s_1", "alpha": "alpha", "length": "length"},
            heads=("", "S_1", "alpha'", "contexts"), cell=partial(percent_spread, digits=".1f"),
            begin=lambda one: [
                one["domain"], *(f"{one[key]:g}" if one[key] is not None else ""
                                 for key in ("s_1", "alpha", "length")),
            ],
            note="Mean ± standard deviation over networks.",
        ),
        (
            lambda grid, measured: figures.sum_decides(
                grid, [o for o in measured if PromptTest(o["alpha"], o["length"], o["s_1"]) in SUMS]
            ),
            lambda grid, measured: fewer_contexts(grid, _over_contexts(measured)),
        ),
        _domains_picture(_over_contexts), figures.quick_gpt,
    ),
    Figure(
        "fig-e-1", "prompt length and steps that training needs, over alpha",
        Growth(trainings(_ALPHAS, _TRAINING)), growth, _show,
        (
            claims.Power(
                what="number", letter="alpha", read=_sizes, fit=law,
                claimed=tuple(claimed for _, claimed in _PANELS.values()),
                rows=lambda name, found: claims.exponent_rows(
                    f"exponent of alpha in {name}", found
                ),
            ),
        ),
        _picture,
        small(
            cases=trainings(_ALPHAS[2::2], _TRAINING[::2]), learner={"steps": 300}, every=10,
            prompts=300, seeds=2,
        ),
    ),
)  # fmt: skip
