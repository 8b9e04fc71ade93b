"""Figures 4.1 and 4.8 as a table, a picture and a verdict."""

from __future__ import annotations

from statistics import median
from typing import Any

from graphtheory import plot
from graphtheory.bench.rows import Row
from graphtheory.papers.mixture import image_study as studies
from graphtheory.papers.outcome import StudyReport
from graphtheory.papers.stats import Minimum
from graphtheory.report.table import Table, counted

Rows = list[dict[str, Any]]
_LETTER = {"noise": "delta^2", "fraction": "fraction"}
_SHOWN = {"minority": "the minority", "average": "both groups", "majority": "the majority"}
_WORD = {"rises": "accuracy falls", "falls": "accuracy rises", "no trend": "no trend"}


def group_images(figure: str, study: studies.GroupStudy, rows: Rows) -> StudyReport:
    """One of the figures from its study's rows."""
    title = _title(figure, study)
    lines, results, told = [], [], []
    for minority in study.minorities:
        kind = studies.KINDS[minority]
        for measure in studies.MEASURES:
            by = studies.cells(rows, kind, measure)
            found, holds = studies.verdict(study, rows, kind, measure)
            lines.append(
                [f"{kind} minority, {_SHOWN[measure]}", *(_percent(of) for of in by.values()),
                 _short(found)]
            )  # fmt: skip
            results += [
                Row.of(f"{figure} accuracy", [1 - e for e in of], "1", dataset=study.dataset,
                       minority=kind, group=measure, **{_LETTER[study.axis]: value})
                for value, of in by.items()
            ]  # fmt: skip
            if measure != "majority":
                told.append(_told(kind, measure, found, holds))
        told.append(_covariances(study, rows, kind))
    heads = [f"{_LETTER[study.axis]} = {value:g}" for value in study.values]
    table = Table(title, ["test accuracy %", *heads, "found"], lines, words=1, note=_NOTE)
    return StudyReport(table, results, " ".join(told), _picture(study, rows, title))


_NOTE = (
    "Median [q20, q80] on test images without noise, each in both kinds. Found: of the medians' "
    "Spearman correlation with the setting the 95 % interval over resampled seeds, or where the "
    "error is lowest and in how many resamples that is at no end."
)


def _title(figure: str, study: studies.GroupStudy) -> str:
    number = figure.removeprefix("fig-").replace("-", ".")
    return f"Figure {number} on {study.dataset}, {counted(study.seeds, 'seed')}"


def _percent(errors: list[float]) -> str:
    found = Row.of("", [100 * (1 - e) for e in errors], "%")
    return f"{found.median:.1f} [{found.q20:.1f}, {found.q80:.1f}]"


def _short(found: studies.Correlation | studies.Minimum) -> str:
    if isinstance(found, Minimum):
        return f"best at {found.at:g} ({100 * found.inside:.0f} %)"
    return f"{-found.rho:.2f} [{-found.high:.2f}, {-found.low:.2f}]"


def _told(
    kind: str, measure: str, found: studies.Correlation | studies.Minimum, holds: bool
) -> str:
    became = "holds" if holds else "not found"
    about = f"{kind} minority, {_SHOWN[measure]}"
    if isinstance(found, Minimum):
        said = f"highest accuracy at delta^2 = {found.at:g}, at no end in {found.inside:.0%}"
        return f"{about}: {said} of resamples, claimed to rise and then to fall: {became}."
    said = f"{_WORD[found.direction]} with the fraction ({_short(found)})"
    return f"{about}: {said}, claimed {_WORD[studies.CLAIMED[kind]]}: {became}."


def _covariances(study: studies.GroupStudy, rows: Rows, kind: str) -> str:
    """How large the two groups' covariances are at the ends of the setting."""
    ends = study.values[0], study.values[-1]
    (first, others), (last, _) = (
        [median(r["norms"][g] for r in rows if (r["kind"], r["value"]) == (kind, at))
         for g in range(2)]
        for at in ends
    )  # fmt: skip
    return (
        f"|Sigma| of the {kind} minority in training is {first:.1f} at {ends[0]:g} and {last:.1f} "
        f"at {ends[1]:g}, of the majority {others:.1f}."
    )


def _picture(study: studies.GroupStudy, rows: Rows, title: str) -> Any:
    curves = [
        {"series": _SHOWN[measure], "at": f"{r['value']:g}", "error": 100 * (1 - r[measure]),
         "panel": f"test accuracy (%), {r['kind']} minority"}
        for measure in studies.MEASURES
        for r in rows
    ]  # fmt: skip
    label = {
        "noise": "delta^2 of the noisy copies, over the variance of bright images",
        "fraction": "fraction of the minority",
    }[study.axis]
    return plot.error_curves(curves, xlabel=label, title=title, from_zero=False)
