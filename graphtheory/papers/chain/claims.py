"""What became of the claims of figures 7.3 to 7.7 and F.1."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import fmean, median
from typing import Any

from graphtheory.papers.chain.metrics import MASSES
from graphtheory.papers.power_law import regression_of
from graphtheory.papers.study import Row

OTHERS = (*MASSES[1:], "own columns")  # kinds of columns that do not tell the step
ENOUGH = 0.05  # error at which examples are enough
LEFT = 0.1  # of what was there at the start, at the end of a stage


def needed(rows: Sequence[Row], threshold: float = ENOUGH) -> dict[int, float]:
    """Of each seed of one line the number of examples at which the error falls below.

    Between two lengths the logarithm of the error is taken as a straight line over that of the
    length. The shortest length where it is below there already, infinite where it never is.
    """
    out: dict[int, float] = {}
    for seed in sorted({r["seed"] for r in rows}):
        curve = sorted((r["contexts"], r["error"]) for r in rows if r["seed"] == seed)
        out[seed] = _passage(curve, threshold)
    return out


def _passage(curve: list[tuple[int, float]], threshold: float) -> float:
    before = curve[0]
    for length, error in curve:
        if error < threshold:
            high, low = math.log(max(before[1], threshold)), math.log(max(error, threshold / 100))
            part = (high - math.log(threshold)) / max(high - low, 1e-12)
            return before[0] * (length / before[0]) ** part
        before = (length, error)
    return math.inf


def growth(rows: Sequence[Row]) -> dict[str, dict[str, Any]]:
    """Of each panel: `needed` {value: examples by seed}, `falls`, and the exponent `found`.

    `falls`: whether the median number of examples needed falls with every larger value of the
    letter. The exponent is of those values where every seed gets there and none at once; None where
    there are fewer than two.
    """
    out = {}
    for panel in dict.fromkeys(r["panel"] for r in rows):
        mine = [r for r in rows if r["panel"] == panel]
        counts = {
            v: list(needed([r for r in mine if r["value"] == v]).values())
            for v in sorted({r["value"] for r in mine})
        }
        least = min(r["contexts"] for r in mine)
        inside = {v: c for v, c in counts.items() if max(c) < math.inf and min(c) > least}
        found = regression_of(inside)
        middle = [median(c) for c in counts.values()]
        falls = all(b < a for a, b in pairwise(middle))
        out[panel] = {"needed": counts, "falls": falls, "found": found}
    return out


def ends(rows: Sequence[Row]) -> dict[tuple[str, str], tuple[list[float], list[float]]]:
    """(panel, series) -> errors of the seeds at the shortest and at the longest prompts."""
    out = {}
    lengths = [r["contexts"] for r in rows]
    for key in dict.fromkeys((r["panel"], r["series"]) for r in rows):
        mine = [r for r in rows if (r["panel"], r["series"]) == key]
        first, last = (
            [r["error"] for r in mine if r["contexts"] == at] for at in (min(lengths), max(lengths))
        )
        out[key] = (first, last)
    return out


def stages(rows: Sequence[Row]) -> dict[int, tuple[float, float]]:
    """Of each seed the steps at which attention leaves other steps, and other patterns.

    First looks at which a tenth is left of what was there at the start: of the attention on other
    steps, and of the share of other patterns in the attention on the same step. Neither implies the
    other; infinite where there is none.
    """
    out = {}
    for seed in sorted({r["seed"] for r in rows}):
        mine = [r for r in rows if r["seed"] == seed]
        out[seed] = (_passed(mine, _other_steps), _passed(mine, _other_patterns))
    return out


def _other_steps(row: Row) -> float:
    return float(row[MASSES[2]] + row[MASSES[3]])


def _other_patterns(row: Row) -> float:
    return float(row[MASSES[1]] / max(row[MASSES[0]] + row[MASSES[1]], 1e-12))


def _passed(rows: Sequence[Row], measure: Callable[[Row], float]) -> float:
    limit = LEFT * measure(rows[0])
    return next((float(r["step"]) for r in rows if measure(r) < limit), math.inf)


def best_heads(rows: Sequence[Row]) -> dict[int, dict[str, Any]]:
    """Of each layer, by seed, the head that ends with most on the same step and pattern.

    Returns:
        layer -> `start` and `end`, that attention before and after training, and `leads`, in how
        many of the `seeds` it is more than that on any other kind of column.
    """
    first, last = min(r["step"] for r in rows), max(r["step"] for r in rows)
    out = {}
    for layer in sorted({r["layer"] for r in rows}):
        start, end, leads = [], [], 0
        for seed in sorted({r["seed"] for r in rows}):
            mine = [r for r in rows if (r["layer"], r["seed"]) == (layer, seed)]
            best = max((r for r in mine if r["step"] == last), key=lambda r: r[MASSES[0]])
            before = next(r for r in mine if (r["step"], r["head"]) == (first, best["head"]))
            start.append(before[MASSES[0]])
            end.append(best[MASSES[0]])
            leads += best[MASSES[0]] > max(best[name] for name in OTHERS)
        out[layer] = {"start": fmean(start), "end": fmean(end), "leads": leads, "seeds": len(end)}
    return out
