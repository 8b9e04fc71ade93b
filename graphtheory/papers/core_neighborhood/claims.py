"""What became of the claims of figures 3.3 to 3.7 and B.6."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from graphtheory.papers.core_neighborhood.study import SUCCESS
from graphtheory.papers.power_law import Successes, boundary, halves, regression_of
from graphtheory.papers.stats import Correlation, Estimate, levels, means, trend
from graphtheory.papers.study import Row


class Case(Protocol):
    """What learns."""

    @property
    def name(self) -> str:
        """In the rows."""
        ...


class Claimed(Protocol):
    """A study of phases or curves, such as those of chapters 2 and 3."""

    @property
    def axis(self) -> str:
        """Key of what varies."""
        ...

    @property
    def cases(self) -> Sequence[Case]:
        """What learns."""
        ...

    @property
    def claims(self) -> Sequence[float]:
        """The claimed exponent of each case."""
        ...

    @property
    def seeds(self) -> int:
        """Trials."""
        ...


def successes(study: Claimed, rows: Sequence[Row], case: str) -> Successes:
    """Counts of one case; the values are those of the axis, of eps_S less than 1."""
    values = sorted({r[study.axis] for r in rows})
    labels = sorted({r["labels"] for r in rows})
    counts = np.zeros((len(values), len(labels)))
    for r in rows:
        if r["case"] == case and r["hinge"] < SUCCESS:
            counts[values.index(r[study.axis]), labels.index(r["labels"])] += 1
    of = 1 - np.array(values) if study.axis == "eps_s" else np.array(values)
    return Successes(of, np.array(labels, float), counts, study.seeds)


def boundaries(study: Claimed, rows: Sequence[Row]) -> dict[str, dict[str, Any]]:
    """Of each case: `found`, the exponent; `claimed`; `half`, labels where half succeed, by value.

    The claim holds where the interval of the exponent contains it.
    """
    out = {}
    for case, claim in zip(study.cases, study.claims, strict=True):
        grid = successes(study, rows, case.name)
        half = dict(zip(grid.values.tolist(), halves(grid).tolist(), strict=True))
        out[case.name] = {"found": boundary(grid), "claimed": claim, "half": half, "grid": grid}
    return out


def iterations(
    rows: Sequence[Row], case: str, threshold: float = SUCCESS, axis: str = "gamma_d"
) -> dict[float, list[float]]:
    """Steps that each trial needs until its test hinge loss is below; infinite where it never is.

    Between two looks the logarithm of the loss is taken as a straight line.
    """
    needed: dict[float, list[float]] = {}
    mine = [r for r in rows if r["case"] == case]
    for value in sorted({r[axis] for r in mine}):
        needed[value] = []
        for seed in sorted({r["seed"] for r in mine if r[axis] == value}):
            curve = [r for r in mine if (r[axis], r["seed"]) == (value, seed)]
            needed[value].append(_passage([(r["step"], r["hinge"]) for r in curve], threshold))
    return needed


def _passage(curve: list[tuple[int, float]], threshold: float) -> float:
    before = curve[0]
    for step, hinge in curve:
        if hinge < threshold:
            high, low = np.log(max(before[1], threshold)), np.log(max(hinge, threshold / 100))
            part = (high - np.log(threshold)) / max(high - low, 1e-12)
            return max(before[0] + part * (step - before[0]), 1.0)
        before = (step, hinge)
    return float("inf")


def growth(study: Claimed, rows: Sequence[Row], threshold: float) -> dict[str, dict[str, Any]]:
    """Of each case: `found`, the exponent of the axis in the steps needed, `claimed`, `median`.

    Values where a trial never gets there are left out of the fit and have infinite
    medians where most do not; the exponent is None where fewer than two are left.
    """
    out = {}
    for case, claim in zip(study.cases, study.claims, strict=True):
        needed = iterations(rows, case.name, threshold, study.axis)
        whole = {v: n for v, n in needed.items() if np.isfinite(n).all()}
        found = regression_of(whole)
        median = {v: float(np.median(n)) for v, n in needed.items()}
        out[case.name] = {"found": found, "claimed": claim, "median": median, "needed": needed}
    return out


def last(rows: Sequence[Row], axis: str) -> dict[tuple[str, float], list[Row]]:
    """(case, value) -> the rows of the last step of each seed."""
    out: dict[tuple[str, float], dict[int, Row]] = {}
    for r in rows:
        out.setdefault((r["case"], r[axis]), {})[r["seed"]] = r
    return {key: list(of.values()) for key, of in out.items()}


def ratios(rows: Sequence[Row], case: str) -> dict[float, Estimate]:
    """eps_0 above 0 -> the loss at the end over 2 eps_0, which is claimed to be 1."""
    ends = {eps: of for (name, eps), of in last(rows, "eps_0").items() if name == case and eps > 0}
    by = {eps: [r["hinge"] / (2 * eps) for r in of] for eps, of in sorted(ends.items())}
    return dict(zip(by, levels(means(by)), strict=True))


def slower(rows: Sequence[Row], case: str) -> Correlation:
    """Whether the steps of `settling` rise with eps_0."""
    values = sorted({r["eps_0"] for r in rows if r["case"] == case})
    return trend(values, means({eps: settling(rows, case, eps) for eps in values}))


def risen(rows: Sequence[Row], case: str, measure: str = "mass") -> tuple[Estimate, Correlation]:
    """A measure at the last step, and whether it rises over the steps."""
    by: dict[float, list[float]] = {}
    for r in rows:
        if r["case"] == case:
            by.setdefault(r["step"], []).append(r[measure])
    sample = means(by)
    return levels(sample)[-1], trend(sorted(by), sample)


def settling(rows: Sequence[Row], case: str, eps_0: float, part: float = 0.1) -> list[float]:
    """First step of each seed at which the loss has fallen to its end, but for `part` of the fall.

    The end is the mean over the last quarter of the looks: no trial settles on it exactly.
    """
    found = []
    mine = [r for r in rows if (r["case"], r["eps_0"]) == (case, eps_0)]
    for seed in sorted({r["seed"] for r in mine}):
        curve = [(r["step"], r["hinge"]) for r in mine if r["seed"] == seed]
        tail = [hinge for _, hinge in curve[-max(len(curve) // 4, 1) :]]
        end = sum(tail) / len(tail)
        limit = end + part * (curve[0][1] - end)
        found.append(float(next(step for step, hinge in curve if hinge <= limit)))
    return found
