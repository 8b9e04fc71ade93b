"""Figures 4.4 to 4.7: the rate of descent, the distance to the teacher, and risks of the groups."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from graphtheory.papers.claims import Claimed, Power, Trend, Turn
from graphtheory.papers.figure import Claim, Figure, Verdict, small
from graphtheory.papers.grid import Measured
from graphtheory.papers.mixture import mixtures, training
from graphtheory.papers.mixture.mixtures import SHORT, STEPS, Counted, Mixtures
from graphtheory.papers.mixture.model import weight_error
from graphtheory.papers.mixture.training import Learner, Setting
from graphtheory.papers.pictures import error_curves, log_axis, step_curves
from graphtheory.papers.pivot import Measurements, groups


def rates(grid: Mixtures, learner: Learner, value: float) -> list[Measured]:
    """The distances of each trial to where descent ends, and the rate v at which they fall.

    In double precision, as the curves end near a critical point.
    """
    trials = grid.draw(value, grid.examples, torch.float64)
    net = learner.start(trials, 1, grid.first)
    looks, path = training.descend(learner, net, trials)
    end, ended = training.critical_point(net, trials)
    gap = (path - end.W).detach().flatten(3).norm(dim=3)[..., 0]
    return [
        {"learner": learner.name, "value": value, "n": grid.examples, "seed": seed,
         "ended": bool(ended[i, 0])} | training.convergence(looks, gap[:, i])
        for i, seed in enumerate(grid.trial_seeds)
    ]  # fmt: skip


def risks(grid: Mixtures, learner: Learner, value: float) -> list[Measured]:
    """Distance of each trial to W*, risks of the mixture and of group 2, and their excess.

    At the minimum that Newton's method finds from the last step, else at the last step.
    """
    n = int(value) if grid.letter == "n" else grid.examples
    trials = grid.draw(value, n)
    net = learner.run(learner.start(trials, 1, grid.first), trials)
    net, ended = training.critical_point(net, trials)
    rows = []
    for i, (seed, trial) in enumerate(zip(grid.trial_seeds, trials, strict=True)):
        weights = net.W.detach()[i, 0].to(trial.x)
        found = training.risks(weights, trial, seed)
        rows.append(
            {"learner": learner.name, "value": value, "n": n, "seed": seed,
             "off": float(weight_error(weights, trial.teacher)),
             "average": found.average, "minority": found.groups[1],
             "excess": found.excess, "excess minority": found.excess_groups[1],
             "ended": bool(ended[i, 0])}
        )  # fmt: skip
    return rows


def _straight(grid: Mixtures, measured: Measurements) -> Verdict:
    told = []
    for (learner,), own in groups(measured, "learner").items():
        fits = [row["straight"] for row in own if row["ended"] and not math.isnan(row["straight"])]
        told.append(
            f"{learner}: log distances are straight lines with R^2 of at least {min(fits):.3f}."
            if fits
            else f"{learner}: no curve is long enough for a line."
        )
    return Verdict(" ".join(told))


def _curves(grid: Mixtures, measured: Measurements, title: str) -> Any:
    curves = [
        {"case": learner, "step": step, "gap": max(gap / row["gap"][0], 1e-12),
         "series": f"{grid.name} = {grid.shown(row['value']):.3g}"}
        for (learner,), own in groups(measured, "learner").items()
        for row in Counted("rate").rows(grid, own)
        for step, gap in zip(row["steps"], row["gap"], strict=True)
    ]  # fmt: skip
    if not curves:
        return None
    return step_curves(
        curves, value="gap", ylabel="distance to the end", xlabel=STEPS, title=title, axis=log_axis
    )


_PANELS = {
    "cross-entropy": {"average": "mixture", "minority": "group 2"},
    "above the teacher's": {"excess": "mixture", "excess minority": "group 2"},
}


def _lines(grid: Mixtures, measured: Measurements, title: str) -> Any:
    lines = [
        {"series": name, "at": f"{value:.3g}", "panel": panel, "error": error}
        for panel, keys in _PANELS.items()
        for key, name in keys.items()
        for by in Counted(key, everywhere=True)(grid, measured).values()
        for value, of in by.items()
        for error in of
    ]
    return error_curves(lines, xlabel=grid.name, title=title, axis=None)


_quick = small(values=mixtures.ends, seeds=3)


def _figure(
    figure: str,
    summary: str,
    grid: Mixtures,
    claimed: Callable[..., Claimed],
    measures: Mapping[Counted, str],
    run: Callable[..., list[Measured]] = risks,
    picture: Callable[..., Any] | None = None,
    quick: Callable[[Mixtures], Mixtures] = _quick,
    more: tuple[Claim, ...] = (),
) -> Figure:
    claims = [claimed(what=what, letter=grid.name, read=read) for read, what in measures.items()]
    counts = partial(mixtures.counting, next(iter(measures)))
    return Figure(
        figure, summary, grid, run, partial(mixtures.show, claims), (*claims, *more, counts),
        picture or partial(mixtures.picture_of_laws, claims[0]), quick,
    )  # fmt: skip


_rates = partial(
    _figure, run=rates, more=(_straight,),
    quick=small(
        values=mixtures.ends, seeds=3, examples=10_000, learners={"steps": lambda steps: steps // 2}
    ),
)  # fmt: skip
_risks = partial(
    _figure,
    measures={
        Counted("average", everywhere=True): "risk",
        Counted("minority", everywhere=True): "risk of group 2",
        Counted("excess", everywhere=True): "risk above the teacher's",
        Counted("excess minority", everywhere=True): "the same of group 2",
    },
    picture=_lines,
)
_RATE = {Counted("rate"): "rate v"}
_TREND = partial(Trend, sample=mixtures.medians_of_differences)
_TURN = partial(Turn, sample=mixtures.medians_of_differences)
_BOTH = (Learner(steps=2000), Learner(1.0, 2000, fixed=True))
_TURNED, _MINOR = Setting(turned=True), Setting(means=(2.0, 0.0), weights=(0.8, 0.2))
_FRACTIONS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
# Unstated in the source and chosen here: the constant of the step size (6: below the inverse of the
# largest curvature everywhere), T, and the examples of figures 4.5a and 4.7. For figure 4.6b it
# prints the mean (mu_2 - 2) 1; here the mean moves away from 0. For each to take at most a quarter
# of an hour on one core, figures 4.4b and 4.5a have 8 trials.
FIGURES = (
    _rates(
        "fig-4-4a", "rate of gradient descent, over the norm of the means",
        Mixtures("means", _BOTH, (0.1, 0.5, 1.0, 1.5, 2.0), _TURNED, 10_000, 10),
        partial(_TREND, claimed="rises"), _RATE, picture=_curves,
    ),
    _rates(
        "fig-4-4b", "rate of gradient descent, over the spread of the groups",
        Mixtures("sigma", _BOTH, (0.1, 0.3, 1.0, 3.0, 10.0), _TURNED, 50_000, 8),
        _TURN, _RATE, picture=_curves,
    ),
    _rates(
        "fig-4-5a", "rate of gradient descent, over the number of neurons",
        Mixtures("K", _BOTH, (2, 3, 4, 5), examples=50_000, seeds=8),
        partial(Power, claimed=-2.0), {Counted("speed"): "1 - v"},
    ),
    _figure(
        "fig-4-5b", "distance to the teacher, over the number of examples",
        Mixtures(
            "n", SHORT, (2000, 4000, 8000, 16_000, 30_000, 60_000), Setting(deviations=(3.0, 3.0))
        ),
        partial(Power, claimed=0.5), {Counted("off"): "distance to W*"},
    ),
    _risks(
        "fig-4-6a", "risk of a minority and of all, over the spread of the minority",
        Mixtures(
            "sigma 2", SHORT, (0.01, 0.1, 0.5, 1.0, 4.0, 16.0, 64.0),
            replace(_MINOR, means=(2.0, -2.0)), 20_000,
        ),
        _TURN,
    ),
    _risks(
        "fig-4-6b", "risk of a minority and of all, over the mean of the minority",
        Mixtures("mean 2", SHORT, (0.0, -0.5, -1.0, -2.0, -3.0, -4.0), _MINOR, 20_000),
        partial(_TREND, claimed="rises"),
    ),
    _risks(
        "fig-4-7a", "risk of a minority and of all, over its fraction; it spreads less",
        Mixtures("lambda 2", SHORT, _FRACTIONS, Setting((0.0, 0.0), (10**0.5, 1.0)), 20_000),
        partial(_TREND, claimed="falls"),
    ),
    _risks(
        "fig-4-7b", "risk of a minority and of all, over its fraction; it spreads more",
        Mixtures("lambda 2", SHORT, _FRACTIONS, Setting((0.0, 0.0), (1.0, 10**0.5)), 20_000),
        partial(_TREND, claimed="rises"),
    ),
)  # fmt: skip
