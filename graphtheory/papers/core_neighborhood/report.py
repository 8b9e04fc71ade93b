"""Figures 3.3 to 3.7 and B.6 as a table, a picture and a verdict."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean
from typing import Any, Protocol

from graphtheory import plot
from graphtheory.bench.rows import Row
from graphtheory.papers.core_neighborhood import claims
from graphtheory.papers.core_neighborhood import study as studies
from graphtheory.papers.outcome import StudyReport, became
from graphtheory.papers.power_law import Exponent
from graphtheory.report.table import Table

_LETTER = {"eps_s": "1 - eps_S"}
_LOOSE = 0.1  # a second threshold of the hinge loss, where the first one may never be reached
_NO_LAW = 0.01  # p-value
_NEAR = (0.75, 1.25)  # of 1
CLOSE = 0.95  # of the attention is close to 1


def core_neighborhood(figure: str, study: Any, rows: list[dict[str, Any]]) -> StudyReport:
    """One of the figures from its study's rows."""
    if isinstance(study, studies.PhaseStudy):
        return phase(figure, study, rows)
    return {"fig-3-4": loss, "fig-3-5": attention}.get(figure, speed)(figure, study, rows)


class Curves(claims.Claimed, Protocol):
    """A study of curves."""

    @property
    def values(self) -> Sequence[float]:
        """Of the axis."""
        ...


def phase(
    figure: str,
    study: claims.Claimed,
    rows: list[dict[str, Any]],
    ylabel: str = "labelled nodes",
) -> StudyReport:
    """Figures 2.1, 2.3, 3.3a, 3.3b and 3.6: successes, their boundary and its exponent.

    A claimed exponent that is nan is none: the figure claims something else.
    """
    found, number = claims.boundaries(study, rows), _number(figure)
    letter, title = (
        _LETTER.get(study.axis, study.axis),
        f"Figure {number}, {study.seeds} trials a cell",
    )
    values = list(next(iter(found.values()))["half"])
    table = Table(
        f"{title}: labels at which half of the trials succeed",
        ["case", *(f"{letter} = {v:.3g}" for v in values), "exponent", "claimed"],
        [
            [name, *(_labels(of["half"][v]) for v in values), _exponent(of["found"]),
             "-" if math.isnan(of["claimed"]) else f"{of['claimed']:g}"]
            for name, of in found.items()
        ],
        words=1,
    )  # fmt: skip
    cells, results = [], []
    for name, of in found.items():
        grid = of["grid"]
        for i, v in enumerate(values):
            for j, labels in enumerate(grid.labels.tolist()):
                share = grid.counts[i, j] / grid.trials
                cells.append({"case": name, "value": v, "labels": labels, "share": share,
                              "half": of["half"][v]})  # fmt: skip
                of_cell = _hinge(study, rows, name, v, labels)
                about = {"case": name, letter: round(v, 6), "labels": int(labels)}
                results.append(Row.of(f"{figure} share of successes", share, "1", **about))
                results.append(Row.of(f"{figure} test hinge loss", of_cell, "1", **about))
        results += _exponents(figure, "exponent of the labels", name, of["found"])
    laws = {
        name: {"factor": of["found"].factor, "exponent": of["found"].exponent,
               "claimed": of["claimed"]}
        for name, of in found.items()
        if not math.isnan(of["found"].exponent)
    }  # fmt: skip
    told = " ".join(_boundary(name, of, letter) for name, of in found.items())
    picture = plot.phase_diagram(cells, laws, xlabel=letter, ylabel=ylabel, title=title)
    return StudyReport(table, results, told, picture)


def _hinge(
    study: claims.Claimed, rows: list[dict[str, Any]], case: str, v: float, labels: float
) -> list[float]:
    at = 1 - v if study.axis == "eps_s" else v
    return [
        r["hinge"]
        for r in rows
        if r["case"] == case and r["labels"] == labels and abs(r[study.axis] - at) < 1e-9
    ]


