"""What became of the claims of figure 2.6."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphtheory.papers.power_law import Exponent, regression_of
from graphtheory.papers.stats import Correlation, medians, trend
from graphtheory.papers.study import Row


def over(rows: Sequence[Row], axis: str, value: str = "accuracy") -> dict[float, list[float]]:
    """Setting -> the value of each seed, seeds in order."""
    ordered = sorted(rows, key=lambda r: (r[axis], r["seed"]))
    by: dict[float, list[float]] = {}
    for row in ordered:
        by.setdefault(row[axis], []).append(row[value])
    return by


def direction(rows: Sequence[Row], axis: str, value: str = "accuracy") -> Correlation:
    """Whether the value rises or falls along an axis."""
    by = over(rows, axis, value)
    return trend(list(by), medians(by))


def gains(rows: Sequence[Row], axis: str, value: str = "accuracy") -> list[float]:
    """Of each seed, how much the value is larger at the end of the axis than at its beginning."""
    by = over(rows, axis, value)
    first, last = by[min(by)], by[max(by)]
    return [b - a for a, b in zip(first, last, strict=True)]


def needed(rows: Sequence[Row], target: float) -> dict[float, list[float]]:
    """alpha_star -> images that each seed needs for an accuracy of `target`.

    Between two numbers the accuracy is taken as a straight line in the logarithm of the number. 0
    where the smallest number is enough, infinite where the largest is not.
    """
    found: dict[float, list[float]] = {}
    for alpha in sorted({r["alpha_star"] for r in rows}):
        mine = [r for r in rows if r["alpha_star"] == alpha]
        found[alpha] = [
            _crossing([r for r in mine if r["seed"] == seed], target)
            for seed in sorted({r["seed"] for r in mine})
        ]
    return found


def _crossing(rows: Sequence[Row], target: float) -> float:
    curve = sorted((r["labels"], r["accuracy"]) for r in rows)
    if curve[0][1] >= target:
        return 0.0
    before = curve[0]
    for labels, accuracy in curve:
        if accuracy >= target:
            part = (target - before[1]) / (accuracy - before[1])
            return float(before[0] * (labels / before[0]) ** part)
        before = (labels, accuracy)
    return float("inf")


def growth(found: dict[float, list[float]]) -> Exponent | None:
    """The exponent of alpha_star in the images needed; None where fewer than two shares have one.

    Shares at which a seed needs less or more images than the grid has are left out.
    """
    return regression_of({a: n for a, n in found.items() if np.isfinite(n).all() and min(n) > 0})
