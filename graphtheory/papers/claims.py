"""Claims that several figures share: each is checked on measurements and told in sentences."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

from graphtheory.bench.rows import Row
from graphtheory.papers.figure import Measurements, Verdict
from graphtheory.papers.grid import Measured
from graphtheory.papers.pivot import groups
from graphtheory.papers.power_law import Exponent, regression_of
from graphtheory.papers.stats import crossing


def exponent_rows(what: str, found: Exponent | None, **about: Any) -> list[Row]:
    """A fitted exponent and the ends of its interval as result rows; none where there is none."""
    if found is None or math.isnan(found.exponent):
        return []
    ends = {"": found.exponent, ", lower end": found.low, ", upper end": found.high}
    return [Row.of(f"{what}{end}", value, "1", **about) for end, value in ends.items()]


def reached(
    values: Sequence[float], share: str, value: str, about: dict[str, Any] | None = None
) -> list[Row]:
    """Result rows of what some trials reach, infinite for those that do not.

    Args:
        values: One per trial.
        share: Name of the share of trials that reach it.
        value: Name of the values of those.
        about: Parameters of the rows.
    """
    finite, about = [one for one in values if one < math.inf], about or {}
    rows = [Row.of(share, len(finite) / len(values), "1", **about)]
    return [*rows, Row.of(value, finite, "1", **about)] if finite else rows


@dataclass(frozen=True)
class Crossing:
    """The size at which an error falls below a threshold shrinks as a power of a letter.

    Each trial's error is read off over the logarithm of the size, as a straight line in the
    logarithm of the error. The exponent is fitted over the values of the letter at which every
    trial gets there, and none at the smallest size already.

    Attributes:
        things: What the size counts, such as "examples".
        size: Key of the size.
        measure: Key of the error.
        threshold: Of the error.
        exponent: What the paper says is enough.
    """

    things: str
    size: str
    measure: str = "error"
    threshold: float = 0.05
    exponent: float = -2

    def needed(self, measured: Measurements) -> dict[float, list[float]]:
        """Value of the letter -> the size that each trial needs, infinite where none is enough."""
        out: dict[float, list[float]] = {}
        for (value, _), mine in sorted(groups(measured, "value", "seed").items()):
            curve = sorted((one[self.size], one[self.measure]) for one in mine)
            size = crossing(curve, self.threshold, log_x=True, log_y=True)
            out.setdefault(value, []).append(size)
        return out

    def fit(self, needed: dict[float, list[float]], smallest: float) -> Exponent | None:
        """The exponent of the letter; None of fewer than two values."""
        inside = {v: n for v, n in needed.items() if max(n) < math.inf and min(n) > smallest}
        return regression_of(inside)

    def __call__(self, grid: Any, measured: Measurements) -> Verdict:
        """One sentence or two for each panel."""
        told, rows = [], []
        for (panel,), mine in groups(measured, "panel").items():
            text, own = self._panel(panel, mine)
            told.append(text)
            rows += own
        return Verdict(" ".join(told), rows)

    def _panel(self, panel: str, mine: list[Measured]) -> tuple[str, list[Row]]:
        letter = mine[0]["series"].partition(" = ")[0]
        smallest, largest = (end(one[self.size] for one in mine) for end in (min, max))
        needed, rows = self.needed(mine), []
        for value, sizes in needed.items():
            rows += reached(
                sizes, "share of trials that get there", f"{self.things} needed",
                {"case": panel, letter: value, "error": self.threshold},
            )  # fmt: skip
        found = self.fit(needed, smallest)
        rows += exponent_rows("exponent", found, case=panel)
        middle = [median(sizes) for sizes in needed.values()]
        falls = all(later < earlier for earlier, later in pairwise(middle))
        shown = ", ".join(f"{size:.0f}" if size < math.inf else "more" for size in middle)
        text = (
            f"{panel}: an error of {self.threshold:g} needs {shown} {self.things} at {letter} = "
            f"{', '.join(f'{value:g}' for value in needed)}, "
            + ("fewer" if falls else "not always fewer")
            + " with every larger value: "
            + ("holds" if falls else "not found")
            + "; "
            + (
                "too few values for an exponent"
                if found is None
                else f"the number grows as {letter}^{found}, where {self.exponent:g} is claimed to "
                "suffice"
            )
            + f". With {largest} {self.things} "
            + zeros([one[self.measure] for one in mine if one[self.size] == largest])
            + "."
        )
        return text, rows


def zeros(errors: Sequence[float]) -> str:
    """How many of the errors are exactly 0, in words."""
    exact = sum(error == 0 for error in errors)
    return f"the error is exactly 0 in {exact} of {len(errors)} trials, at most {max(errors):.3f}"
