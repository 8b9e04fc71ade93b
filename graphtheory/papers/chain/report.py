"""Figures 7.3 to 7.7 and F.1 as a table, a picture and a verdict."""

from __future__ import annotations

import math
from statistics import fmean, median
from typing import Any

from graphtheory import plot
from graphtheory.bench.rows import Row
from graphtheory.papers.chain import claims
from graphtheory.papers.chain import study as studies
from graphtheory.papers.chain.metrics import MASSES
from graphtheory.papers.outcome import StudyReport
from graphtheory.papers.power_law import Exponent
from graphtheory.report.table import Table, counted

_BOUND = -2  # of the examples that suffice, (7.20) and (7.22)
_ONE = 0.9  # attention that counts as the claimed 1
_LETTERS = ("tau", "rho", "tau_o", "rho_o", "condition")
Rows = list[dict[str, Any]]


def chain(figure: str, study: Any, rows: Rows) -> StudyReport:
    """One of the figures from its study's rows."""
    if isinstance(study, studies.DynamicsStudy):
        return dynamics(figure, study, rows)
    return contexts(figure, study, rows)


def contexts(figure: str, study: studies.ContextStudy, rows: Rows) -> StudyReport:
    """Figures 7.3, 7.4 and 7.5: the error over the number of examples."""
    title = f"Figure {_number(figure)}, {counted(study.seeds, 'trial')}"
    cells = _cells(rows, "panel", "series", "contexts")
    lines, results = [], []
    for (panel, series), mine in _cells(rows, "panel", "series").items():
        letters = {name: mine[0][name] for name in _LETTERS}
        shown = (f"{letters[name]:.3g}" for name in _LETTERS[:4])
        errors = [[r["error"] for r in cells[panel, series, at]] for at in study.lengths]
        lines.append([
            panel, series, *shown, "holds" if letters["condition"] else "fails",
            *(f"{fmean(of):.3f}" for of in errors),
        ])  # fmt: skip
        about = {"case": panel, "series": series} | letters
        results += [
            Row.of(f"{figure} test error", of, "1", **about, contexts=at)
            for of, at in zip(errors, study.lengths, strict=True)
        ]
    heads = ["inference", "line", "tau", "rho", "tau_o", "rho_o", "cond. 7.3.2"]
    table = Table(f"{title}: test error", [*heads, *(f"l = {n}" for n in study.lengths)], lines,
                  words=2)  # fmt: skip
    told = _condition(study, rows) if figure == "fig-7-5" else _lengths(figure, rows, results)
    picture = plot.error_curves(
        [
            {"panel": f"{r['panel']}: test error", "series": _line(figure, r),
             "at": str(r["contexts"]), "error": r["error"]}
            for r in rows
        ],
        xlabel="examples in the prompt", title=title,
    )  # fmt: skip
    return StudyReport(table, results, told, picture)


def _line(figure: str, row: dict[str, Any]) -> str:
    if figure == "fig-7-5":
        return "condition 7.3.2 holds" if row["condition"] else "condition 7.3.2 fails"
    return str(row["series"])


def _cells(rows: Rows, *keys: str) -> dict[tuple[Any, ...], Rows]:
    out: dict[tuple[Any, ...], Rows] = {}
    for r in rows:
        out.setdefault(tuple(r[key] for key in keys), []).append(r)
    return out


def _lengths(figure: str, rows: Rows, results: list[Row]) -> str:
    """Verdict of figures 7.3 and 7.4; adds its numbers to the rows."""
    told, letter = [], rows[0]["series"].partition(" = ")[0]
    most = max(r["contexts"] for r in rows)
    last: dict[str, list[float]] = {panel: [] for panel, _ in claims.ends(rows)}
    for (panel, _), (_, end) in claims.ends(rows).items():
        last[panel] += end
    for panel, of in claims.growth(rows).items():
        middle = []
        for value, counts in of["needed"].items():
            there = [count for count in counts if count < math.inf]
            middle.append(_count(median(counts)))
            about = {"case": panel, letter: value, "error": claims.ENOUGH}
            share = len(there) / len(counts)
            results.append(Row.of(f"{figure} share of trials that get there", share, "1", **about))
            if there:
                results.append(Row.of(f"{figure} examples needed", there, "1", **about))
        results += _exponents(figure, panel, of["found"])
        trend = (
            "fewer with every larger value: holds"
            if of["falls"]
            else "not always fewer with a larger value: not found"
        )
        told.append(
            f"{panel}: an error of {claims.ENOUGH:g} needs {', '.join(middle)} examples at {letter}"
            f" = {', '.join(f'{v:g}' for v in of['needed'])}, {trend}; {_exponent(of['found'])}. "
            f"With {most} examples {_zeros(last[panel])}."
        )
    return " ".join(told)


def _count(value: float) -> str:
    return f"{value:.0f}" if value < math.inf else "more"


def _exponent(found: Exponent | None) -> str:
    if found is None:
        return "too few values for an exponent"
    return f"they go with the power {found} of it, where {_BOUND} is claimed to suffice"


def _exponents(figure: str, panel: str, found: Exponent | None) -> list[Row]:
    if found is None:
        return []
    ends = {"": found.exponent, ", lower end": found.low, ", upper end": found.high}
    return [Row.of(f"{figure} exponent{end}", v, "1", case=panel) for end, v in ends.items()]


