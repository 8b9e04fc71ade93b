"""Figures E.1 and E.2 as a table, a picture and a verdict; how laws and errors are told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from graphtheory import plot
from graphtheory.bench.rows import Row
from graphtheory.papers.icl import errors as icl_errors
from graphtheory.papers.icl import growth as icl_growth
from graphtheory.papers.icl.errors import matching
from graphtheory.papers.icl.growth import CoverStudy, GrowthStudy
from graphtheory.papers.outcome import StudyReport
from graphtheory.papers.power_law import Exponent
from graphtheory.report.table import Table, counted, mean_spread

Rows = list[dict[str, Any]]
SMALL = 0.01  # the error below which a claim of none holds


def growth(figure: str, study: GrowthStudy, rows: Rows) -> StudyReport:
    """Figure E.1: prompt length and steps that training needs, over alpha."""
    lines, results, told, points, laws = [], [], [], [], {}
    for kind, axis, name, claimed in (
        ("length", "length", "contexts of a training prompt", -1.0),
        ("steps", "step", "steps of SGD", -0.667),
    ):
        needed = icl_errors.needed_lengths(matching(rows, kind=kind), study.threshold, axis)
        law = icl_errors.length_law(needed)
        medians = [float(np.median(counts)) for counts in needed.values()]
        lines.append([name, *(count_of(m) for m in medians), "-" if law is None else str(law),
                      f"{claimed:.2g}"])  # fmt: skip
        told.append(f"{name}: {law_of(law, name.split()[0], claimed)}")
        for alpha, counts in needed.items():
            there = [count for count in counts if np.isfinite(count)]
            share = len(there) / len(counts)
            about = f"{figure} {name}"
            results.append(Row.of(f"{about}, share that gets there", share, "1", alpha=alpha))
            if there:
                results.append(Row.of(about, there, "1", alpha=alpha))
                points += [{"case": name, "value": alpha, "number": n} for n in there]
        results += exponent_rows(figure, f"exponent of alpha in {name}", law)
        if law is not None:
            laws[name] = {"factor": law.factor, "exponent": law.exponent, "claimed": claimed}
    table = Table(
        f"Figure E.1, {counted(study.seeds, 'network')}: median until the test error is below "
        f"{percent(study.threshold)} %",
        ["needed", *(f"alpha = {alpha:g}" for alpha in study.alphas), "exponent", "claimed"], lines,
    )  # fmt: skip
    picture = plot.power_laws(
        points, laws, xlabel="alpha of training", ylabel="needed", title="Figure E.1"
    ) if points else None  # fmt: skip
    return StudyReport(table, results, " ".join(told), picture)


def cover(figure: str, study: CoverStudy, rows: Rows) -> StudyReport:
    """Figure E.2: the error on unseen tasks over the number of training tasks."""
    lines, results, told, drawn = [], [], [], []
    for m_1 in study.relevant:
        own = matching(rows, relevant=m_1)
        cells = {
            more: [r["error"] for r in own if r["tasks"] == m_1 + more] for more in study.beyond
        }
        lines.append([f"M1 = {m_1}", *(spread(c) if c else "-" for c in cells.values())])
        results += [
            Row.of(f"{figure} test error", errors, "1", relevant=m_1, tasks=m_1 + more)
            for more, errors in cells.items()
            if errors
        ]
        drawn += [
            {"panel": f"M1 = {m_1}", "series": "unseen tasks", "at": r["tasks"] - m_1,
             "error": r["error"]}
            for r in own
        ]  # fmt: skip
        at = icl_growth.jump(own, m_1)
        holds = at["most from on"] < SMALL < at["least below"]
        told.append(
            f"M1 = {m_1}: at least {percent(at['least below'])} % with fewer tasks, "
            f"{percent(at['at'])} % with M1, at most {percent(at['most from on'])} % from there "
            f"on: {'holds' if holds else 'not found'}."
        )
    table = Table(
        f"Figure E.2, {counted(study.seeds, 'network')}: test error % on unseen tasks",
        ["", *(f"M1 {more:+d} tasks" if more else "M1 tasks" for more in study.beyond)], lines,
        note=f"Mean ± standard deviation over networks, each with tasks of its own, "
        f"{study.prompts} prompts each.",
    )  # fmt: skip
    picture = plot.prompt_errors(
        drawn, xlabel="training tasks - M1", title="Figure E.2", marks=(100 * SMALL,)
    )
    return StudyReport(table, results, " ".join(told), picture)


def law_of(law: Exponent | None, what: str, claimed: float, letter: str = "alpha") -> str:
    """A fitted law beside the claim; it holds where the interval contains it."""
    if law is None:
        return "too few get there for a fit."
    holds = "holds" if law.low <= claimed <= law.high else "not found"
    return f"{what} ~ {letter}^{law}, claimed {claimed:.2g}: {holds}."


def exponent_rows(figure: str, what: str, law: Exponent | None, **about: Any) -> list[Row]:
    """The exponent and the ends of its interval."""
    if law is None:
        return []
    ends = {"": law.exponent, ", lower end": law.low, ", upper end": law.high}
    return [Row.of(f"{figure} {what}{end}", value, "1", **about) for end, value in ends.items()]


def percent(value: float) -> str:
    """Three digits, without the sign."""
    return f"{100 * value:.3g}"


def spread(errors: Sequence[float]) -> str:
    """Mean and standard deviation in per cent."""
    return mean_spread([100 * error for error in errors])


def count_of(value: float) -> str:
    """A number; "more" of one that lies beyond the grid."""
    return f"{value:.3g}" if np.isfinite(value) else "more"
