"""Figures 5.1 to 5.4 as a table, a picture and a verdict."""

from __future__ import annotations

from math import isinf
from statistics import mean
from typing import Any

from graphtheory import plot
from graphtheory.experiments import topology_study as studies
from graphtheory.experiments.rows import Row
from graphtheory.report.study import StudyReport
from graphtheory.report.table import Table, counted, mean_spread

_CLAIMED = {"fig-5-3": (0.9, 0.1), "fig-5-4": (0.5, 0.5)}
_MEASURES = {"error": "squared error / variance", "mse": "squared error"}
Rows = list[dict[str, Any]]


def topology(figure: str, study: studies.TopologyStudy, rows: Rows) -> StudyReport:
    """One of the figures, or the search for step sizes, from its study's rows."""
    readings = {r.name: [row for row in rows if row["reading"] == r.name] for r in study.readings}
    told = {"fig-5-1": _of_norms, "fig-5-2": _of_norms, "steps-5": _of_steps}.get(figure, _of_data)
    verdict = " ".join(f"{name}: {told(figure, study, own)}" for name, own in readings.items())
    picture = None if figure == "steps-5" else _picture(figure, study, readings)
    return StudyReport(_table(figure, study, readings), _results(figure, study, rows), verdict,
                       picture)  # fmt: skip


def _title(figure: str) -> str:
    return f"Figure {figure.removeprefix('fig-').replace('-', '.')}"


def _table(figure: str, study: studies.TopologyStudy, readings: dict[str, Rows]) -> Table:
    """A line for each task, a column for each reading and setting."""
    axis = study.axis
    settings = study.widths if axis == "width" else study.labels
    word = "neurons" if axis == "width" else "labels"
    columns = [(name, at) for name in readings for at in settings]

    def line(task: studies.Task) -> list[str]:
        cells = [
            [r for r in readings[name] if (r["name"], r[axis]) == (task.name, at)]
            for name, at in columns
        ]
        facts = (f"{mean(r[key] for r in cells[0]):.2f}" for key in ("norm", "variance"))
        return [task.name, *facts, *map(_entry, cells)]

    title = "Held-out labelled nodes" if study.held_out else _title(figure)
    heads = (f"{name}, {at} {word}" if len(settings) > 1 else name for name, at in columns)
    return Table(
        f"{title}, {counted(study.seeds, 'seed')}: squared error over the variance of the targets",
        ["task", "norm of A*", "variance", *heads],
        [line(task) for task in study.tasks],
        words=1,
        note="Mean ± standard deviation over the seeds; a constant reaches 1.",
    )


def _entry(cell: Rows) -> str:
    errors = [r["error"] for r in cell]
    return "diverged" if isinf(max(errors)) else mean_spread(errors)


def _results(figure: str, study: studies.TopologyStudy, rows: Rows) -> list[Row]:
    cells: dict[tuple[str, str, int], Rows] = {}
    for r in rows:
        cells.setdefault((r["reading"], r["name"], r[study.axis]), []).append(r)
    return [
        Row.of(f"{figure} {what}", [r[key] for r in cell], "1",
               reading=reading, task=task, **{study.axis: at})
        for key, what in (_MEASURES | {"variance": "variance", "norm": "norm of A*"}).items()
        for (reading, task, at), cell in cells.items()
    ]  # fmt: skip


def _picture(figure: str, study: studies.TopologyStudy, readings: dict[str, Rows]) -> Any:
    """The two readings side by side."""
    by_target = figure in _CLAIMED
    return plot.error_curves(
        [
            {
                "series": r["learner"] if by_target else f"{r['name']}, norm {r['norm']:.2f}",
                "at": studies.pair(r["p_hat"]) if by_target else r[study.axis],
                "error": r["error"],
                "panel": f"{name}: squared error / variance",
            }
            for name, rows in readings.items()
            for r in _with_mean_norm(rows)
            if not isinf(r["error"])
        ],
        xlabel="p^ of the targets" if by_target else
        "neurons in a layer" if study.axis == "width" else "labelled nodes",
        title=_title(figure),
    )  # fmt: skip


def _with_mean_norm(rows: Rows) -> Rows:
    norms: dict[str, list[float]] = {}
    for r in rows:
        norms.setdefault(r["name"], []).append(r["norm"])
    return [r | {"norm": mean(norms[r["name"]])} for r in rows]


def _of_norms(figure: str, study: studies.TopologyStudy, rows: Rows) -> str:
    more = "neurons" if study.axis == "width" else "labels"
    error, mse, variance = (
        studies.norm_verdict(rows, study.axis, key) for key in ("error", "mse", "variance")
    )
    rises = [error["spearman"] > 0, mse["spearman"] > 0]
    holds = "found" if all(rises) else "not found" if not any(rises) else "found of one alone"
    return (
        f"{_left(study, rows)} The error falls with more {more} on {error['falls']} of "
        f"{error['tasks']} graphs. That a larger norm of A* leaves more of it: {holds}; Spearman's "
        f"correlation over the graphs at the most {more} {error['spearman']:.2f} over the "
        f"variance, {mse['spearman']:.2f} of the error itself, {variance['spearman']:.2f} of the "
        "variance."
    )


def _left(study: studies.TopologyStudy, rows: Rows) -> str:
    most = max(r[study.axis] for r in rows)
    left = [of[most] for of in studies.averages(rows, study.axis).values()]
    return f"{min(left):.2f} to {max(left):.2f} of the variance is left."


def _of_data(figure: str, study: studies.TopologyStudy, rows: Rows) -> str:
    claim = _CLAIMED[figure]
    ratio, plain = (studies.best_target(rows, measure) for measure in _MEASURES)
    quiet = studies.best_target(rows, "variance")[studies.FASTGCN]
    told = [
        f"{learner}: lowest over the variance on {_best(*ratio[learner])}, itself on "
        f"{_best(*plain[learner])};"
        for learner in ratio
    ]
    matched = studies.best_sampler(rows)
    own = sum(best[0] == p for p, best in matched.items())
    by = "; ".join(f"{studies.pair(p)} by {_best(*best)}" for p, best in matched.items())
    return (
        f"{_left(study, rows)} Claimed is p^ = {studies.pair(claim)}. {' '.join(told)} the "
        f"variance is lowest on {_best(*quiet)}. Among p*, whose errors on one p^ are of the same "
        f"targets, each p^ is learned best: {by}; by its own in {own} of {len(matched)}."
    )


def _best(best: studies.Pair | None, seeds: int, of: int) -> str:
    return "none, all diverged" if best is None else f"{studies.pair(best)} ({seeds} of {of} seeds)"


def _of_steps(figure: str, study: studies.TopologyStudy, rows: Rows) -> str:
    return f"{mean(r['error'] for r in rows):.2f} of the variance is left on average."
