"""Figures of chapter 6 and appendix E as a table, a picture and a verdict."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean
from typing import Any

import numpy as np

from graphtheory import plot
from graphtheory.bench.rows import Row
from graphtheory.papers.icl import errors as icl_errors
from graphtheory.papers.icl.errors import ErrorStudy, matching
from graphtheory.papers.icl.gpt import GptStudy
from graphtheory.papers.icl.growth import CoverStudy, GrowthStudy
from graphtheory.papers.icl.growth_report import (
    SMALL,
    count_of,
    cover,
    exponent_rows,
    growth,
    law_of,
    percent,
    spread,
)
from graphtheory.papers.icl.inside import MechanismStudy, PruneStudy
from graphtheory.papers.icl.inside_report import mechanism, pruned
from graphtheory.papers.icl.studies import IclStudy
from graphtheory.papers.icl.training import INSIDE, OUTSIDE
from graphtheory.papers.outcome import StudyReport
from graphtheory.report.table import Table, counted

Rows = list[dict[str, Any]]
UNSEEN, LARGE = 0.005, 0.03  # errors of the claims, beside SMALL
_NEEDED = 0.05  # figure 6.3b: with so few errors a length is long enough


def icl(figure: str, study: IclStudy, rows: Rows) -> StudyReport:
    """One of the figures from its study's rows."""
    if isinstance(study, MechanismStudy):
        return mechanism(figure, study, rows)
    if isinstance(study, PruneStudy):
        return pruned(figure, study, rows)
    if isinstance(study, GrowthStudy):
        return growth(figure, study, rows)
    if isinstance(study, CoverStudy):
        return cover(figure, study, rows)
    if figure.startswith("steps-6"):
        return step_sizes(figure, study, rows)
    if isinstance(study, GptStudy) or figure == "fig-6-3a":
        return sums(figure, study, rows)
    return (methods if study.methods else lengths)(figure, study, rows)


def step_sizes(figure: str, study: ErrorStudy | GptStudy, rows: Rows) -> StudyReport:
    """Hinge loss and error of every learner; in the domain, where step sizes are chosen.

    A learner with a loss that is not finite is never the best of several.
    """
    lines, results = [], []
    losses: dict[str, dict[float, float]] = {}
    for learner in study.learners:
        line = [learner.name]
        for test in study.tests:
            own = matching(rows, method=learner.name, s_1=test.s_1)
            hinge, errors = [r["hinge"] for r in own], [r["error"] for r in own]
            line += [f"{fmean(hinge):.4f}", spread(errors)]
            about = {"learner": learner.name, "domain": test.domain}
            results.append(Row.of(f"{figure} test hinge loss", hinge, "1", **about))
            results.append(Row.of(f"{figure} test error", errors, "1", **about))
            if test.s_1 is None:
                loss = fmean(hinge) if np.isfinite(hinge).all() else np.inf
                losses.setdefault(learner.family, {})[learner.step_size] = loss
        lines.append(line)
    heads = [f"{what}, {test.domain}" for test in study.tests for what in ("hinge", "error %")]
    table = Table(
        f"Step sizes, seeds from {study.first} on, {counted(study.seeds, 'network')}",
        ["learner", *heads], lines,
    )  # fmt: skip
    best = (f"{family}: {min(of, key=of.__getitem__):g}" for family, of in losses.items())
    return StudyReport(table, results, f"Least loss on unseen tasks: {'; '.join(best)}.", None)


def sums(figure: str, study: ErrorStudy | GptStudy, rows: Rows) -> StudyReport:
    """Figure 6.3a: the error over S_1, beside that of unseen tasks in the domain."""
    totals = [test.s_1 for test in study.tests if test.s_1 is not None]
    names = [learner.name for learner in study.learners]
    columns = [None, *totals]
    depth = "GPT-2 style" if isinstance(study, GptStudy) else "one layer"
    cells = {
        (name, s_1): [r["error"] for r in matching(rows, method=name, s_1=s_1)]
        for name in names
        for s_1 in columns
    }
    table = Table(
        f"Figure 6.3a, {depth}, {counted(study.seeds, 'network')}: test error %",
        ["", *names],
        [
            [INSIDE if s_1 is None else f"S_1 = {s_1:g}", *(spread(cells[n, s_1]) for n in names)]
            for s_1 in columns
        ],
        note=f"Mean ± standard deviation over networks, {study.prompts} prompts each.",
    )
    results = [
        Row.of(f"{figure} test error", errors, "1", learner=name,
               s_1=INSIDE if s_1 is None else s_1)
        for (name, s_1), errors in cells.items()
    ]  # fmt: skip
    told = [_of_sums(name, {s_1: fmean(cells[name, s_1]) for s_1 in columns}) for name in names]
    picture = plot.prompt_errors(
        [
            {"panel": f"{depth}, out of domain", "series": r["method"], "at": r["s_1"],
             "error": r["error"]}
            for r in rows
            if r["s_1"] is not None
        ],
        xlabel="S_1 (dotted: 1)", title="Figure 6.3a", marks=(100 * SMALL,), upright=1.0,
    )  # fmt: skip
    return StudyReport(table, results, " ".join(told), picture)


def _of_sums(name: str, errors: dict[float | None, float]) -> str:
    inside = errors[None]
    above = max(error for s_1, error in errors.items() if s_1 is not None and s_1 >= 1)
    below = {s_1: error for s_1, error in errors.items() if s_1 is not None and s_1 < 1}
    largest = max(below.values())
    holds = inside < UNSEEN and above < SMALL and largest >= LARGE
    return (
        f"{name}: {percent(inside)} % on unseen tasks (expected below {percent(UNSEEN)}), at most"
        f" {percent(above)} % for S_1 >= 1 (claimed below {percent(SMALL)}), up to "
        f"{percent(largest)} % below 1 (expected {percent(LARGE)} or more), "
        f"{percent(below[max(below)])} % at {max(below):g}: {'holds' if holds else 'not found'}."
    )


