"""Figures 3.8 and 3.9 and the encoding study as a table, a picture and a verdict."""

from __future__ import annotations

from typing import Any

from graphtheory import plot
from graphtheory.bench.rows import Row
from graphtheory.papers.core_neighborhood import distance_study, encoding_study, label_study
from graphtheory.papers.outcome import StudyReport
from graphtheory.report.table import Table, counted


def distances(study: distance_study.DistanceStudy, rows: list[dict[str, Any]]) -> StudyReport:
    """Figure 3.8: accuracy at distance z, its control, and b_z."""
    found = distance_study.verdict(rows)
    kinds = {"model": "test accuracy", "control": "test accuracy, W_Q frozen", "b": "learned b"}
    results = [
        Row.of(f"fig-3-8 {label}", values, "1", dataset=study.dataset, z=z)
        for kind, label in kinds.items()
        for z, values in distance_study.curve(rows, kind).items()
    ]
    lines = [
        [
            str(z), _percent(found["model"]["accuracy"][z]),
            _percent(found["control"]["accuracy"][z]), f"{found['b'][z]:.3f}",
        ]
        for z in found["b"]
    ]  # fmt: skip
    table = Table(
        f"Figure 3.8 on {study.dataset}, {counted(study.seeds, 'seed')}",
        ["z (hops)", "distance-z model %", "W_Q frozen %", "learned b_z"],
        lines,
        words=0,
    )
    trend = "{0}: Spearman's correlation of accuracy and b_z over z is {1:.2f}, peaks at z = {2}"
    verdict = (
        "; ".join(
            trend.format(name, found[kind]["spearman"], found[kind]["peak"])
            for name, kind in (("model", "model"), ("control", "control"))
        )
        + f". b_z peaks at z = {found['b_peak']}. "
        f"The commonest training class alone gives {_percent(found['majority'])} %."
    )
    bias = [
        {"layer": 1, "head": 1, "distance": r["z"], "bias": r["value"], "seed": r["seed"]}
        for r in rows
        if r["kind"] == "b" and r["z"] <= max(study.distances)
    ]
    names = {"model": "distance-z model", "control": "the same, W_Q frozen"}
    accuracy = [
        {"distance": r["z"], "test": r["value"], "series": names[r["kind"]]}
        for r in rows
        if r["kind"] in names
    ]
    picture = plot.learned_bias(bias, accuracy, title=f"{study.dataset}: figure 3.8")
    return StudyReport(table, results, verdict, picture)


def labels(study: label_study.LabelStudy, rows: list[dict[str, Any]]) -> StudyReport:
    """Figure 3.9: accuracy over labels."""
    lines = label_study.verdict(rows)
    results = [
        Row.of(
            "fig-3-9 test score",
            [r["value"] for r in rows if (r["model"], r["share"]) == (model, line["share"])],
            "1", dataset=study.dataset, model=model, share=line["share"],
        )
        for line in lines
        for model in label_study.MODELS
    ]  # fmt: skip
    table = Table(
        f"Figure 3.9 on {study.dataset}, {counted(study.seeds, 'seed')}, test score %",
        ["labels", *label_study.MODELS, "gt - gt-plain (s.e.)", "gt - gcn (s.e.)"],
        [
            [
                f"{line['labels']:.0f}",
                *(_percent(line[m]) for m in label_study.MODELS),
                _gap(line, "gt-plain"),
                _gap(line, "gcn"),
            ]
            for line in lines
        ],
        words=0,
    )
    best = sum(line["gt"] > max(line["gt-plain"], line["gcn"]) for line in lines)
    verdict = (
        f"The network with encoding alone has the best mean at {best} of {len(lines)} label counts."
    )
    counts = {line["share"]: round(line["labels"]) for line in lines}  # splits differ by a node
    picture = plot.accuracy_over_labels(
        [{"model": r["model"], "labels": counts[r["share"]], "test": r["value"]} for r in rows],
        title=f"{study.dataset}: figure 3.9",
    )
    return StudyReport(table, results, verdict, picture)


def encoding(study: encoding_study.EncodingStudy, rows: list[dict[str, Any]]) -> StudyReport:
    """What the encoding buys."""
    lines = encoding_study.gains(rows)
    results = [
        Row.of(f"encoding {key}", [r[key] for r in rows if r["case"] == line["case"]], "1",
               case=line["case"])
        for line in lines
        for key in ("gt", "gt-plain")
    ]  # fmt: skip
    table = Table(
        "The same configuration with and without the encoding, test score %",
        ["case", "seeds", "with", "without", "gain (s.e.)"],
        [
            [line["case"], str(line["seeds"]), _percent(line["gt"]), _percent(line["gt-plain"]),
             f"{100 * line['gain']:+.1f} ({100 * line['s.e.']:.1f})"]
            for line in lines
        ],
        words=1,
    )  # fmt: skip
    clear = [line["case"] for line in lines if abs(line["gain"]) > 2 * line["s.e."] > 0]
    verdict = f"More than two standard errors from zero: {', '.join(clear) or 'none'}."
    return StudyReport(table, results, verdict, None)


def _percent(value: float) -> str:
    return f"{100 * value:.1f}"


def _gap(line: dict[str, Any], model: str) -> str:
    return f"{100 * line[f'gt - {model}']:+.1f} ({100 * line[f's.e. {model}']:.1f})"
