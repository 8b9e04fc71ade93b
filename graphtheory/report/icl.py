"""Figures of chapter 6 and appendix E as a table, a picture and a verdict."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean, pstdev
from typing import Any

import numpy as np

from graphtheory import plot
from graphtheory.experiments import icl_errors, icl_growth
from graphtheory.experiments.icl import INSIDE, OUTSIDE
from graphtheory.experiments.icl_errors import ErrorStudy, matching
from graphtheory.experiments.icl_figures import IclStudy
from graphtheory.experiments.icl_growth import CoverStudy, GrowthStudy
from graphtheory.experiments.icl_inside import MechanismStudy, PruneStudy
from graphtheory.experiments.power_law import Exponent
from graphtheory.experiments.rows import Row
from graphtheory.report.icl_inside import mechanism, pruned
from graphtheory.report.study import StudyReport
from graphtheory.report.table import Table, counted

Rows = list[dict[str, Any]]
UNSEEN, SMALL, LARGE = 0.005, 0.01, 0.03  # errors of the claims
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
    if study.methods:
        return methods(figure, study, rows)
    return (sums if figure == "fig-6-3a" else lengths)(figure, study, rows)


def sums(figure: str, study: ErrorStudy, rows: Rows) -> StudyReport:
    """Figure 6.3a: the error over S_1, beside that of unseen tasks in the domain."""
    totals = [test.s_1 for test in study.tests if test.s_1 is not None]
    names = [learner.name for learner in study.learners]
    columns = [None, *totals]
    cells = {
        (name, s_1): [r["error"] for r in matching(rows, method=name, s_1=s_1)]
        for name in names
        for s_1 in columns
    }
    table = Table(
        f"Figure 6.3a, one layer, {counted(study.seeds, 'network')}: test error %",
        ["learner", INSIDE, *(f"S_1 = {s_1:g}" for s_1 in totals)],
        [[name, *(_spread(cells[name, s_1]) for s_1 in columns)] for name in names],
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
            {"panel": "one layer, out of domain", "series": r["method"], "at": r["s_1"],
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
        f"{name}: {_percent(inside)} % on unseen tasks (expected below {_percent(UNSEEN)}), at most"
        f" {_percent(above)} % for S_1 >= 1 (claimed below {_percent(SMALL)}), up to "
        f"{_percent(largest)} % below 1 (expected {_percent(LARGE)} or more), "
        f"{_percent(below[max(below)])} % at {max(below):g}: {'holds' if holds else 'not found'}."
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
        lines.append([domain, *(_count(m) for m in medians), "-" if law is None else str(law)])
        longer = all(a > b for a, b in pairwise(medians))
        told.append(
            f"{domain}: a smaller alpha' {'always' if longer else 'does not always'} "
            f"need{'s' if longer else ''} more contexts: {'holds' if longer else 'not found'}; "
            f"{_law(law, 'contexts', -1)}"
        )
        for alpha in alphas:
            results += [
                Row.of(f"{figure} test error", [r["error"] for r in matching(
                    own, alpha=alpha, length=length)], "1", domain=domain, alpha=alpha,
                    length=length)
                for length in sorted({r["length"] for r in own})
            ]  # fmt: skip
        results += _exponents(figure, "exponent of alpha' in the contexts", law, domain=domain)
    table = Table(
        f"Figure 6.3b, {counted(study.seeds, 'network')}: median contexts until the test error "
        f"stays below {_percent(_NEEDED)} %",
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
            lines.append([domain, shown, *(_spread(cell) for cell in cells)])
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


def growth(figure: str, study: GrowthStudy, rows: Rows) -> StudyReport:
    """Figure E.1: prompt length and steps that training needs, over alpha."""
    lines, results, told, points, laws = [], [], [], [], {}
    for kind, axis, name, claimed in (
        ("length", "length", "contexts of a training prompt", -1.0),
        ("steps", "step", "steps of SGD", -2 / 3),
    ):
        needed = icl_errors.needed_lengths(matching(rows, kind=kind), study.threshold, axis)
        law = icl_errors.length_law(needed)
        medians = [float(np.median(counts)) for counts in needed.values()]
        lines.append([name, *(_count(m) for m in medians), "-" if law is None else str(law),
                      f"{claimed:.2g}"])  # fmt: skip
        told.append(f"{name}: {_law(law, name.split()[0], claimed)}")
        for alpha, counts in needed.items():
            there = [count for count in counts if np.isfinite(count)]
            share = len(there) / len(counts)
            about = f"{figure} {name}"
            results.append(Row.of(f"{about}, share that gets there", share, "1", alpha=alpha))
            if there:
                results.append(Row.of(about, there, "1", alpha=alpha))
                points += [{"case": name, "value": alpha, "number": n} for n in there]
        results += _exponents(figure, f"exponent of alpha in {name}", law)
        if law is not None:
            laws[name] = {"factor": law.factor, "exponent": law.exponent, "claimed": claimed}
    table = Table(
        f"Figure E.1, {counted(study.seeds, 'network')}: median until the test error is below "
        f"{_percent(study.threshold)} %",
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
        lines.append([f"M1 = {m_1}", *(_spread(c) if c else "-" for c in cells.values())])
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
            f"M1 = {m_1}: at least {_percent(at['least below'])} % with fewer tasks, "
            f"{_percent(at['at'])} % with M1, at most {_percent(at['most from on'])} % from there "
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


def _law(law: Exponent | None, what: str, claimed: float) -> str:
    if law is None:
        return "too few get there for a fit."
    holds = "holds" if law.low <= claimed <= law.high else "not found"
    return f"{what} ~ alpha^{law}, claimed {claimed:.2g}: {holds}."


def _exponents(figure: str, what: str, law: Exponent | None, **about: Any) -> list[Row]:
    if law is None:
        return []
    ends = {"": law.exponent, ", lower end": law.low, ", upper end": law.high}
    return [Row.of(f"{figure} {what}{end}", value, "1", **about) for end, value in ends.items()]


def _title(figure: str) -> str:
    return f"Figure {figure.removeprefix('fig-').replace('-', '.')}"


def _percent(value: float) -> str:
    return f"{100 * value:.3g}"


def _spread(errors: Sequence[float]) -> str:
    return f"{100 * fmean(errors):.2f} ± {100 * pstdev(errors):.2f}"


def _count(value: float) -> str:
    return f"{value:.3g}" if np.isfinite(value) else "more"