def _boundary(name: str, of: dict[str, Any], letter: str) -> str:
    found: Exponent = of["found"]
    if math.isnan(found.exponent):
        return f"{name}: no boundary inside the grid."
    claimed = of["claimed"]
    if math.isnan(claimed):
        return f"{name}: labels ~ ({letter})^{found}."
    if math.isnan(found.misfit):
        told = f"{name}: labels ~ ({letter})^{found}, claimed {claimed:g}"
        return f"{told}: no verdict of two values."
    holds = found.low <= claimed <= found.high
    law = "no power law" if found.misfit < _NO_LAW else "a power law fits"
    return (
        f"{name}: labels ~ ({letter})^{found}, claimed {claimed:g}: "
        f"{'holds' if holds and found.misfit >= _NO_LAW else 'not found'} ({law}, p = "
        f"{found.misfit:.2g})."
    )


def loss(figure: str, study: studies.CurveStudy, rows: list[dict[str, Any]]) -> StudyReport:
    """Figure 3.4: the test hinge loss settles near 2 eps_0, later for larger eps_0."""
    ends, title = claims.last(rows, study.axis), f"Figure 3.4, {study.seeds} trials"
    lines, results, told = [], [], []
    for case in study.cases:
        for value in study.values:
            hinge = [r["hinge"] for r in ends[case.name, value]]
            about = {"case": case.name, "eps_0": value}
            results.append(Row.of(f"{figure} last test hinge loss", hinge, "1", **about))
            speed = claims.settling(rows, case.name, value)
            results.append(Row.of(f"{figure} steps to settle", speed, "1", **about))
            ratio = f"{fmean(hinge) / (2 * value):.2f}" if value else "-"
            lines.append([case.name, f"{value:g}", f"{fmean(hinge):.4f}", f"{2 * value:g}", ratio,
                          f"{fmean(speed):.0f}"])  # fmt: skip
        told.append(_settled(rows, case.name, study.seeds))
    table = Table(
        f"{title}: test hinge loss after {max(r['step'] for r in rows)} steps",
        ["case", "eps_0", "last loss", "2 eps_0", "ratio", "steps to settle"], lines, words=1,
    )  # fmt: skip
    curves = [
        {"case": r["case"], "series": f"eps_0 = {r['eps_0']:g}", "step": r["step"],
         "hinge": r["hinge"]}
        for r in rows
    ]  # fmt: skip
    marks = {f"eps_0 = {v:g}": 2 * v for v in study.values}
    picture = plot.step_curves(
        curves, value="hinge", ylabel="test hinge loss (dotted: 2 eps_0)", title=title, marks=marks
    )
    return StudyReport(table, results, " ".join(told), picture)


def _settled(rows: list[dict[str, Any]], case: str, seeds: int) -> str:
    ratios, slower = claims.ratios(rows, case), claims.slower(rows, case)
    near = all(_NEAR[0] <= of.low and of.high <= _NEAR[1] for of in ratios.values())
    shown = ", ".join(f"{of} for eps_0 = {eps:g}" for eps, of in ratios.items())
    return (
        f"{case}: the last loss over 2 eps_0 is {shown}, claimed near 1 (within a quarter): "
        f"{became(near, seeds)}. The steps to settle rise with eps_0 in rank by {slower}, claimed "
        f"to rise: {became(slower.direction == 'rises', seeds)}."
    )


