"""Figures 4.2 and 4.3: from how many examples on all starts end in the same weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean
from typing import Any

from graphtheory.lab.bench.rows import Row
from graphtheory.papers.claims import Claimed, Power, Trend, Turn
from graphtheory.papers.figure import Figure, Measurements, Shown
from graphtheory.papers.grid import Measured, axis
from graphtheory.papers.mixture.mixtures import SHORT, Mixtures, found_rows, found_table, laws
from graphtheory.papers.mixture.model import weight_error
from graphtheory.papers.mixture.training import Learner, Setting, critical_point
from graphtheory.papers.phases import cells, number
from graphtheory.papers.pictures import phase_diagram
from graphtheory.papers.pivot import groups
from graphtheory.papers.power_law import Successes, boundary, halves
from graphtheory.papers.stats import boundaries

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
    net, _ = critical_point(net, trials)
    mean = net.W.mean(1, keepdim=True)
    spread = (net.W - mean).square().sum((2, 3)).mean(1).sqrt().detach()
    return [
        {"learner": learner.name, "value": value, "n": n, "seed": seed, "spread": float(v),
         "off": float(weight_error(m[0], trial.teacher))}
        for seed, v, m, trial in zip(grid.trial_seeds, spread, mean, trials, strict=True)
    ]  # fmt: skip


def _succeeded(row: Measured) -> bool:
    return row["spread"] <= SUCCESS


def successes(grid: Samples, measured: Measurements) -> dict[str, Successes]:
    """Learner -> the number of trials with V_W of at most `SUCCESS`, by value and n."""
    return {
        learner: Successes.counted(
            grid.places, grid.counts,
            [(grid.shown(row["value"]), row["n"]) for row in own if _succeeded(row)], grid.seeds,
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
                share = fmean(map(_succeeded, cell))
                rows.append(Row.of("share of successes", share, "1", **about))
                for key, what in (("spread", "V_W"), ("off", "distance to W*")):
                    rows.append(Row.of(what, [row[key] for row in cell], "1", **about))
        rows += found_rows(line, found)
    return Shown(found_table("examples that trials need", grid.name, grid.places, lines), rows)


def _picture(claim: Claimed, grid: Samples, measured: Measurements, title: str) -> Any:
    by = successes(grid, measured)
    fitted = laws(claim, {name: claim.find(found) for name, found in by.items()})
    return phase_diagram(cells(by), fitted, xlabel=grid.name, ylabel="examples", title=title)


def _quick(grid: Samples) -> Samples:
    return replace(grid, values=grid.ends, counts=grid.counts[1:-1:2], starts=5, seeds=4)


def _figure(figure: str, summary: str, grid: Samples, claimed: Callable[..., Claimed]) -> Figure:
    claim = claimed(what=_WHAT, letter=grid.name, read=successes)
    return Figure(
        figure, summary, grid, spreads, partial(_show, claim), (claim,), partial(_picture, claim),
        _quick,
    )  # fmt: skip


# The source does not state the grids of n; figure 4.2 has four values of d, for it to take at most
# a quarter of an hour on one core.
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
)  # fmt: skip
