"""What sampling does to the graph that a GCN learns on: figures 5.1 to 5.4."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import isinf
from statistics import mean
from typing import Any

import torch
from torch import Generator, Tensor

from graphtheory import ops
from graphtheory.data.degree_graph import degree_group_graph
from graphtheory.experiments.study import Row, Step, Study
from graphtheory.graph import Neighborhood
from graphtheory.metrics import infinity_norm
from graphtheory.patterns import (
    AddSelf,
    Compose,
    DegreeGroups,
    Effective,
    FastGCN,
    Pattern,
    SymmetricNormalize,
)
from graphtheory.patterns.draw import derive
from graphtheory.train import SampledTrials, Trial, TrialOptions

Pair = tuple[float, float]
GROUPS, FASTGCN, CODE = "degree groups", "FastGCN", "FastGCN, as in its code"
SAMPLERS = (GROUPS, FASTGCN, CODE)
_DIM, _HIDDEN, _OUTPUTS = 10, 10, 2  # d, p, K
_SHARE = 0.9  # S_l / N_l, and S / N of FastGCN


@dataclass(frozen=True)
class Task:
    """A graph of two degree groups, targets on it, and a sampler to learn them with.

    Attributes:
        name: In tables and pictures.
        sizes: N_1, N_2.
        degrees: d_1, d_2.
        p_star: p* of the sampler; FastGCN has none.
        p_hat: p^ of the targets.
        sampler: One of `SAMPLERS`.
        step_size: eta (thesis: 1e-3).
    """

    name: str
    sizes: tuple[int, int]
    degrees: tuple[int, int]
    p_star: Pair
    p_hat: Pair
    sampler: str = GROUPS
    step_size: float = 1e-3

    def trial(self, labels: int, seed: int) -> tuple[Trial, Neighborhood]:
        """The task of one seed, and the A* that predictions use.

        The seed fixes the graph, X, W*, C* and the order in which nodes are labelled, whatever
        else differs: p^ and the sampler are compared on the same draws.
        """
        generator = Generator().manual_seed(derive(seed))
        edges, group = degree_group_graph(self.sizes, self.degrees, generator)
        nodes = sum(self.sizes)
        graph = Neighborhood.from_edge_index(edges, nodes)
        adjacency = Compose(AddSelf(), SymmetricNormalize())(graph)

        def groups(p: Pair) -> DegreeGroups:
            return DegreeGroups(share=_SHARE, p_star=p, assignment=group)

        x, w, c = (
            torch.randn(shape, generator=generator)
            for shape in ((nodes, _DIM), (_DIM, _HIDDEN), (_HIDDEN, _OUTPUTS))
        )
        labelled = torch.randperm(nodes, generator=generator)[:labels]
        sampler: Pattern = {
            GROUPS: groups(self.p_star),
            FASTGCN: FastGCN(share=_SHARE, replace=False),
            CODE: FastGCN(share=_SHARE, replace=False, unbiased=False),
        }[self.sampler]
        y = targets(Effective(groups(self.p_hat))(adjacency), x, w, c)
        trial = Trial(x, y, labelled, adjacency, sampler, self.step_size)
        return trial, Effective(sampler)(adjacency)


def targets(adjacency: Neighborhood, x: Tensor, w: Tensor, c: Tensor) -> Tensor:
    """Y = (sin(A^ X W*) . tanh(A^ X W*)) C*, eq. (5.20)."""
    heard = ops.aggregate(None, x[:, None], adjacency)[:, 0] @ w
    return (heard.sin() * heard.tanh()) @ c


@dataclass(frozen=True)
class TopologyStudy(Study):
    """Tasks learned with several numbers of labels and widths.

    All tasks and seeds of one number of labels and one width are trained together.

    Attributes:
        tasks: What is learned.
        labels: |Omega|.
        widths: m.
        seeds: Graphs, targets and initial values of each task.
        passes: Steps for each label (thesis: 4).
        batch_size: Labelled nodes a step (thesis: 5).
        dropout: On both hidden layers (thesis: 0.4).
        first: The first seed.
    """

    tasks: tuple[Task, ...]
    labels: tuple[int, ...]
    widths: tuple[int, ...] = (500,)
    seeds: int = 3
    passes: float = 4
    batch_size: int = 5
    dropout: float = 0.4
    first: int = 0

    @property
    def axis(self) -> str:
        """What varies besides the tasks: "labels" or "width"."""
        return "width" if len(self.widths) > 1 else "labels"

    def steps(self) -> list[Step]:
        """Rows: the task's attributes, norm, labels, width, seed, mse, variance, error.

        `norm` is that of A*; on the unlabelled nodes `mse` is the mean squared error, `variance`
        that of the targets, `error` their ratio: the variance differs between graphs.
        """
        return [self._step(m, labels) for m in self.widths for labels in self.labels]

    def _step(self, width: int, labels: int) -> Step:
        options = TrialOptions(width, round(self.passes * labels), self.batch_size, self.dropout)
        seeds = list(range(self.first, self.first + self.seeds))
        settings = {
            "tasks": [asdict(task) for task in self.tasks], "labels": labels, "seeds": seeds,
            "options": asdict(options),
        }  # fmt: skip
        return Step(
            f"{labels} labels, width {width}", settings, lambda: self._rows(options, labels, seeds)
        )

    def _rows(self, options: TrialOptions, labels: int, seeds: Sequence[int]) -> list[Row]:
        made = [(task, seed, *task.trial(labels, seed)) for task in self.tasks for seed in seeds]
        generator = Generator().manual_seed(derive(self.first, labels, options.width))
        together = SampledTrials([trial for _, _, trial, _ in made], options, generator)
        together.train()
        errors = together.errors([star for *_, star in made])
        rows = []
        for (task, seed, trial, star), error in zip(made, errors, strict=True):
            rest = torch.ones(len(trial.y), dtype=torch.bool).index_fill(0, trial.labelled, False)
            variance = float(trial.y[rest].var(0, correction=0).mean())
            rows.append(
                asdict(task) | {
                    "norm": infinity_norm(star), "labels": labels, "width": options.width,
                    "seed": seed, "mse": error, "variance": variance, "error": error / variance,
                }
            )  # fmt: skip
        return rows


def _graphs(degrees: Sequence[tuple[int, int]]) -> tuple[Task, ...]:
    p = (0.7, 0.3)
    return tuple(Task(f"degrees {d}, {e}", _UNEVEN, (d, e), p, p) for d, e in degrees)


def _data_sets(sizes: tuple[int, int], p_star: Pair) -> tuple[Task, ...]:
    return tuple(
        Task(f"{sampler}; {p_hat[0]:g}, {p_hat[1]:g}", sizes, (10, 1), p_star, p_hat, sampler)
        for sampler in SAMPLERS
        for p_hat in ((0.9, 0.1), (0.1, 0.9), (0.5, 0.5))
    )


_UNEVEN, _EVEN = (100, 1900), (1000, 1000)
_OF_DEGREES = _graphs([(2, 2), (20, 2), (40, 2), (100, 2)])

STUDIES: dict[str, TopologyStudy] = {
    "fig-5-1": TopologyStudy(_OF_DEGREES, labels=(300, 600, 900, 1200, 1500)),
    "fig-5-2": TopologyStudy(_OF_DEGREES, labels=(1500,), widths=(50, 100, 200, 500)),
    "fig-5-3": TopologyStudy(_data_sets(_UNEVEN, (0.9, 0.1)), labels=(500, 1000, 1500)),
    "fig-5-4": TopologyStudy(_data_sets(_EVEN, (0.5, 0.5)), labels=(500, 1000, 1500)),
}
"""Figures by name. Unstated in the source and chosen here: the degrees of figures 5.1 and 5.2, the
other two p^ of figures 5.3 and 5.4, their |Omega|, and p* = (0.5, 0.5) of figure 5.4, of which the
text says that both groups lose alike. FastGCN draws different nodes: with replacement the weights
of rare ones, three layers deep, make SGD diverge at 1e-3, 3e-4 and 1e-4 alike."""


def averages(rows: list[Row], axis: str, measure: str = "error") -> dict[str, dict[int, float]]:
    """Name of a task -> labels or width -> mean over seeds."""
    cells: dict[str, dict[int, list[float]]] = {}
    for row in rows:
        cells.setdefault(row["name"], {}).setdefault(row[axis], []).append(row[measure])
    return {name: {at: mean(of[at]) for at in sorted(of)} for name, of in cells.items()}


def norm_verdict(rows: list[Row], axis: str, measure: str = "error") -> dict[str, Any]:
    """Claims of figures 5.1 and 5.2: the error falls, and a larger norm of A* leaves more of it.

    Returns:
        `falls`, how many tasks end lower than they begin, of `tasks`; `spearman`, the correlation
        over tasks of the norm with the error at the largest number of labels or width.
    """
    from scipy.stats import spearmanr

    curves = averages(rows, axis, measure)
    norm = {name: mean(r["norm"] for r in rows if r["name"] == name) for name in curves}
    ends = {name: (of[min(of)], of[max(of)]) for name, of in curves.items()}
    rho = spearmanr([norm[n] for n in curves], [ends[n][1] for n in curves])[0]
    falls = sum(last < first for first, last in ends.values())
    return {"falls": falls, "tasks": len(ends), "spearman": float(rho)}


def data_verdict(rows: list[Row], measure: str = "error") -> dict[str, dict[str, Any]]:
    """Claims of figures 5.3 and 5.4: which p^ a sampler learns best, at the most labels.

    Returns:
        For each sampler: `best`, the p^ of the lowest mean, or None where all diverged; `seeds`, in
        how many of `of` seeds it is lowest too.
    """
    most = max(r["labels"] for r in rows)
    found: dict[str, dict[str, Any]] = {}
    for sampler in dict.fromkeys(r["sampler"] for r in rows):
        last = [r for r in rows if r["sampler"] == sampler and r["labels"] == most]
        by: dict[tuple[float, ...], list[float]] = {tuple(r["p_hat"]): [] for r in last}
        for r in sorted(last, key=lambda r: r["seed"]):
            by[tuple(r["p_hat"])].append(r[measure])
        best = min(by, key=lambda p: mean(by[p]))
        if isinf(mean(by[best])):
            found[sampler] = {"best": None, "seeds": 0, "of": len(by[best])}
            continue
        lowest = [min(by, key=lambda p: by[p][i]) for i in range(len(by[best]))]
        found[sampler] = {"best": best, "seeds": lowest.count(best), "of": len(lowest)}
    return found
