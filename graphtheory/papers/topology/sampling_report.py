"""What training on samples costs a GCN, as a table, a picture and a verdict."""

from __future__ import annotations

from typing import Any

from graphtheory import plot
from graphtheory.bench.rows import Row
from graphtheory.papers.outcome import StudyReport
from graphtheory.papers.topology.sampling_study import FULL, MLP, SamplingStudy, plan_of, summary
from graphtheory.report.table import Table, counted, mean_spread

_POINT = 0.01


def sampling(study: SamplingStudy, rows: list[dict[str, Any]]) -> StudyReport:
    """Scores at each share of the neighbours beside the full batch."""
    lines = summary(rows)
    table = Table(
        f"GCN on samples of {study.dataset}, {counted(study.count, 'seed')}, test score %",
        [
            "sampler", "neighbours heard %", "edges %", "with A", "with A*",
            "minus full batch (s.e.)", "within 1 point",
        ],
        [_entries(line) for line in lines],
        words=1,
    )  # fmt: skip
    runs = [
        {"series": line["sampler"], "setting": _setting(line), "test": test}
        for line in lines
        for test in line["tests"]
    ]
    picture = plot.score_dots(runs, reference=FULL, title=f"{study.dataset}: GCN on samples")
    return StudyReport(table, _rows(study, lines), _verdict(study, lines), picture)


def _entries(line: dict[str, Any]) -> list[str]:
    whole = line["sampler"] in (FULL, MLP)
    gap = f"{100 * line['gap']:+.1f} ({100 * line['s.e.']:.1f})"
    return [
        line["sampler"],
        "-" if whole else f"{100 * line['heard']:.1f}",
        "-" if whole else f"{100 * line['edges']:.1f}",
        _spread(line["tests"]),
        _spread(line["stars"]) if line["stars"] else "-",
        "-" if line["sampler"] == FULL else gap,
        "-" if line["sampler"] == FULL else "yes" if line["within"] else "no",
    ]


def _spread(scores: list[float]) -> str:
    return mean_spread([100 * score for score in scores], ".1f")


def _setting(line: dict[str, Any]) -> str:
    if line["sampler"] in (FULL, MLP):
        return "whole graph" if line["sampler"] == FULL else "no neighbours"
    return f"{100 * line['budget']:.0f} % of the neighbours"


def _rows(study: SamplingStudy, lines: list[dict[str, Any]]) -> list[Row]:
    out = []
    for line in lines:
        about = {
            "dataset": study.dataset, "sampler": line["sampler"], "variant": line["variant"],
            "budget": f"{line['budget']:.3g}", **plan_of(study.dataset).tried[line["tried"]],
        }  # fmt: skip
        out.append(Row.of("sampling test score", line["tests"], "1", **about))
        if line["stars"]:
            out.append(Row.of("sampling test score with A*", line["stars"], "1", **about))
        if line["sampler"] != FULL:
            out.append(Row.of("sampling minus full batch", line["gaps"], "1", **about))
        if line["sampler"] not in (FULL, MLP):
            out.append(Row.of("sampling neighbours heard", line["heard"], "1", **about))
            out.append(Row.of("sampling edges", line["edges"], "1", **about))
    return out


def _verdict(study: SamplingStudy, lines: list[dict[str, Any]]) -> str:
    parts = []
    for budget in study.budgets:
        mine = [n for n in lines if n["budget"] == budget and n["sampler"] not in (FULL, MLP)]
        close = [n["sampler"] for n in mine if n["within"]]
        sure = [n["sampler"] for n in mine if n["gap"] - 2 * n["s.e."] >= -_POINT]
        parts.append(
            f"At {100 * budget:.0f} % of the neighbours the mean is within 1 point of the full "
            f"batch with {', '.join(close) or 'no sampler'}, and by two standard errors with "
            f"{', '.join(sure) or 'none'}."
        )
    return " ".join(parts)
