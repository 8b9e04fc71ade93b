"""Figures 6.2 and 6.5 as a table, a picture and a verdict."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

import numpy as np

from graphtheory import plot
from graphtheory.bench.rows import Row
from graphtheory.papers.icl.errors import matching
from graphtheory.papers.icl.growth_report import spread
from graphtheory.papers.icl.inside import LARGE, MechanismStudy, PruneStudy
from graphtheory.papers.icl.training import OUTSIDE
from graphtheory.papers.outcome import StudyReport
from graphtheory.report.table import Table, counted, mean_spread

Rows = list[dict[str, Any]]
_MASS = 0.95
_LOOKS = {
    "query whole": "length of W_Q p of the query",
    "query along": "of it along the query's pattern",
    "query across": "of it along another pattern, the largest",
    "key whole": "length of W_K p of the contexts",
    "key along": "of it along the context's pattern",
    "key across": "of it along another pattern, the largest",
    "same": "attention on contexts with the query's pattern",
    "uniform same": "share of these contexts",
    "error": "test error",
}
_NEURONS = {
    "large": f"share of large neurons (at least {LARGE:g} of the largest)",
    "input cosine": "their cosine with the mean pattern",
    "label cosine": "their cosine with ± q",
}


def mechanism(figure: str, study: MechanismStudy, rows: Rows) -> StudyReport:
    """Figure 6.2: keys, queries, attention and neurons before and after training."""
    ends = (0, max(row["step"] for row in rows))
    lines, results = [], []
    groups: list[tuple[str, str | None, dict[str, str]]] = [
        ("look", test.domain, _LOOKS) for test in study.tests
    ]
    groups.append(("neurons", None, _NEURONS))
    after: dict[tuple[str | None, str], float] = {}
    for kind, domain, names in groups:
        for key, name in names.items():
            where = {"kind": kind} if domain is None else {"kind": kind, "domain": domain}
            cells = [[r[key] for r in matching(rows, step=step, **where)] for step in ends]
            lines.append([domain or "", name, *(_plain(cell) for cell in cells)])
            after[domain, key] = fmean(cells[1])
            about = {"domain": domain} if domain else {}
            results += [
                Row.of(f"{figure} {name}", cell, "1", step=step, **about)
                for step, cell in zip(ends, cells, strict=True)
            ]
    table = Table(
        f"Figure 6.2, {counted(study.seeds, 'network')}",
        ["", "measure", *(f"after {step} steps" for step in ends)], lines, words=2,
        note="Mean ± standard deviation over networks.",
    )  # fmt: skip
    told = [_attention(test.domain, after[test.domain, "same"]) for test in study.tests]
    told += [_norms(rows, ends, "query"), _norms(rows, ends, "key")]
    told.append(
        f"Large neurons, {100 * after[None, 'large']:.0f} % of all: cosine "
        f"{after[None, 'input cosine']:.3f} with the mean pattern, "
        f"{after[None, 'label cosine']:.3f} with ± q, claimed near 1."
    )
    picture = plot.prompt_mechanism(
        matching(rows, kind="look"), matching(rows, kind="neuron"), title="Figure 6.2"
    )
    return StudyReport(table, results, " ".join(told), picture)


def _attention(domain: str, mass: float) -> str:
    holds = "holds" if mass > _MASS else "not found"
    return f"Attention on the query's pattern {domain}: {mass:.3f}, claimed near 1: {holds}."


def _norms(rows: Rows, ends: Sequence[int], part: str) -> str:
    """Out of the domain, as the figure."""
    mean = {
        (step, key): fmean(
            r[f"{part} {key}"] for r in matching(rows, kind="look", domain=OUTSIDE, step=step)
        )
        for step in ends
        for key in ("whole", "along", "across")
    }
    first, last = ends
    shares = [mean[step, "along"] / mean[step, "whole"] for step in ends]
    grown = mean[last, "along"] > mean[first, "along"] and shares[1] > shares[0]
    name = "queries" if part == "query" else "keys"
    return (
        f"Out of domain the {name} lie along their pattern to {shares[0]:.2f} before and "
        f"{shares[1]:.2f} after, length {mean[first, 'along']:.2f} and {mean[last, 'along']:.2f} "
        f"(claimed: grows, and is nearly all): {'grows' if grown else 'does not grow'}."
    )


def pruned(figure: str, study: PruneStudy, rows: Rows) -> StudyReport:
    """Figure 6.5: errors over the share of neurons that went."""
    errors, norms = matching(rows, kind="error"), matching(rows, kind="norm")
    by_alpha = len(study.tests) > 1
    axis = "alpha" if by_alpha else "rule"
    kinds = [(w.width, k) for w in study.learners for k in dict.fromkeys(r[axis] for r in errors)]
    lines, results, told = [], [], []
    small = {w.width: fmean(_by_seed(norms, w.width).values()) for w in study.learners}
    for width, kind in kinds:
        own = matching(errors, width=width, **{axis: kind})
        cells = {rate: [r["error"] for r in matching(own, rate=rate)] for rate in study.rates}
        shown = f"alpha' = {kind:g}" if by_alpha else kind
        lines.append([f"m = {width}", shown, *(spread(cell) for cell in cells.values())])
        results += [
            Row.of(f"{figure} test error", cell, "1", width=width, rate=rate, **{axis: kind})
            for rate, cell in cells.items()
        ]
        told.append(f"m = {width}, {shown}: {_free(cells, small[width])}")
    results += [
        Row.of(f"{figure} share of small neurons", list(_by_seed(norms, w).values()), "1", width=w)
        for w in small
    ]
    shares = ", ".join(f"{100 * share:.0f} % at m = {width}" for width, share in small.items())
    table = Table(
        f"Figure {figure.removeprefix('fig-').replace('-', '.')}, out of domain, "
        f"{counted(study.seeds, 'network')}: test error % over the share of neurons taken away",
        ["", axis if axis == "rule" else "test", *(f"{100 * r:g} %" for r in study.rates)],
        lines, words=2, note="Mean ± standard deviation over networks.",
    )  # fmt: skip
    drawn = [
        {"panel": f"m = {r['width']}", "at": r["rate"], "error": r["error"],
         "series": f"alpha' = {r['alpha']:g}" if by_alpha else r["rule"]}
        for r in errors
    ]  # fmt: skip
    picture = plot.pruning_curves(
        drawn, [r | {"panel": f"m = {r['width']}"} for r in norms],
        title="Figure 6.5b" if by_alpha else "Figure 6.5a",
        small={f"m = {width}": share for width, share in small.items()},
    )  # fmt: skip
    verdict = f"Small neurons (row of W_O W_V below {LARGE:g} of the largest): {shares}; claimed "
    verdict += f"about 15 %. {_by_alpha(errors) if by_alpha else ''}{' '.join(told)}"
    return StudyReport(table, results, verdict, picture)


def _by_alpha(errors: Rows) -> str:
    """Whether a larger alpha' has no more errors, rate by rate."""
    alphas = sorted({r["alpha"] for r in errors})
    rates = sorted({r["rate"] for r in errors})
    curves = [
        [fmean(r["error"] for r in matching(errors, rate=rate, alpha=alpha)) for alpha in alphas]
        for rate in rates
    ]
    falling = sum(curve == sorted(curve, reverse=True) for curve in curves)
    holds = "holds" if falling == len(rates) else "not found"
    return f"A larger alpha' has no more errors at {falling} of {len(rates)} rates: {holds}. "


def _by_seed(norms: Rows, width: int) -> dict[int, float]:
    return {r["seed"]: r["small"] for r in matching(norms, width=width)}


def _free(cells: dict[float, list[float]], small: float) -> str:
    """The largest rate up to which nothing is lost, and what is in the end."""
    start = np.array(cells[0.0])
    free = 0.0
    for rate, errors in cells.items():
        gap = np.array(errors) - start
        noise = gap.std(ddof=1) / len(gap) ** 0.5 if len(gap) > 1 else 0.0
        if gap.mean() > max(2 * noise, 5e-4):
            break
        free = rate
    last = max(cells)
    reaches = "as far as" if free >= small - 0.05 else "less far than"
    return (
        f"free up to {100 * free:g} %, {reaches} the small neurons reach; {100 * start.mean():.2f} "
        f"% unpruned, {100 * fmean(cells[last]):.2f} % with {100 * last:g} % gone."
    )


def _plain(values: Sequence[float]) -> str:
    return mean_spread(values, ".3f")
