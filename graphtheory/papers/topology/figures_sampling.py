"""What training on samples costs a GCN on a real graph, at a tenth and a third of the neighbors."""

from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from graphtheory.lab import plot
from graphtheory.lab.bench.rows import Row
from graphtheory.lab.bench.table import Table, percent_spread
from graphtheory.lab.datasets.catalogue import key
from graphtheory.papers.figure import DataSets, Figure, Verdict
from graphtheory.papers.pivot import Measurements, Shown, groups
from graphtheory.papers.topology.sampling import FULL, MLP, SAMPLERS, Sampling, candidates, scores

_POINT = 0.01
_QUICK_EPOCHS = 40
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


def quick(grid: Sampling) -> Sampling:
    """Two samplers on one split for few epochs."""
    few = (FULL, MLP, "degree groups", "GraphSAGE")
    return replace(
        grid, candidates=tuple(one for one in grid.candidates if one.sampler in few),
        budgets=grid.budgets[:1], epochs=_QUICK_EPOCHS, search_epochs=_QUICK_EPOCHS, seeds=1,
    )  # fmt: skip


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
        percent_spread(line["tests"], ".1f"),
        percent_spread(line["stars"], ".1f") if line["stars"] else "-",
        "-" if full else f"{100 * line['gap']:+.1f} ({100 * line['s.e.']:.1f})",
        "-" if full else "yes" if line["within"] else "no",
    ]


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
        found |= {"neighbors used": line["heard"], "edges": line["edges"]}
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
        {"model": _named(line), "test": test}
        for line in summary(measured)
        for test in line["tests"]
    ]
    return plot.score_bars(runs, title=f"{title}: GCN on samples")


def _named(line: dict[str, Any]) -> str:
    whole = line["sampler"] in (FULL, MLP)
    return line["sampler"] + ("" if whole else f", {100 * line['budget']:.0f} % of the neighbors")


FIGURES = (
    Figure(
        "sampling", "a GCN trained on all neighbors and on samples of them, a tenth and a third",
        Sampling(), scores, _show, (close_to_full_batch,), _picture, quick, DataSets("Cora"),
        on_dataset,
    ),
)  # fmt: skip