def _zeros(errors: list[float]) -> str:
    exact = sum(error == 0 for error in errors)
    return f"the error is exactly 0 in {exact} of {len(errors)} trials, at most {max(errors):.3f}"


def _condition(study: studies.ContextStudy, rows: Rows) -> str:
    """Verdict of figure 7.5."""
    told, holds = [], True
    for (panel, series), (first, last) in claims.ends(rows).items():
        mine = next(r for r in rows if (r["panel"], r["series"]) == (panel, series))
        how = "holds" if mine["condition"] else "fails"
        falls = mine["condition"] or panel.startswith("CoT")
        holds &= max(last) < min(first) if falls else min(last) >= min(first)
        told.append(
            f"{panel} where condition 7.3.2 {how}: {fmean(first):.3f} -> {fmean(last):.3f} "
            f"({min(last):.3f} to {max(last):.3f}, {_zeros(last).removeprefix('the error is ')})"
        )
    return (
        f"Error from {study.lengths[0]} to {study.lengths[-1]} examples. {'; '.join(told)}. Claimed"
        " is that the error of ICL falls only where the condition holds, that of CoT everywhere: "
        f"{'holds' if holds else 'not found'}."
    )


def dynamics(figure: str, study: studies.DynamicsStudy, rows: Rows) -> StudyReport:
    """Figures 7.6, 7.7 and F.1: attention of the query over the steps of training."""
    title = f"Figure {_number(figure)}, {counted(study.seeds, 'trial')}"
    last = max(r["step"] for r in rows)
    kinds = [*MASSES, "own columns"]
    lines, results = [], []
    for (layer, head), mine in _cells(rows, "layer", "head").items():
        end = {kind: [r[kind] for r in mine if r["step"] == last] for kind in kinds}
        lines.append([f"layer {layer}, head {head}", *(f"{fmean(end[k]):.3f}" for k in kinds)])
        results += [
            Row.of(f"{figure} attention, {kind}", of, "1", layer=layer, head=head, step=last)
            for kind, of in end.items()
        ]
    table = Table(f"{title}: attention of the query after {last} steps",
                  ["", *kinds], lines, words=1)  # fmt: skip
    errors = list({r["seed"]: r["error"] for r in rows if "error" in r}.values())
    results.append(Row.of(f"{figure} test error", errors, "1", contexts=study.data.contexts))
    told = (_heads if study.learner.depth else _stages)(figure, rows, results)
    told += f" Test error of CoT with {study.data.contexts} examples: {fmean(errors):.3f}."
    curves = [
        {"case": f"layer {r['layer']}, head {r['head']}", "series": kind, "step": r["step"],
         "attention": r[kind]}
        for r in rows
        for kind in (MASSES if not study.learner.depth else kinds)
    ]  # fmt: skip
    first = [end for end, _ in claims.stages(rows).values() if end < math.inf]
    picture = plot.step_curves(
        curves, value="attention", ylabel="attention", title=title,
        xlabel="steps of Adam" if study.learner.depth else "steps of SGD",
        boundary=median(first) if first and not study.learner.depth else None,
    )  # fmt: skip
    return StudyReport(table, results, told, picture)


def _stages(figure: str, rows: Rows, results: list[Row]) -> str:
    found = claims.stages(rows)
    names = ("attention on other steps", "share of other patterns within the step")
    for name, values in zip(names, zip(*found.values(), strict=True), strict=True):
        there = [v for v in values if v < math.inf]
        share = len(there) / len(values)
        results.append(
            Row.of(f"{figure} share of trials where a tenth is left, {name}", share, "1")
        )
        if there:
            results.append(Row.of(f"{figure} steps until a tenth is left, {name}", there, "1"))
    both = sum(a < b for a, b in found.values())
    told = ", ".join(f"{_count(a)} and {_count(b)}" for a, b in found.values())
    end = claims.best_heads(rows)[1]
    return (
        f"Steps until a tenth is left of the {names[0]}, and of the {names[1]}: {told}. The first "
        f"before the second, as claimed: {both} of {len(found)} trials. Attention on the same step "
        f"and pattern goes from {end['start']:.3f} to {end['end']:.3f}, claimed 1."
    )


def _heads(figure: str, rows: Rows, results: list[Row]) -> str:
    found = claims.best_heads(rows)
    for layer, of in found.items():
        results.append(Row.of(f"{figure} attention of the best head", of["end"], "1", layer=layer))
    told = "; ".join(
        f"layer {layer} {of['start']:.2f} -> {of['end']:.2f}, more than on any other kind in "
        f"{of['leads']} of {of['seeds']} trials"
        for layer, of in found.items()
    )
    return (
        "Attention of the best head on the same step and pattern: "
        f"{told}. A head of every layer selects: {_selects(found)}."
    )


def _selects(found: dict[int, dict[str, Any]]) -> str:
    """Verdict on the best head of each layer."""
    if not all(of["leads"] == of["seeds"] for of in found.values()):
        return "not found"
    below = [f"layer {layer} to {of['end']:.3f}" for layer, of in found.items() if of["end"] < _ONE]
    return f"it selects, not to 1: {', '.join(below)}" if below else "found"


def _number(figure: str) -> str:
    return figure.removeprefix("fig-").replace("-", ".").replace("f.", "F.")
