"""How well the concept class of the generalization bound fits targets: (5.12) and (5.16)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.optimize import lsq_linear
from torch import Generator, Tensor, nn
from torch.nn.functional import normalize

from graphtheory.graph import Neighborhood
from graphtheory.lab.bench.table import mean_spread
from graphtheory.models.sampled_gcn import aggregate_rows
from graphtheory.papers.claims import Trend, over
from graphtheory.papers.figure import Figure, Verdict, small
from graphtheory.papers.grid import Grid, Measured, axis
from graphtheory.papers.pictures import error_curves, picture_of
from graphtheory.papers.pivot import Measurements, Pivot, groups
from graphtheory.papers.stats import means
from graphtheory.papers.topology.data import DegreeGroupTask, Pair, pair
from graphtheory.papers.topology.figures_targets import PAIRS, lowest_of
from graphtheory.patterns.draw import derive


class TargetFunction(nn.Module):
    r"""A function F* of the concept class, with phi_1 = Phi = sin and phi_2 = tanh.

    .. math::
        F^* = A^* \bigl(\Phi(r_1) \odot r_2\bigr) C^*, \qquad
        r_k = A^*\, \phi_k(A^* X W_k^*)\, V_k^*

    The columns of W and V have norm 1 and the entries of C are in [-1, 1]; `project` restores that
    after a step. They are drawn from N(0, 1) first. A node with an empty row of A* has output 0.

    Source: Li (2024), eq. (5.12), which leaves the three functions open but for smoothness.
    """

    def __init__(self, features: int, size: int, outputs: int, generator: Generator) -> None:
        super().__init__()
        self.W, self.V, self.C = (
            nn.Parameter(torch.randn(shape, generator=generator))
            for shape in ((2, features, size), (2, size, size), (size, outputs))
        )
        self.project()

    def forward(self, x: Tensor, adjacency: Neighborhood) -> Tensor:
        """Outputs [N, K] of features [N, d]."""
        return self.hidden(x, adjacency) @ self.C

    def hidden(self, x: Tensor, adjacency: Neighborhood) -> Tensor:
        """What C* is applied to, [N, size]."""
        near = aggregate_rows(x, adjacency)
        first, second = (
            aggregate_rows(phi(near @ w), adjacency) @ v
            for phi, w, v in zip((torch.sin, torch.tanh), self.W, self.V, strict=True)
        )
        return aggregate_rows(first.sin() * second, adjacency)

    @torch.no_grad()
    def project(self) -> None:
        """Columns to norm 1, entries of C into [-1, 1]."""
        self.W.copy_(normalize(self.W, dim=1))
        self.V.copy_(normalize(self.V, dim=1))
        self.C.clamp_(-1, 1)

    @torch.no_grad()
    def fit_outputs(self, x: Tensor, y: Tensor, adjacency: Neighborhood) -> float:
        """Set C to the best of [-1, 1] for targets y [N, K]; the mean squared error that is left.

        The smaller of this and what C = 0 leaves, since the solver stops at a tolerance.
        """
        hidden, scale = self.hidden(x, adjacency).double(), float(y.abs().max())
        a, b = (hidden / scale).numpy(), (y.double() / scale).numpy()
        columns = [lsq_linear(a, column, bounds=(-1, 1)).x for column in b.T]
        self.C.copy_(torch.from_numpy(np.stack(columns, 1)))
        left = float((hidden @ self.C.double() - y).square().mean())
        return min(left, float(y.double().square().mean()))


@dataclass(frozen=True)
class Descent:
    """How the least risk is looked for.

    Adam on W and V with columns of norm 1, along a cosine to step size 0; C is solved for.
    """

    starts: int = 2
    rounds: int = 40  # solutions for C
    steps: int = 10  # of Adam after each
    step_size: float = 0.03


DESCENT = Descent()


def least_risk(
    x: Tensor, y: Tensor, adjacency: Neighborhood, size: int, descent: Descent, generator: Generator
) -> float:
    r"""The least mean squared error found over the concept class: an upper bound of OPT_{A*}.

    .. math:: \mathrm{OPT}_{A^*} = \min_{W_k^*, V_k^*, C^*} E\, L(F^*_{A^*}(e_g, X), y)

    The expectation is over the node g, uniform; features and targets have no noise.

    Source: Li (2024), eq. (5.16).
    """
    least, size_of_y = float("inf"), y.square().mean()  # Adam is not told a gradient from rounding
    for _ in range(descent.starts):
        model = TargetFunction(x.size(1), size, y.size(1), generator)
        optimizer = torch.optim.Adam([model.W, model.V], lr=descent.step_size)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, descent.rounds)
        for _ in range(descent.rounds):
            least = min(least, model.fit_outputs(x, y, adjacency))
            for _ in range(descent.steps):
                optimizer.zero_grad()
                ((model(x, adjacency) - y).square().mean() / size_of_y).backward()
                optimizer.step()
                model.project()
            schedule.step()
        least = min(least, model.fit_outputs(x, y, adjacency))
    return least


CLASS, EXPERIMENTS = "(5.12)", "(5.20)"


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
    descent: Descent = DESCENT


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
