"""Figures 5.1 to 5.4 as a table, a picture and a verdict."""

from __future__ import annotations

from math import isinf
from typing import Any

from graphtheory import plot
from graphtheory.experiments import topology_study as studies
from graphtheory.experiments.rows import Row
from graphtheory.report.study import StudyReport
from graphtheory.report.table import Table, counted

_CLAIMED = {"fig-5-3": (0.9, 0.1), "fig-5-4": (0.5, 0.5)}


def topology(figure: str, study: studies.TopologyStudy, rows: list[dict[str, Any]]) -> StudyReport:
    """One of the figures from its study's rows."""
    axis, number = study.axis, figure.removeprefix("fig-").replace("-", ".")
    error, mse = (studies.averages(rows, axis, measure) for measure in ("error", "mse"))
    norms = {r["name"]: r["norm"] for r in rows}
    settings = sorted({r[axis] for r in rows})
    word = "labels" if axis == "labels" else "neurons"
    table = Table(
        f"Figure {number}, {counted(study.seeds, 'seed')}: squared error over variance (itself)",
        ["task", "norm of A*", *(f"{at} {word}" for at in settings)],
        [
            [name, f"{norms[name]:.2f}"]
            + [_entry(error[name][at], mse[name][at]) for at in settings]
            for name in error
        ],
        words=1,
    )
    results = [
        Row.of(
            f"{figure} {measure}",
            [r[key] for r in rows if (r["name"], r[axis]) == (name, at)],
            "1", task=name, **{axis: at},
        )
        for key, measure in (("error", "squared error / variance"), ("mse", "squared error"))
        for name in error
        for at in settings
    ]  # fmt: skip
    told = _of_norms(rows, axis) if figure in ("fig-5-1", "fig-5-2") else _of_data(figure, rows)
    picture = plot.error_curves(
        [
            {"series": r["name"], "at": r[axis], "error": r["error"]}
            for r in rows
            if not isinf(r["error"])
        ],
        xlabel="labelled nodes" if axis == "labels" else "neurons in a layer",
        title=f"Figure {number}",
    )
    return StudyReport(table, results, told, picture)


def _entry(error: float, mse: float) -> str:
    return "diverged" if isinf(mse) else f"{error:.3f} ({mse:.3f})"


def _of_norms(rows: list[dict[str, Any]], axis: str) -> str:
    more = "labels" if axis == "labels" else "neurons"
    error, mse = (studies.norm_verdict(rows, axis, measure) for measure in ("error", "mse"))
    return (
        f"The error falls with more {more} on {error['falls']} of {error['tasks']} graphs. "
        f"Spearman's correlation of the norm of A* with the error at the most {more}: "
        f"{error['spearman']:.2f} of the error over the variance, {mse['spearman']:.2f} of the "
        "error itself."
    )


def _of_data(figure: str, rows: list[dict[str, Any]]) -> str:
    parts = []
    for measure, name in (("error", "over the variance"), ("mse", "itself")):
        for sampler, found in studies.data_verdict(rows, measure).items():
            if found["best"] is None:
                parts.append(f"{sampler}: diverged on every p^")
                continue
            best = ", ".join(f"{p:g}" for p in found["best"])
            holds = "as claimed" if found["best"] == _CLAIMED[figure] else "not as claimed"
            parts.append(
                f"{sampler}, error {name}: lowest on p^ = ({best}), {holds} "
                f"({found['seeds']} of {found['of']} seeds)"
            )
    return "; ".join(dict.fromkeys(parts)) + "."
