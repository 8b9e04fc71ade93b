"""Figure 2.5: test loss after tokens were removed from training and test sets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any, ClassVar

from graphtheory.lab.bench.rows import Row
from graphtheory.lab.report.table import Table
from graphtheory.papers.claims import Read, Trend, over
from graphtheory.papers.curve_pictures import error_curves
from graphtheory.papers.figure import Figure, Measurements, Shown
from graphtheory.papers.grid import Grid, Measured, axis
from graphtheory.papers.phases import seed_of
from graphtheory.papers.pivot import groups
from graphtheory.papers.shallow_vit import training as tokens
from graphtheory.papers.shallow_vit.data import TokenPatterns
from graphtheory.papers.shallow_vit.figures import TOGETHER, Case
from graphtheory.papers.shallow_vit.training import (
    ATTENTION,
    LEARNED,
    NOISE,
    NONE,
    RANDOM,
    RELEVANT,
    Learner,
)


@dataclass(frozen=True)
class Sparsified(Grid):
    """Every rule that removes tokens on the same trials."""

    case: Case  # what learns
    rules: tuple[str, ...] = axis("rule", (RANDOM, RELEVANT, NOISE, ATTENTION, LEARNED))
    kept: tuple[int, ...] = axis("kept", (50, 45, 40, 35, 30))  # tokens that stay, S
    labels: int = 80  # N
    seeds: int = 20
    first: int = 0
    side_by_side: ClassVar[bool] = True


def losses(grid: Sparsified, rule: str, kept: int) -> list[Measured]:
    """Loss and error of each trial, and its share of label-relevant tokens after the removal."""
    data, learner = grid.case.data, grid.case.learner
    rows = []
    for start in range(grid.first, grid.first + grid.seeds, TOGETHER):
        seeds = range(start, min(start + TOGETHER, grid.first + grid.seeds))
        by = NONE if rule == LEARNED else rule
        trials = [
            tokens.draw(data, grid.labels, seed_of(seed, grid.labels, 0), kept, by)
            for seed in seeds
        ]
        model, _ = tokens.run(learner, trials, data.tokens, seed_of(start, grid.labels, 0))
        if rule == LEARNED:  # and learned once more, from the same start
            trials = tokens.most_attended(model, trials, kept)
            model, _ = tokens.run(learner, trials, data.tokens, seed_of(start, grid.labels, 0))
        tests = tokens.evaluate(model, trials)
        rows += [
            {"rule": rule, "kept": kept, "seed": seed}
            | found._asdict()
            | {"alpha_star": float(trial.train.relevant.float().mean())}
            for seed, trial, found in zip(seeds, trials, tests, strict=True)
        ]
    return rows


def _show(grid: Sparsified, measured: Measurements) -> Shown:
    """A line for each rule; the rows of a rule with the fewest tokens first."""
    lines, rows = [], []
    for (rule,), mine in groups(measured, "rule").items():
        by = {kept: of for (kept,), of in groups(mine, "kept").items()}
        for kept in sorted(by):
            hinge = [one["hinge"] for one in by[kept]]
            rows.append(Row.of("test hinge loss", hinge, "1", rule=rule, kept=kept))
        shown = [f"{fmean(one['hinge'] for one in of):.4f}" for of in by.values()]
        share = fmean(one["alpha_star"] for one in by[grid.kept[-1]])
        lines.append([rule, *shown, f"{share:.2f}"])
    heads = ["removed", *(f"{kept} stay" for kept in grid.kept), "alpha_* at last"]
    return Shown(Table("test hinge loss", heads, lines), rows)


def _picture(grid: Sparsified, measured: Measurements, title: str) -> Any:
    points = [
        {"series": one["rule"], "at": one["kept"], "error": one["hinge"],
         "panel": "test hinge loss"}
        for one in measured
    ]  # fmt: skip
    title = f"{title}, {grid.labels} sets"
    return error_curves(points, xlabel="tokens that stay", title=title)


def _quick(grid: Sparsified) -> Sparsified:
    return replace(grid, case=grid.case.smaller(), kept=grid.kept[::4], seeds=4)


def _of_rules(wanted: Callable[[str], bool]) -> Read:
    def read(grid: Sparsified, measured: Measurements) -> Any:
        return over("kept", "hinge", "{rule}")(grid, [m for m in measured if wanted(m["rule"])])

    return read


# Chosen here, because the source does not say which tokens are noisy and how much.
FIGURES = (
    Figure(
        "fig-2-5", "test loss after tokens were removed by several rules",
        Sparsified(
            Case(
                Learner(width=200, delta=0.5), TokenPatterns(50, 0.6, 0.05, noisy=0.2, c_noisy=1.0)
            )
        ),
        losses, _show,
        (
            Trend(what="the loss", letter="the tokens that stay", claimed="does not rise",
                  read=_of_rules(lambda rule: rule == RANDOM)),
            Trend(what="the loss", letter="the tokens that stay", claimed="rises",
                  read=_of_rules(lambda rule: rule != RANDOM)),
        ),
        _picture, _quick,
    ),
)  # fmt: skip
