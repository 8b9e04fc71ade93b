"""Figures 5.1 to 5.4 as a table, a picture and a verdict."""

from __future__ import annotations

from math import isinf
from statistics import mean
from typing import Any

from graphtheory import plot
from graphtheory.bench.rows import Row
from graphtheory.papers.outcome import StudyReport, became
from graphtheory.papers.topology import claims
from graphtheory.papers.topology import study as studies
from graphtheory.report.table import Table, counted, mean_spread

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
    by_target = figure in ("fig-5-3", "fig-5-4")
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
    falling = claims.falling(rows, study.axis)
    falls = sum(one.direction == "falls" for one in falling.values())
    every = f"holds on {falls} of {len(falling)} graphs" if falls else "not found"
    over = [claims.over_norm(rows, study.axis, measure) for measure in (*_MEASURES, "variance")]
    ratio, plain = (one.direction == "rises" for one in over[:2])
    larger = {(True, True): "holds", (False, False): "not found"}.get(
        (ratio, plain), f"holds {'over the variance' if ratio else 'of the error itself'} alone"
    )
    return (
        f"{_left(study, rows)} The error over the variance falls with more {more} in rank by "
        f"{', '.join(map(str, falling.values()))}, claimed to fall: {became(every, study.seeds)}. "
        f"A larger norm of A* leaves more of it at the most {more}, in rank over the "
        f"{len(falling)} graphs by {over[0]} over the variance, {over[1]} of the error itself, "
        f"{over[2]} of the variance, claimed to rise: {became(larger, study.seeds)}."
    )


def _left(study: studies.TopologyStudy, rows: Rows) -> str:
    most = max(r[study.axis] for r in rows)
    left = [of[most] for of in claims.averages(rows, study.axis).values()]
    return f"{min(left):.2f} to {max(left):.2f} of the variance is left."


def _of_data(figure: str, study: studies.TopologyStudy, rows: Rows) -> str:
    ratio, plain = (claims.best_target(rows, measure) for measure in _MEASURES)
    quiet = claims.best_target(rows, "variance")[studies.FASTGCN]
    told = []
    for learner, best in ratio.items():
        claim = _claimed(figure, next(r for r in rows if r["learner"] == learner))
        word = "holds" if best.holds(claim) else "direction only" if best.at == claim else False
        told.append(
            f"{learner}: lowest over the variance on {_best(best)}, claimed {studies.pair(claim)}: "
            f"{became(word, study.seeds)}; itself on {_best(plain[learner])}."
        )
    matched = claims.best_sampler(rows)
    own = sum(best.at == p for p, best in matched.items())
    by = "; ".join(f"{studies.pair(p)} by {_best(best)}" for p, best in matched.items())
    return (
        f"{_left(study, rows)} {' '.join(told)} The variance is lowest on {_best(quiet)}. Among "
        f"p*, whose errors on one p^ are of the same targets, each p^ is learned best: {by}; by "
        f"its own in {own} of {len(matched)}."
    )


def _claimed(figure: str, row: dict[str, Any]) -> studies.Pair:
    """The p^ of which a learner is claimed to do best: its own p*; on an even graph (0.5, 0.5)."""
    if figure == "fig-5-4":
        return (0.5, 0.5)
    return (0.9, 0.1) if row["sampler"] == studies.FASTGCN else (row["p_star"][0], row["p_star"][1])


def _best(best: claims.Best) -> str:
    if best.at is None:
        return "none, all diverged"
    return (
        f"{studies.pair(best.at)} ({best.seeds} of {best.of} seeds, "
        f"{100 * best.share:.0f} % of resamples)"
    )


def _of_steps(figure: str, study: studies.TopologyStudy, rows: Rows) -> str:
    return f"{mean(r['error'] for r in rows):.2f} of the variance is left on average."
