"""Where the curve of each trial crosses a threshold, read from the measurements of a figure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

from graphtheory.papers.figure import Measurements, became
from graphtheory.papers.grid import Measured
from graphtheory.papers.pivot import groups
from graphtheory.papers.stats import crossing


@dataclass(frozen=True)
class Crossing:
    """Reads where each trial's curve crosses a threshold: the size that it needs.

    Between two sizes the curve is taken as a straight line, see `stats.crossing`.
    """

    size: str  # key of the size, such as the number of examples or of steps
    measure: str = "error"  # key of the curve's values
    threshold: float = 0.05  # of the measure
    setting: str = "value"  # key of the letter's value
    line: str = "{panel}"  # name of a line, with keys of a measurement in braces
    rising: bool = False  # whether the measure rises to the threshold; else it falls below it
    log_size: bool = True  # whether the line is straight over the logarithm of the size
    log_measure: bool = True  # whether it is straight in the logarithm of the measure

    def __call__(self, grid: Any, measured: Measurements) -> dict[str, dict[float, list[float]]]:
        """Line -> value of the letter -> the size that each trial needs.

        The smallest size where the trial is there at once, infinite where no size is enough.
        """
        out: dict[str, dict[float, list[float]]] = {self.line.format(**one): {} for one in measured}
        for one in _trials(measured, self.line, self.setting):
            curve = sorted((at[self.size], at[self.measure]) for at in one)
            found = crossing(curve, self.threshold, rising=self.rising, log_x=self.log_size,
                             log_y=self.log_measure)  # fmt: skip
            line = out[self.line.format(**one[0])]
            line.setdefault(one[0][self.setting], []).append(found)
        return out

    def inside(self, grid: Any, measured: Measurements) -> dict[str, dict[float, list[float]]]:
        """The same at the values where every trial needs a size between the smallest and largest.

        An exponent is fitted over these.
        """
        smallest = min((one[self.size] for one in measured), default=0)
        return {
            line: {v: of for v, of in by.items() if min(of) > smallest and max(of) < math.inf}
            for line, by in self(grid, measured).items()
        }


def size_text(size: float) -> str:
    """A needed size in three digits; "more" where none of the measured sizes is enough.

    Example:
        >>> [size_text(size) for size in (12.345, 640.2, math.inf)]
        ['12.3', '640', 'more']
    """
    return f"{size:.3g}" if size < math.inf else "more"


def fewer(needed: Mapping[float, Sequence[float]], things: str, letter: str) -> str:
    """The median size at each value of a letter, and whether larger values need less, in words.

    `needed` maps a value of the letter to the size that each trial needs; `things` says what it
    counts.

    Example:
        >>> fewer({0.2: [8.0] * 3, 0.4: [4.0] * 3}, "examples", "alpha")
        '8, 4 examples at alpha = 0.2, 0.4, fewer with every larger value: holds'
    """
    middle = [median(sizes) for sizes in needed.values()]
    falls = all(later < earlier for earlier, later in pairwise(middle))
    seeds = min(len(sizes) for sizes in needed.values())
    return (
        f"{', '.join(map(size_text, middle))} {things} at {letter} = "
        f"{', '.join(f'{value:g}' for value in needed)}, "
        f"{'fewer' if falls else 'not always fewer'} with every larger value: "
        f"{became(falls, seeds)}"
    )


def _trials(measured: Measurements, line: str, setting: str) -> list[list[Measured]]:
    """The measurements of each trial of each line, by setting and seed."""
    named = [one | {"": line.format(**one)} for one in measured]
    found = groups(named, "", setting, "seed").items()
    return [mine for _, mine in sorted(found, key=lambda item: item[0])]
