"""Figures 2.1 to 2.5 as a table, a picture and a verdict."""

from __future__ import annotations

from statistics import fmean
from typing import Any

import numpy as np
from scipy.stats import linregress

from graphtheory import plot
from graphtheory.bench.rows import Row
from graphtheory.papers import stats as trends
from graphtheory.papers.core_neighborhood import claims
from graphtheory.papers.core_neighborhood.report import CLOSE, phase, speed
from graphtheory.papers.outcome import StudyReport
from graphtheory.papers.shallow_vit import study as studies
from graphtheory.papers.shallow_vit import training as tokens
from graphtheory.report.table import Table

Rows = list[dict[str, Any]]


def shallow_vit(figure: str, study: Any, rows: Rows) -> StudyReport:
    """One of the figures from its study's rows."""
    if isinstance(study, studies.SparseStudy):
        return sparse(figure, study, rows)
    if isinstance(study, studies.TokenPhases):
        made = phase(figure, study, rows, ylabel="training sets")
        if study.axis == "alpha_star":
            return made
        told = " ".join(_roots(study, rows, case.name) for case in study.cases)
        return StudyReport(made.table, made.rows, f"{made.verdict} {told}", made.picture)
    return speed(figure, study, rows) if study.claims else attention(figure, study, rows)


def _roots(study: studies.TokenPhases, rows: Rows, case: str) -> str:
    r"""Whether :math:`1/\sqrt{N}` falls along a line in sigma; N where half of the trials succeed.

    Beyond the grid N is its end.
    """
    grid = claims.successes(study, rows, case)
    if len(grid.values) < 3:
        return f"{case}: {len(grid.values)} values of sigma, through which a line always goes."
    whole, drawn = trends.boundaries(grid)
    ends = grid.labels[[0, -1]]
    lines = [linregress(grid.values, np.clip(h, *ends) ** -0.5) for h in (whole, *drawn)]
    low, high = np.quantile([line.slope for line in lines[1:]], (0.025, 0.975))
    slope, fit = lines[0].slope, lines[0].rvalue ** 2
    return (
        f"{case}: 1/sqrt(N) against sigma has slope {slope:.3f} [{low:.3f}, {high:.3f}] and R^2 "
        f"{fit:.2f}, claimed a falling line: {'holds' if high < 0 and fit > 0.9 else 'not found'}."
    )


def attention(figure: str, study: studies.TokenCurves, rows: Rows) -> StudyReport:
    """Figure 2.4: attention on label-relevant tokens, and on all others."""
    title = f"Figure 2.4, {study.seeds} trials"
    lines, results, told = [], [], []
    for case in study.cases:
        mine = [r for r in rows if r["case"] == case.name]
        means = {}
        for step in (min(r["step"] for r in mine), max(r["step"] for r in mine)):
            values = [r["mass"] for r in mine if r["step"] == step]
            means[step] = fmean(values)
            results.append(Row.of(f"{figure} attention", values, "1", case=case.name, step=step))
        error = fmean(r["error"] for r in mine if r["step"] == step)
        first, last = means.values()
        lines.append([case.name, f"{first:.3f}", f"{last:.3f}", f"{100 * error:.1f}"])
        found = "holds" if last > CLOSE else "holds in part" if last > first else "not found"
        told.append(f"{case.name}: {first:.3f} -> {last:.3f}, claimed to rise close to 1: {found}.")
    table = Table(
        f"{title}: attention on label-relevant tokens",
        ["case", "before", "after", "test error %"], lines, words=1,
    )  # fmt: skip
    curves = [
        {"case": r["case"], "series": series, "step": r["step"], "mass": mass}
        for r in rows
        for series, mass in (("label-relevant", r["mass"]), ("all others", 1 - r["mass"]))
    ]
    picture = plot.step_curves(curves, value="mass", ylabel="attention", title=title)
    return StudyReport(table, results, " ".join(told), picture)


def sparse(figure: str, study: studies.SparseStudy, rows: Rows) -> StudyReport:
    """Figure 2.5: test loss over the tokens that stay, for each sparsifier."""
    title = f"Figure 2.5, {study.seeds} trials, {study.labels} sets"
    lines, results, told = [], [], []
    for rule in study.rules:
        mine = [r for r in rows if r["rule"] == rule]
        by = {float(k): [r["hinge"] for r in mine if r["kept"] == k] for k in sorted(study.kept)}
        for kept, of in by.items():
            results.append(Row.of(f"{figure} test hinge loss", of, "1", rule=rule, kept=int(kept)))
        found = trends.trend(list(by), trends.medians(by))
        share = {k: fmean(r["alpha_star"] for r in mine if r["kept"] == k) for k in study.kept}
        lines.append(
            [rule, *(f"{fmean(by[k]):.4f}" for k in study.kept), f"{share[study.kept[-1]]:.2f}"]
        )
        rises, helps = found.direction == "rises", rule != tokens.RANDOM  # "cannot be improved"
        told.append(
            f"{rule}: the loss {_plainly(found.direction)} with the tokens that stay ({found}), "
            f"claimed {'to rise' if helps else 'not to rise'}: "
            f"{'holds' if rises == helps else 'not found'}."
        )
    table = Table(
        f"{title}: test hinge loss",
        ["removed", *(f"{k} stay" for k in study.kept), "alpha_* at last"], lines, words=1,
    )  # fmt: skip
    points = [
        {"series": r["rule"], "at": r["kept"], "error": r["hinge"], "panel": "test hinge loss"}
        for r in rows
    ]
    picture = plot.error_curves(points, xlabel="tokens that stay", title=title)
    return StudyReport(table, results, " ".join(told), picture)


def _plainly(direction: str) -> str:
    return {"no trend": "has no trend"}.get(direction, direction)
