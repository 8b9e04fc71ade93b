"""How well the concept class of the generalization bound fits targets: (5.12) and (5.16)."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator

from graphtheory.lab.bench.table import mean_spread
from graphtheory.papers.claims import Trend, over
from graphtheory.papers.figure import Figure, Verdict, small
from graphtheory.papers.grid import Grid, Measured, axis
from graphtheory.papers.pictures import error_curves, picture_of
from graphtheory.papers.pivot import Measurements, Pivot, groups
from graphtheory.papers.stats import means
from graphtheory.papers.topology.concept import Descent, TargetFunction, least_risk
from graphtheory.papers.topology.data import DegreeGroupTask, Pair, pair
from graphtheory.papers.topology.figures_targets import PAIRS, lowest_of
from graphtheory.patterns.draw import derive

CLASS, EXPERIMENTS = "(5.12)", "(5.20)"
_DESCENT = Descent()


@dataclass(frozen=True)
class Classes(Grid):
    """Targets made with A^, and the concept class over several A* and of several sizes.

    The graph, its features and the targets (5.20) are those of figure 5.3; the targets (5.12) are a
    function of the class, drawn, so that the least risk is 0 where p* = p^ and the size is enough.
    """

    targets: tuple[str, ...] = axis("target", (CLASS, EXPERIMENTS))  # what is fitted
    p_stars: tuple[Pair, ...] = axis("p_star", PAIRS)  # p* of A*
    sizes: tuple[int, ...] = axis("size", (1, 4, 16))  # p_1 = p_2
    seeds: int = axis("seed", 3)
    first: int = 0
    p_hat: Pair = (0.9, 0.1)  # p^ of the targets
    drawn_size: int = 4  # p_1 = p_2 of the targets (5.12)
    groups: tuple[int, int] = (100, 1900)  # N_1, N_2
    degrees: tuple[int, int] = (10, 1)  # d_1, d_2
    descent: Descent = _DESCENT


def least_risks(grid: Classes, target: str, p_star: Pair, size: int, seed: int) -> list[Measured]:
    """The least risk that was found, also over the variance of the targets."""

    def drawn(p: Pair) -> Any:
        return DegreeGroupTask("", grid.groups, grid.degrees, p, grid.p_hat).draw(1, seed)

    (task, made_with), (_, star) = drawn(grid.p_hat), drawn(p_star)
    y, outputs = task.y, task.y.size(1)
    if target == CLASS:
        generator = Generator().manual_seed(derive(seed, 0))
        function = TargetFunction(task.x.size(1), grid.drawn_size, outputs, generator)
        with torch.no_grad():
            y = function(task.x, made_with)
    generator = Generator().manual_seed(derive(seed, size))
    risk = least_risk(task.x, y, star, size, grid.descent, generator)
    variance = float(y.var(0, correction=0).mean())
    about = {"target": target, "p_star": pair(p_star), "size": size, "seed": seed}
    return [about | {"risk": risk, "error": risk / variance}]


def best_where_made(grid: Classes, measured: Measurements) -> Verdict:
    """Whether the least risk of the largest class is lowest where p* = p^."""
    told = []
    most = [one for one in measured if one["size"] == max(grid.sizes)]
    for (target,), mine in groups(most, "target").items():
        by = groups(mine, "p_star")
        best = lowest_of({p: [one["error"] for one in by[pair(p),]] for p in grid.p_stars})
        told.append(
            f"{target}, p_1 = p_2 = {max(grid.sizes)}: lowest at p* = {best}, claimed at p^ = "
            f"{pair(grid.p_hat)}: {best.verdict_of(grid.p_hat)}."
        )
    return Verdict(" ".join(told))


FIGURES = (
    Figure(
        "opt-5", "least risk of the concept class on targets, over its size and A*",
        Classes(), least_risks,
        Pivot(
            "least squared error of the concept class over the variance of the targets",
            {"error": "least risk / variance"}, {"target": "target", "p_star": "p_star"}, "size",
            ["targets", "p*"], column="p_1 = p_2 = {}", cell=mean_spread, words=2,
            note="Upper bounds: the least that descent found. A constant reaches 1.",
        ),
        (
            Trend(
                what="least risk / variance", letter="p_1 = p_2", claimed="falls", sample=means,
                read=over("size", "error", "{target}, p* = {p_star}"),
            ),
            best_where_made,
        ),
        picture_of(
            error_curves, panel="{target}: least risk / variance", series="p* = {p_star}",
            at="{size}", xlabel="p_1 = p_2",
        ),
        small(sizes=slice(2), seeds=1, descent=Descent(1, 10)),
    ),
)  # fmt: skip
