"""Figures 4.2, 4.3 and C.1: samples that are needed, and where training begins."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean, median
from typing import Any, NamedTuple

import torch
from torch import Tensor

from graphtheory.lab.bench.rows import Row, Table
from graphtheory.papers.claims import Claimed, Power, Trend, Turn
from graphtheory.papers.figure import Figure, Verdict, small
from graphtheory.papers.grid import Measured, axis
from graphtheory.papers.mixture import mixtures, training
from graphtheory.papers.mixture.mixtures import SHORT, STEPS, Mixtures
from graphtheory.papers.mixture.model import OneHidden, weight_error
from graphtheory.papers.mixture.tensor_init import TensorInit
from graphtheory.papers.mixture.training import Learner, Setting, Trial
from graphtheory.papers.pictures import log_axis, phase_diagram, picture_of, step_curves
from graphtheory.papers.pivot import Measurements, Shown, groups
from graphtheory.papers.shallow_trials import number
from graphtheory.papers.stats import Successes, boundaries, boundary, halves
from graphtheory.patterns.draw import generator_of

SUCCESS = 1e-3  # V_W
_WHAT = "examples at which half of the trials succeed"


@dataclass(frozen=True)
class Samples(Mixtures):
    """Several starts of each trial."""

    counts: tuple[int, ...] = axis("n", (500, 1000, 2000, 4000, 8000, 16_000))  # n
    starts: int = 20  # M


def spreads(grid: Samples, learner: Learner, value: float, n: int) -> list[Measured]:
    """V_W of each trial, and how far the mean of its starts is from W*.

    Where descent ends is found by Newton's method from its last step, so that V_W does not measure
    slowness; a start without a minimum nearby stays where descent left it.
    """
    trials = grid.draw(value, n)
    net = learner.run(learner.start(trials, grid.starts, grid.first), trials)
    net, _ = training.critical_point(net, trials)
    mean = net.W.mean(1, keepdim=True)
    spread = (net.W - mean).square().sum((2, 3)).mean(1).sqrt().detach()
    return [
        {"learner": learner.name, "value": value, "n": n, "seed": seed, "spread": float(v),
         "off": float(weight_error(m[0], trial.teacher))}
        for seed, v, m, trial in zip(grid.trial_seeds, spread, mean, trials, strict=True)
    ]  # fmt: skip


def successes(grid: Samples, measured: Measurements) -> dict[str, Successes]:
    """Learner -> the number of trials with V_W of at most `SUCCESS`, by value and n."""
    return {
        learner: Successes.counted(
            grid.places, grid.counts,
            [(grid.shown(row["value"]), row["n"]) for row in own if row["spread"] <= SUCCESS],
            grid.seeds,
        )
        for (learner,), own in groups(measured, "learner").items()
    }  # fmt: skip


def _show(claim: Claimed, grid: Samples, measured: Measurements) -> Shown:
    by = groups(measured, "learner", "value", "n")
    lines, rows = {}, []
    for name, succeeded in successes(grid, measured).items():
        half = zip(grid.places, halves(succeeded), strict=True)
        found, line = claim.find(succeeded), f"{name}, {claim.what}"
        lines[line] = ({place: number(n, ".4g") for place, n in half}, found)
        for (learner, value, n), cell in by.items():
            if learner == name:
                about = {grid.name: round(grid.shown(value), 6), "n": n}
                share = fmean(row["spread"] <= SUCCESS for row in cell)
                rows.append(Row.of("share of successes", share, "1", **about))
                for key, what in (("spread", "V_W"), ("off", "distance to W*")):
                    rows.append(Row.of(what, [row[key] for row in cell], "1", **about))
        rows += mixtures.found_rows(line, found)
    table = mixtures.found_table("examples that trials need", grid.name, grid.places, lines)
    return Shown(table, rows)


def _picture(claim: Claimed, grid: Samples, measured: Measurements, title: str) -> Any:
    by = successes(grid, measured)
    fitted = mixtures.laws(claim, {name: claim.find(found) for name, found in by.items()})
    return phase_diagram(by, fitted, xlabel=grid.name, ylabel="examples", title=title)


def _figure(figure: str, summary: str, grid: Samples, claimed: Callable[..., Claimed]) -> Figure:
    claim = claimed(what=_WHAT, letter=grid.name, read=successes)
    return Figure(
        figure, summary, grid, spreads, partial(_show, claim), (claim,), partial(_picture, claim),
        small(values=mixtures.ends, counts=slice(1, -1, 2), starts=5, seeds=4),
    )  # fmt: skip


TENSOR, PRINTED, NEAR, FAR = "tensor", "tensor as printed", "near W*", "N(0, 25)"


def starting_points(trial: Trial, radius: float, seed: int) -> dict[str, Tensor]:
    """W_0 of each start, [d, K]."""
    generator = generator_of(seed, trial.teacher.numel())
    neurons = trial.teacher.size(1)
    known = (trial.mixture, trial.x, trial.y, generator)
    return {
        TENSOR: TensorInit(neurons, third=True)(*known),
        PRINTED: TensorInit.printed(neurons)(*known),
        NEAR: training.near(trial.teacher, radius, 1, generator)[0],
        FAR: 5 * torch.randn(trial.teacher.shape, generator=generator).to(trial.teacher),
    }


def paths(grid: Mixtures, learner: Learner, value: float) -> list[Measured]:
    """Of each trial and start the relative errors to W*, and the distances to a minimum near it."""
    rows = []
    for seed, trial in zip(grid.trial_seeds, grid.draw(value, grid.examples), strict=True):
        named = starting_points(trial, learner.radius, seed)
        net = OneHidden(torch.stack(list(named.values()))[None])
        looks, weights = training.descend(learner, net, [trial])
        last = weights[-1, 0, list(named).index(NEAR)]
        minimum, ended = training.critical_point(OneHidden(last[None, None]), [trial])
        end = minimum.W.detach()[0, 0].to(trial.x)
        scale = float(trial.teacher.norm())
        for s, start in enumerate(named):
            path = weights[:, 0, s]
            rows.append(
                {"learner": learner.name, "value": value, "n": grid.examples, "seed": seed,
                 "start": start, "ended": bool(ended),
                 "error": (weight_error(path, trial.teacher) / scale).tolist()}
                | training.convergence(looks, weight_error(path, end).double() / scale)
            )  # fmt: skip
    return rows


def _show_starts(grid: Mixtures, measured: Measurements) -> Shown:
    lines, rows = [], []
    for (value, start), own in groups(measured, "value", "start").items():
        ended = [row for row in own if row["ended"]]
        parts = {
            "relative error of the start": [row["error"][0] for row in own],
            "relative error at the end": [row["error"][-1] for row in own],
            "relative distance from the minimum": [row["gap"][-1] for row in ended],
            "rate v": [row["rate"] for row in ended if not math.isnan(row["rate"])],
        }
        shown = [f"{median(of):.4f}" if of else "-" for of in parts.values()]
        lines.append([f"|Sigma| = {value:g}", start, *shown])
        rows += [Row.of(name, of, "1", start=start, sigma=value) for name, of in parts.items()
                 if of]  # fmt: skip
    table = Table(
        "relative error |W - W* P| / |W*|",
        ["mixture", "start", "before", "after", "from the minimum", "rate v"], lines, words=2,
        note="Claimed: 0.65 at the tensor start, which converges like a near one; N(0, 25) fails. "
        "The minimum is the one that Newton's method finds from the end of the near start, if any.",
    )  # fmt: skip
    return Shown(table, rows)


_picture_starts = picture_of(
    step_curves,
    lambda measured: [
        {"case": f"|Sigma| = {row['value']:g}", "series": row["start"], "step": step,
         "error": error}
        for row in measured
        for step, error in zip(row["steps"], row["error"], strict=True)
    ],
    value="error", ylabel="relative error", xlabel=STEPS, axis=log_axis,
)  # fmt: skip


class Found(NamedTuple):
    """A number at one mixture: median, least and most over the seeds, beside what is claimed."""

    what: str
    spread: tuple[float, float, float]
    claimed: str
    holds: bool

    def __str__(self) -> str:
        if math.isnan(self.spread[0]):
            return f"{self.what} not defined, because the near start reaches no minimum: not found"
        middle, low, high = self.spread
        return (
            f"{self.what} {middle:.2f} [{low:.2f}, {high:.2f}], claimed {self.claimed}: "
            f"{'holds' if self.holds else 'not found'}"
        )


def found_of(measured: Measurements, value: float) -> list[Found]:
    """From the measurements of all starts at one value."""
    by = {(row["start"], row["seed"]): row for row in measured if row["value"] == value}
    seeds = sorted({seed for _, seed in by})
    rates = [  # without a minimum the distances are not to one
        (1 - by[TENSOR, s]["rate"]) / (1 - by[NEAR, s]["rate"])
        if by[NEAR, s]["ended"]
        else math.nan
        for s in seeds
    ]
    first = _spread([by[TENSOR, s]["error"][0] for s in seeds])
    speed, far = _spread(rates), _spread([by[FAR, s]["error"][-1] for s in seeds])
    return [
        Found("relative error of the tensor start", first, "0.65 or less", first[0] <= 0.65),
        Found("its 1 - v over that of the near start", speed, "1", 0.75 <= speed[0] <= 1.25),
        Found("relative error where N(0, 25) ends", far, "large", far[0] > 1),  # than all of W*
    ]


def _spread(values: Sequence[float]) -> tuple[float, float, float]:
    """Median, least, most; nan where no value is a number."""
    known = [v for v in values if not math.isnan(v)] or [math.nan]
    return median(known), min(known), max(known)


def tensor_start(grid: Mixtures, measured: Measurements) -> Verdict:
    """What was found at each mixture."""
    told = (
        f"|Sigma| = {value:g}: {'; '.join(map(str, found_of(measured, value)))}."
        for value in grid.values
    )
    return Verdict(" ".join(told))


# The source does not state the grids of n; figure 4.2 has four values of d, for it to take at most
# a quarter of an hour on one core.
# The source does not state Sigma: the identity leaves the tensors below their noise.
FIGURES = (
    _figure(
        "fig-4-2", "which trials end alike, over d and the number of examples",
        Samples(
            "d", SHORT, (5, 9, 15, 25), Setting(means=(1.0, 0.0)),
            counts=(1000, 2000, 4000, 8000, 16_000, 32_000),
        ),
        partial(Power, claimed=1.0, fit=boundary),
    ),
    _figure(
        "fig-4-3a", "which trials end alike, over a group's mean and the number of examples",
        Samples("mean 1", SHORT, (0.1, 0.5, 1.0, 1.5, 2.2)),
        partial(Trend, claimed="rises", sample=boundaries),
    ),
    _figure(
        "fig-4-3b", "which trials end alike, over a group's spread and the examples",
        Samples("sigma 1", SHORT, (0.01, 0.1, 1.0, 10.0, 100.0)),
        partial(Turn, sample=boundaries),
    ),
    Figure(
        "fig-c-1", "descent from a tensor initialization, a near start and a far one",
        Mixtures(
            "sigma", (Learner(4.0, 400),), (1.0, 4.0, 9.0),
            Setting((-0.3, 0.0), dim=50, neurons=2, size=0.1), 200_000, 3,
        ),
        paths, _show_starts, (tensor_start,), _picture_starts,
        small(values=slice(1, None), seeds=1, learners={"steps": 100}),
    ),
)  # fmt: skip
