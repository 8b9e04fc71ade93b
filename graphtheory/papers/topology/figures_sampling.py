"""What training on samples costs a GCN on a real graph, at a tenth and a third of the neighbors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from graphtheory import plot
from graphtheory.bench.rows import Row
from graphtheory.data.catalogue import key
from graphtheory.papers.figure import DataSets, Figure, Measurements, Shown, Verdict
from graphtheory.papers.grid import Grid, Measured, Progress, axis, unrecorded
from graphtheory.papers.pivot import groups
from graphtheory.papers.topology.budget import SAMPLERS
from graphtheory.papers.topology.sampling import (
    FULL,
    MLP,
    Candidate,
    Options,
    candidates,
    train_candidate,
)
from graphtheory.report.table import Table, mean_spread

_POINT = 0.01
_QUICK_EPOCHS = 40
_TRIED: tuple[Options, ...] = (
    {},
    {"dropout": 0.5, "weight_decay": 5e-4},
    {"average": 0.98},
    {"dropout": 0.5, "weight_decay": 5e-4, "average": 0.98},
)


@dataclass(frozen=True)
class Sampling(Grid):
    """The same GCN trained on all neighbors and on samples of them, and an MLP.

    Prediction is with all neighbors. Variant and options of each sampler are chosen by mean
    validation score at the first budget and kept at the others.

    Attributes:
        candidates: What is chosen from.
        dataset: Name of a graph.
        root: Folder with the raw files.
        budgets: Shares of the neighbors, see `budget.neighbor_use`.
        tried: Changes of the options that a search chose for the GCN on all neighbors.
        epochs: Upper bound.
        patience: Epochs without a better validation score: long, for scores are noisy.
        search_epochs: Upper bound for a candidate.
        search_seeds: Splits that a candidate is judged on.
        seeds: Splits.
        first: The first split.
    """

    candidates: tuple[Candidate, ...] = axis("candidate", ())
    dataset: str = "Cora"
    root: Path | None = unrecorded(None)
    budgets: tuple[float, ...] = unrecorded((0.1, 1 / 3))
    tried: tuple[Options, ...] = unrecorded(_TRIED)
    epochs: int = 400
    patience: int = 100
    search_epochs: int = unrecorded(200)
    search_seeds: int = unrecorded(2)
    seeds: int = axis("seed", 5)
    first: int = 5

    def measure(
        self,
        run: Callable[..., list[Measured]],
        progress: Progress = lambda *_: None,
        *,
        kept: Path | None = None,
    ) -> list[Measured]:
        """Choose candidates ("search"), then train them on all seeds and budgets ("result")."""
        names = [one.sampler for one in self.candidates]
        search = replace(
            self,
            candidates=tuple(one for one in self.candidates if names.count(one.sampler) > 1),
            seeds=min(self.search_seeds, self.seeds),
            epochs=self.search_epochs,
        )
        judged = Grid.measure(search, run, progress, kept=kept)
        chosen = choose(self.candidates, judged)
        result = replace(self, candidates=tuple(self._at_budgets(chosen)))
        last = Grid.measure(result, run, progress, kept=kept)
        stages = (("search", judged), ("result", last))
        return [{"stage": stage} | row for stage, rows in stages for row in rows]

    def _at_budgets(self, chosen: Sequence[Candidate]) -> list[Candidate]:
        return [
            replace(one, budget=budget if one.sampler in SAMPLERS else 1.0)
            for place, budget in enumerate(self.budgets)
            for one in chosen
            if one.sampler in SAMPLERS or place == 0
        ]


_PLANS: dict[str, dict[str, Any]] = {
    "facebook": {
        "epochs": 600, "search_epochs": 600, "seeds": 3, "search_seeds": 1, "first": 3,
        "tried": (
            {"dropout": 0.2},
            {"dropout": 0.2, "average": 0.98, "lr": 0.02},
            {"dropout": 0.0, "average": 0.98, "lr": 0.02},
        ),
    },
}  # fmt: skip


def on_dataset(grid: Sampling, dataset: str, root: Path | None) -> Sampling:
    """The grid on a graph, with the lengths of training and the candidates that it has there."""
    grid = replace(grid, dataset=dataset, root=root, **_PLANS.get(key(dataset), {}))
    return replace(grid, candidates=candidates(dataset, grid.tried, grid.budgets[0]))


def scores(grid: Sampling, candidate: Candidate, seed: int) -> list[Measured]:
    """The scores of one candidate on one split."""
    epochs, patience = grid.epochs, grid.patience
    return [
        train_candidate(
            candidate, grid.dataset, grid.root, seed=seed, epochs=epochs, patience=patience
        )
    ]


def quick(grid: Sampling) -> Sampling:
    """Two samplers on one split for few epochs."""
    few = (FULL, MLP, "degree groups", "GraphSAGE")
    return replace(
        grid, candidates=tuple(one for one in grid.candidates if one.sampler in few),
        budgets=grid.budgets[:1], epochs=_QUICK_EPOCHS, search_epochs=_QUICK_EPOCHS, seeds=1,
    )  # fmt: skip


def choose(given: Sequence[Candidate], measured: Measurements) -> list[Candidate]:
    """The candidate of each sampler with the best mean validation score, the earlier on a tie."""
    judged = groups(measured, "sampler", "variant", "tried")

    def score(one: Candidate) -> float:
        return fmean(row["val"] for row in judged[one.sampler, one.variant, one.tried])

    best: dict[str, Candidate] = {}
    for one in given:
        if one.sampler not in best or score(one) > score(best[one.sampler]):
            best[one.sampler] = one
    return list(best.values())


def summary(measured: Measurements) -> list[dict[str, Any]]:
    """For each sampler and budget: means, and the difference to the full batch, paired by seed.

    `within` says whether that difference is above -1 point, `s.e.` is its standard error.
    """
    results = [row for row in measured if row["stage"] == "result"]
    full = {row["seed"]: row["test"] for row in results if row["sampler"] == FULL}
    out = []
    for (name, budget), mine in groups(results, "sampler", "budget").items():
        gaps = torch.tensor([row["test"] - full[row["seed"]] for row in mine])
        gap = float(gaps.mean())
        out.append({
            "sampler": name, "variant": mine[0]["variant"], "tried": mine[0]["tried"],
            "budget": budget, "tests": [row["test"] for row in mine],
            "stars": [row["star"] for row in mine if row["star"] is not None],
            "heard": fmean(row["heard"] for row in mine),
            "edges": fmean(row["edges"] for row in mine),
            "gap": gap, "gaps": gaps.tolist(), "within": gap >= -_POINT,
            "s.e.": float(gaps.std() / len(gaps) ** 0.5) if len(gaps) > 1 else 0.0,
        })  # fmt: skip
    return out


def _show(grid: Sampling, measured: Measurements) -> Shown:
    lines = summary(measured)
    table = Table(
        "GCN on samples, test score %",
        [
            "sampler", "neighbors used %", "edges %", "with A", "with A*",
            "minus full batch (s.e.)", "within 1 point",
        ],
        [_entries(line) for line in lines],
    )  # fmt: skip
    return Shown(table, [row for line in lines for row in _rows(grid, line)])


def _entries(line: dict[str, Any]) -> list[str]:
    full, whole = line["sampler"] == FULL, line["sampler"] in (FULL, MLP)
    return [
        line["sampler"],
        *("-" if whole else f"{100 * line[share]:.1f}" for share in ("heard", "edges")),
        _spread(line["tests"]),
        _spread(line["stars"]) if line["stars"] else "-",
        "-" if full else f"{100 * line['gap']:+.1f} ({100 * line['s.e.']:.1f})",
        "-" if full else "yes" if line["within"] else "no",
    ]


def _spread(found: list[float]) -> str:
    return mean_spread([100 * score for score in found], ".1f")


def _rows(grid: Sampling, line: dict[str, Any]) -> list[Row]:
    about = {
        "dataset": grid.dataset, "sampler": line["sampler"], "variant": line["variant"],
        "budget": f"{line['budget']:.3g}", **grid.tried[line["tried"]],
    }  # fmt: skip
    found = {"test score": line["tests"]}
    if line["stars"]:
        found["test score with A*"] = line["stars"]
    if line["sampler"] != FULL:
        found["minus full batch"] = line["gaps"]
    if line["sampler"] in SAMPLERS:
        found |= {"neighbours heard": line["heard"], "edges": line["edges"]}
    return [Row.of(name, values, "1", **about) for name, values in found.items()]


def close_to_full_batch(grid: Sampling, measured: Measurements) -> Verdict:
    """Which samplers cost at most a point, by the mean and by two standard errors."""
    told = []
    for budget in grid.budgets:
        lines = [line for line in summary(measured) if line["sampler"] in SAMPLERS]
        mine = [line for line in lines if line["budget"] == budget]
        close = [line["sampler"] for line in mine if line["within"]]
        sure = [line["sampler"] for line in mine if line["gap"] - 2 * line["s.e."] >= -_POINT]
        told.append(
            f"At {100 * budget:.0f} % of the neighbors the mean is within 1 point of the full "
            f"batch with {', '.join(close) or 'no sampler'}, and by two standard errors with "
            f"{', '.join(sure) or 'none'}."
        )
    return Verdict(" ".join(told))


def _picture(grid: Sampling, measured: Measurements, title: str) -> Any:
    runs = [
        {"series": line["sampler"], "setting": _setting(line), "test": test}
        for line in summary(measured)
        for test in line["tests"]
    ]
    return plot.score_dots(runs, reference=FULL, title=f"{title}: GCN on samples")


def _setting(line: dict[str, Any]) -> str:
    whole = {FULL: "whole graph", MLP: "no neighbors"}
    return whole.get(line["sampler"], f"{100 * line['budget']:.0f} % of the neighbors")


FIGURES = (
    Figure(
        "sampling", "a GCN trained on all neighbors and on samples of them, a tenth and a third",
        Sampling(), scores, _show, (close_to_full_batch,), _picture, quick, DataSets("Cora"),
        on_dataset,
    ),
)  # fmt: skip
