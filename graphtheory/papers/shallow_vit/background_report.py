"""Figures 2.6a to 2.6c as a table, a picture and a verdict."""

from __future__ import annotations

import math
from statistics import fmean
from typing import Any

import numpy as np

from graphtheory import plot
from graphtheory.bench.rows import Row
from graphtheory.papers.outcome import StudyReport
from graphtheory.papers.shallow_vit import background_claims as claims
from graphtheory.papers.shallow_vit.background_study import (
    AGREEING,
    CONFLICTING,
    BackgroundStudy,
    SpuriousStudy,
)
from graphtheory.report.table import Table

_CLAIMED = -2.0  # of alpha_star in N, eq. (2.11)
Rows = list[dict[str, Any]]


def backgrounds(figure: str, study: Any, rows: Rows) -> StudyReport:
    """One of the figures from its study's rows."""
    for row in rows:
        row["alpha_star"] = round(row["alpha_star"], 3)
    if isinstance(study, SpuriousStudy):
        return spurious(figure, study, rows)
    return (needed if study.target else accuracy)(figure, study, rows)


def accuracy(figure: str, study: BackgroundStudy, rows: Rows) -> StudyReport:
    """Figure 2.6a: accuracy over alpha_star, for several N."""
    title = _title("2.6a", study)
    table, results = _grid(figure, study, rows, title)
    told = [
        _rises(f"{labels} images", "alpha_*", [r for r in rows if r["labels"] == labels],
               "alpha_star")
        for labels in study.labels
    ]  # fmt: skip
    told += [_more(alpha, rows) for alpha in _alphas(rows)]
    points = [
        {"series": f"{r['labels']:,} images", "at": r["alpha_star"], "error": 100 * r["accuracy"],
         "panel": "test accuracy %"}
        for r in rows
    ]  # fmt: skip
    picture = plot.error_curves(points, xlabel="alpha_*", title=title, from_zero=False)
    return StudyReport(table, results, " ".join(told), picture)


def needed(figure: str, study: BackgroundStudy, rows: Rows) -> StudyReport:
    """Figure 2.6b: accuracy over N, and the N that is needed at each alpha_star."""
    title = _title("2.6b", study)
    table, results = _grid(figure, study, rows, title)
    found = claims.needed(rows, study.target)
    about = f"images for an accuracy of {100 * study.target:g} %"
    told = [_more(alpha, rows) for alpha in found]
    for alpha, counts in found.items():
        middle = float(np.median(counts))
        told.append(f"alpha_* = {alpha:g}: {about}: {_count(middle, study.labels)}.")
        inside = [n for n in counts if n and math.isfinite(n)]
        if inside:
            results.append(Row.of(f"{figure} {about}", inside, "1", alpha_star=alpha))
    law = claims.growth(found)
    if law is None:
        told.append("Too few shares have their number inside the grid for an exponent.")
    else:
        holds = "holds" if law.low <= _CLAIMED <= law.high else "not found"
        told.append(f"Images ~ alpha_*^{law}, claimed {_CLAIMED:g}: {holds}.")
        results.append(Row.of(f"{figure} exponent of the images", law.exponent, "1"))
    points = [
        {"panel": "", "series": f"alpha_* = {r['alpha_star']:g}", "at": r["labels"],
         "value": r["accuracy"]}
        for r in rows
    ]  # fmt: skip
    picture = plot.value_curves(
        points, xlabel="training images", ylabel="test accuracy %", title=title, scale=100,
        mark=100 * study.target,
    )  # fmt: skip
    return StudyReport(table, results, " ".join(told), picture)