def attention(figure: str, study: studies.CurveStudy, rows: list[dict[str, Any]]) -> StudyReport:
    """Figure 3.5: attention on class-relevant nodes, and on all others."""
    title = f"Figure 3.5, {study.seeds} trials"
    names = {"mass": "all labelled nodes", "decisive": "discriminative", "other": "others"}
    lines, results, told = [], [], []
    for case in study.cases:
        mine = [r for r in rows if r["case"] == case.name]
        ends = (min(r["step"] for r in mine), max(r["step"] for r in mine))
        shown = [case.name]
        for key, name in names.items():
            means = []
            for step, when in zip(ends, ("before", "after"), strict=True):
                values = [r[key] for r in mine if r["step"] == step and key in r]
                about = {"case": case.name, "nodes": name, "step": step}
                results.append(Row.of(f"{figure} attention {when} training", values, "1", **about))
                means.append(fmean(values))
            shown.append(f"{means[0]:.3f} -> {means[1]:.3f}")
        error = fmean(r["error"] for r in mine if r["step"] == ends[1])
        lines.append([*shown, f"{100 * error:.1f}"])
        end, over = claims.risen(mine, case.name)
        rises = over.direction == "rises"
        holds = "holds" if rises and end.low > CLOSE else "holds in part" if rises else False
        told.append(
            f"{case.name}: {shown[1]} [{end.low:.3f}, {end.high:.3f}], in rank over the steps "
            f"{over}, claimed to rise to 1 (above {CLOSE}): {became(holds, study.seeds)}."
        )
    table = Table(
        f"{title}: attention on class-relevant nodes",
        ["case", *names.values(), "test error %"], lines, words=1,
    )  # fmt: skip
    curves = [
        {"case": r["case"], "series": series, "step": r["step"], "mass": mass}
        for r in rows
        for series, mass in (("class-relevant", r["mass"]), ("all others", 1 - r["mass"]))
    ]
    picture = plot.step_curves(curves, value="mass", ylabel="attention", title=title)
    return StudyReport(table, results, " ".join(told), picture)


def speed(figure: str, study: Curves, rows: list[dict[str, Any]]) -> StudyReport:
    """Figures 2.2, 3.7 and B.6: steps that are needed, over the axis."""
    title = f"Figure {_number(figure)}, {study.seeds} trials"
    lines, results, told, points, laws = [], [], [], [], {}
    for threshold in (studies.SUCCESS, _LOOSE):
        for name, of in claims.growth(study, rows, threshold).items():
            found, claimed = of["found"], of["claimed"]
            about = f"{name}, loss below {threshold:g}"
            lines.append([about, *(_labels(of["median"][v]) for v in study.values),
                          _exponent(found), f"{claimed:g}"])  # fmt: skip
            told.append(f"{about}: {_growth(study.axis, found, claimed)}")
            for value, needed in of["needed"].items():
                there = [count for count in needed if math.isfinite(count)]
                at = {"case": name, "loss": threshold, study.axis: value}
                share = len(there) / len(needed)
                results.append(Row.of(f"{figure} share of trials that get there", share, "1", **at))
                if there:
                    results.append(Row.of(f"{figure} steps of those", there, "1", **at))
            if found is None:
                continue
            results += _exponents(figure, "exponent of the steps", about, found)
            laws[about] = {"factor": found.factor, "exponent": found.exponent, "claimed": claimed}
            points += [
                {"case": about, "value": value, "number": count}
                for value, needed in of["needed"].items()
                for count in needed
                if math.isfinite(count)
            ]
    table = Table(
        f"{title}: median steps until the test hinge loss is below",
        ["case", *(f"{study.axis} = {v:g}" for v in study.values), "exponent", "claimed"],
        lines, words=1,
    )  # fmt: skip
    picture = None
    if points:
        picture = plot.power_laws(
            points, laws, xlabel=study.axis, ylabel="steps of SGD", title=title
        )
    return StudyReport(table, results, " ".join(told), picture)


def _growth(axis: str, found: Exponent | None, claimed: float) -> str:
    if found is None:
        return "too few trials get there for a fit."
    holds = "holds" if found.low <= claimed <= found.high else "not found"
    return f"steps ~ {axis}^{found}, claimed {claimed:g}: {holds}."


def _exponents(figure: str, what: str, case: str, found: Exponent) -> Sequence[Row]:
    ends = {"": found.exponent, ", lower end": found.low, ", upper end": found.high}
    if math.isnan(found.exponent):
        return []
    return [Row.of(f"{figure} {what}{end}", v, "1", case=case) for end, v in ends.items()]


def _exponent(found: Exponent | None) -> str:
    return "-" if found is None or math.isnan(found.exponent) else str(found)


def _labels(value: float) -> str:
    return "none" if math.isinf(value) else "all" if value == 0 else f"{value:.1f}"


def _number(figure: str) -> str:
    return figure.removeprefix("fig-").replace("-", ".").replace("b.", "B.")