def lengths(figure: str, study: ErrorStudy, rows: Rows) -> StudyReport:
    """Figure 6.3b: the error over the number of contexts, for several alpha'."""
    alphas = sorted({test.alpha for test in study.tests})
    lines, results, told = [], [], []
    for domain in (INSIDE, OUTSIDE):
        own = matching(rows, domain=domain)
        needed = icl_errors.needed_lengths(own, _NEEDED)
        law = icl_errors.length_law(needed)
        medians = [float(np.median(needed[alpha])) for alpha in alphas]
        lines.append([domain, *(count_of(m) for m in medians), "-" if law is None else str(law)])
        longer = all(a > b for a, b in pairwise(medians))
        told.append(
            f"{domain}: a smaller alpha' {'always' if longer else 'does not always'} "
            f"need{'s' if longer else ''} more contexts: {'holds' if longer else 'not found'}; "
            + law_of(law, "contexts", -1, "alpha'")
        )
        for alpha in alphas:
            results += [
                Row.of(f"{figure} test error", [r["error"] for r in matching(
                    own, alpha=alpha, length=length)], "1", domain=domain, alpha=alpha,
                    length=length)
                for length in sorted({r["length"] for r in own})
            ]  # fmt: skip
        results += exponent_rows(figure, "exponent of alpha' in the contexts", law, domain=domain)
    table = Table(
        f"Figure 6.3b, {counted(study.seeds, 'network')}: median contexts until the test error "
        f"stays below {percent(_NEEDED)} %",
        ["", *(f"alpha' = {alpha:g}" for alpha in alphas), "exponent of alpha' (claimed -1)"],
        lines,
    )
    picture = plot.prompt_errors(
        [
            {"panel": r["domain"], "series": f"alpha' = {r['alpha']:g}", "at": r["length"],
             "error": r["error"]}
            for r in rows
        ],
        xlabel="contexts", title="Figure 6.3b", marks=(100 * _NEEDED,), log=True,
    )  # fmt: skip
    return StudyReport(table, results, " ".join(told), picture)


def methods(figure: str, study: ErrorStudy, rows: Rows) -> StudyReport:
    """Figure 6.4: the learner beside methods that see one prompt."""
    learner = study.learners[0].name
    alpha = study.tests[0].alpha
    names = {learner: "ICL"} | {name: name for name in study.methods}
    counts = sorted({test.length for test in study.tests})
    lines, results, told = [], [], []
    for domain in dict.fromkeys(test.domain for test in study.tests):
        for name, shown in names.items():
            cells = [
                [r["error"] for r in matching(rows, method=name, domain=domain, length=n)]
                for n in counts
            ]
            lines.append([domain, shown, *(spread(cell) for cell in cells)])
            results += [
                Row.of(f"{figure} test error", cell, "1", method=shown, domain=domain, length=n)
                for n, cell in zip(counts, cells, strict=True)
            ]
        told.append(f"{domain}: {_beside(rows, domain, learner, study.methods, counts)}")
    table = Table(
        f"{_title(figure)}, alpha' = {alpha:g}, {counted(study.seeds, 'seed')}: test error %",
        ["", "method", *(f"{n} contexts" for n in counts)],
        lines, words=2,
        note=f"Mean ± standard deviation over seeds, {study.prompts} prompts each, the same ones.",
    )  # fmt: skip
    picture = plot.prompt_errors(
        [
            {"panel": r["domain"], "series": names[r["method"]], "at": r["length"],
             "error": r["error"]}
            for r in rows
        ],
        xlabel="contexts", title=f"{_title(figure)}, alpha' = {alpha:g}", log=True,
    )  # fmt: skip
    claim = "no clear advantage" if alpha > 0.7 else "the fewest errors"
    return StudyReport(table, results, f"Claimed for ICL: {claim}. {' '.join(told)}", picture)


def _beside(
    rows: Rows, domain: str, learner: str, others: Sequence[str], counts: Sequence[int]
) -> str:
    """ICL against each method, mean over the lengths, paired by seed."""

    def by_seed(method: str) -> np.ndarray[Any, Any]:
        own = matching(rows, domain=domain, method=method)
        seeds = sorted({r["seed"] for r in own})
        return np.array([fmean(r["error"] for r in own if r["seed"] == s) for s in seeds])

    own = by_seed(learner)
    gaps = {name: own - by_seed(name) for name in others}
    ahead = [name for name, gap in gaps.items() if gap.mean() + 2 * _error_of(gap) < 0]
    behind = [name for name, gap in gaps.items() if gap.mean() - 2 * _error_of(gap) > 0]
    best = min(others, key=lambda name: -gaps[name].mean())
    gap = gaps[best]
    return (
        f"ICL - {best}, the best other, {100 * gap.mean():+.2f} ± {100 * _error_of(gap):.2f} "
        f"points over {min(counts)} to {max(counts)} contexts; beyond two standard errors better "
        f"than {', '.join(ahead) or 'none'}, worse than {', '.join(behind) or 'none'}."
    )


def _error_of(values: np.ndarray[Any, Any]) -> float:
    return float(values.std(ddof=1) / len(values) ** 0.5) if len(values) > 1 else float("inf")


def _title(figure: str) -> str:
    return f"Figure {figure.removeprefix('fig-').replace('-', '.')}"