def spurious(figure: str, study: SpuriousStudy, rows: Rows) -> StudyReport:
    """Figure 2.6c: accuracy on test images whose background says nothing."""
    title = _title("2.6c", study)
    for row in rows:
        row["gap"] = row[AGREEING] - row[CONFLICTING]
    names = {"accuracy": "test accuracy", "gap": "gap between backgrounds"}
    lines, results, told, points = [], [], [], []
    for start in study.starts:
        mine = [r for r in rows if r["start"] == start]
        for key, name in names.items():
            by = claims.over(mine, "alpha_star", key)
            lines.append([start, name, *(_percent(of) for of in by.values())])
            results += [
                Row.of(f"{figure} {name}", of, "1", start=start, alpha_star=alpha)
                for alpha, of in by.items()
            ]
            points += [
                {"panel": f"{name} %", "series": start, "at": alpha, "error": 100 * value}
                for alpha, of in by.items()
                for value in of
            ]
        told.append(_rises(start, "alpha_*", mine, "alpha_star"))
        gap = claims.direction(mine, "alpha_star", "gap")
        told.append(
            f"{start}: the gap between test images with the background of their class in training "
            f"and those with the other one {_plainly(gap.direction)} ({gap}), claimed falls: "
            f"{'holds' if gap.direction == 'falls' else 'not found'}."
        )
    told += _starts(study, rows)
    heads = [f"alpha_* = {a:g}" for a in _alphas(rows)]
    table = Table(f"{title}: %", ["start", "", *heads], lines, words=2)
    picture = plot.error_curves(points, xlabel="alpha_*", title=title, from_zero=False)
    return StudyReport(table, results, " ".join(told), picture)


def _starts(study: SpuriousStudy, rows: Rows) -> list[str]:
    """What the better start gains, over all shares."""
    if len(study.starts) < 2:
        return []
    worse, better = (
        [r["accuracy"] for r in rows if r["start"] == start] for start in study.starts[:2]
    )
    gains = [b - a for a, b in zip(worse, better, strict=True)]
    ahead = sum(gain > 0 for gain in gains)
    return [
        f"{study.starts[1]}: {100 * fmean(gains):+.1f} points on average, ahead in {ahead} of "
        f"{len(gains)} runs, claimed better."
    ]


def _title(number: str, study: BackgroundStudy | SpuriousStudy) -> str:
    return f"Figure {number}, {study.scene.dataset}, {study.seeds} networks"


def _grid(figure: str, study: BackgroundStudy, rows: Rows, title: str) -> tuple[Table, list[Row]]:
    """Accuracies, a line for each N."""
    lines, results = [], []
    for labels in study.labels:
        by = claims.over([r for r in rows if r["labels"] == labels], "alpha_star")
        lines.append([f"{labels:,}", *(_percent(of) for of in by.values())])
        results += [
            Row.of(f"{figure} test accuracy", of, "1", alpha_star=alpha, labels=labels)
            for alpha, of in by.items()
        ]
    heads = [f"alpha_* = {a:g}" for a in _alphas(rows)]
    return Table(f"{title}: test accuracy %", ["images", *heads], lines, words=1), results


def _alphas(rows: Rows) -> list[float]:
    return sorted({r["alpha_star"] for r in rows})


def _more(alpha: float, rows: Rows) -> str:
    mine = [r for r in rows if r["alpha_star"] == alpha]
    return _rises(f"alpha_* = {alpha:g}", "N", mine, "labels")


def _rises(about: str, letter: str, rows: Rows, axis: str) -> str:
    found, gain = claims.direction(rows, axis), claims.gains(rows, axis)
    return (
        f"{about}: accuracy {_plainly(found.direction)} with {letter} ({found}), by "
        f"{100 * fmean(gain):.1f} points from end to end ({100 * min(gain):.1f} to "
        f"{100 * max(gain):.1f}), claimed rises: "
        f"{'holds' if found.direction == 'rises' else 'not found'}."
    )


def _plainly(direction: str) -> str:
    return {"no trend": "has no trend"}.get(direction, direction)


def _percent(values: list[float]) -> str:
    return f"{100 * fmean(values):.1f}"


def _count(number: float, labels: tuple[int, ...]) -> str:
    if math.isinf(number):
        return f"more than {labels[-1]:,}"
    return f"at most {labels[0]:,}" if number == 0 else f"{number:,.0f}"
