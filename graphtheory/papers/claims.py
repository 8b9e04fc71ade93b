"""Claims that several figures share: each is checked on measurements and told in sentences.

A claim reads its numbers from the measurements with a function of its own, such as `over` or
a `Crossing`: name of a line of the figure -> setting -> the measure of each seed.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any, Literal

from graphtheory.lab.bench.rows import Row
from graphtheory.papers import stats
from graphtheory.papers.figure import Verdict, verdict_of
from graphtheory.papers.pivot import Measurements, groups
from graphtheory.papers.stats import Exponent, Successes, regression_of


@dataclass(frozen=True)
class Crossing:
    """Reads where each trial's curve crosses a threshold: the size that it needs.

    Between two sizes the curve is taken as a straight line.
    """

    size: str  # key of the size, such as the number of examples or of steps
    measure: str = "error"  # key of the curve's values
    threshold: float = 0.05  # of the measure
    setting: str = "value"  # key of the letter's value
    line: str = "{panel}"  # name of a line, with keys of a measurement in braces
    rising: bool = False  # whether the measure rises to the threshold; else it falls below it
    log_size: bool = True  # whether the line is straight over the logarithm of the size, above 0
    # whether it is straight in the logarithm of the measure, of which what lies below a hundredth
    # of the threshold counts as that hundredth
    log_measure: bool = True
    stays: bool = False  # whether it has to stay there at all larger sizes

    def __call__(self, grid: Any, measured: Measurements) -> dict[str, dict[float, list[float]]]:
        """Line -> value of the letter -> the size that each trial needs.

        The smallest size where the trial is there at once, infinite where no size is enough.
        """
        out: dict[str, dict[float, list[float]]] = {self.line.format(**one): {} for one in measured}
        named = [one | {"": self.line.format(**one)} for one in measured]
        trials = groups(named, "", self.setting, "seed")
        for line, value, seed in sorted(trials):
            trial = trials[line, value, seed]
            curve = sorted((at[self.size], at[self.measure]) for at in trial)
            out[line].setdefault(value, []).append(self.of(curve))
        return out

    def of(self, curve: Sequence[tuple[float, float]]) -> float:
        """Where points (size, measure), sizes ascending, cross it, as `__call__` says."""
        aim = self.threshold
        past = [y >= aim if self.rising else y < aim for _, y in curve]
        if self.stays and not all(past):
            last = len(past) - 1 - past[::-1].index(False)
            curve, past = curve[last:], past[last:]
        x, y = curve[0]
        for (x_next, y_next), there in zip(curve, past, strict=True):
            if there:
                if x_next == x:
                    return float(x)
                if self.log_measure:
                    before, after = (math.log(max(value, aim / 100)) for value in (y, y_next))
                    part = (before - math.log(aim)) / (before - after or 1e-12)
                else:
                    part = (aim - y) / (y_next - y)
                return float(x * (x_next / x) ** part if self.log_size else x + part * (x_next - x))
            x, y = x_next, y_next
        return math.inf

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
    """
    middle = [median(sizes) for sizes in needed.values()]
    falls = all(later < earlier for earlier, later in pairwise(middle))
    seeds = min(len(sizes) for sizes in needed.values())
    return (
        f"{', '.join(map(size_text, middle))} {things} at {letter} = "
        f"{', '.join(f'{value:g}' for value in needed)}, "
        f"{'fewer' if falls else 'not always fewer'} with every larger value: "
        f"{verdict_of(falls, seeds)}"
    )


Numbers = Mapping[float, Sequence[float]]
"""Setting -> the measure of each seed, in the same order of seeds."""
Read = Callable[[Any, Measurements], Mapping[str, Any]]
"""(grid, measured) -> name of a line -> `Numbers`, or the `Successes` of its trials."""


def over(setting: str, measure: str, line: str = "{case}") -> Read:
    """Reads a measure over a setting, for each line of a figure.

    A line is named with keys of a measurement in braces, such as "{labels} images". Measurements
    without the measure are left out.
    """

    def read(grid: Any, measured: Measurements) -> dict[str, dict[float, list[float]]]:
        mine = [one for one in measured if measure in one]
        out: dict[str, dict[float, list[float]]] = {line.format(**one): {} for one in mine}
        for one in sorted(mine, key=lambda one: (one[setting], one["seed"])):
            out[line.format(**one)].setdefault(one[setting], []).append(one[measure])
        return out

    return read


def exponent_rows(what: str, found: Exponent | None, **about: Any) -> list[Row]:
    """A fitted exponent and the ends of its interval as result rows; none where there is none."""
    if found is None or math.isnan(found.exponent):
        return []
    ends = {"": found.exponent, ", lower end": found.low, ", upper end": found.high}
    return [Row.of(f"{what}{end}", value, "1", **about) for end, value in ends.items()]


def reached(
    values: Sequence[float], share: str, value: str, about: dict[str, Any] | None = None
) -> list[Row]:
    """Result rows of the share of trials that reach a value, and of it; infinite where none is."""
    finite, about = [one for one in values if one < math.inf], about or {}
    rows = [Row.of(share, len(finite) / len(values), "1", **about)]
    return [*rows, Row.of(value, finite, "1", **about)] if finite else rows


@dataclass(frozen=True, kw_only=True)
class Claimed(ABC):
    """Base of claims that say the same of every line of a figure, in a sentence for each."""

    what: str  # the measure, in words
    letter: str  # what varies along a line
    read: Read  # the numbers of each line
    # result rows of what was found: ``rows(name of the line, found)``
    rows: Callable[[str, Any], list[Row]] = lambda line, found: []

    def __call__(self, grid: Any, measured: Measurements) -> Verdict:
        told, rows = [], []
        for place, (line, numbers) in enumerate(self.read(grid, measured).items()):
            found = self.find(numbers)
            told.append(f"{line}: {self.tell(found, place, numbers)}.")
            rows += self.rows(line, found)
        return Verdict(" ".join(told), rows)

    @abstractmethod
    def find(self, numbers: Any) -> Any:
        """What the numbers of one line show; None of too few."""

    @abstractmethod
    def tell(self, found: Any, place: int, numbers: Any) -> str:
        """That in words, beside the claim for the line at this place of the figure."""


@dataclass(frozen=True, kw_only=True)
class Power(Claimed):
    """A number is a power of a letter: the interval of the fitted exponent contains the claimed."""

    # the exponent of every line, or one for each line; nan where none is claimed
    claimed: float | tuple[float, ...]
    # `regression_of` for numbers, or `boundary` for successes
    fit: Callable[[Any], Exponent | None] = regression_of
    least: int = 2  # settings that a verdict needs
    no_law: float = 0.01  # P-value of the fit below which it is no power law

    def find(self, numbers: Any) -> Exponent | None:
        found = self.fit(numbers)
        return None if found is None or math.isnan(found.exponent) else found

    def tell(self, found: Exponent | None, place: int, numbers: Any) -> str:
        if found is None:
            return f"too few {self.what} inside the grid for an exponent"
        said = f"{self.what} ~ ({self.letter})^{found}"
        claimed = self.claimed[place] if isinstance(self.claimed, tuple) else self.claimed
        if math.isnan(claimed):
            return said
        said += f", claimed {claimed:g}: "
        if len(_settings(numbers)) < self.least:
            return f"{said}no verdict of fewer than {self.least} values"
        law = not found.misfit < self.no_law  # nan where that is not tested
        said += verdict_of(found.low <= claimed <= found.high and law, _seeds(numbers))
        if math.isnan(found.misfit):
            return said
        return f"{said} ({'a' if law else 'no'} power law fits, p = {found.misfit:.2g})"


@dataclass(frozen=True, kw_only=True)
class Trend(Claimed):
    """A measure rises or falls with a letter: the interval of its rank correlation says so."""

    # what it does; None where nothing is claimed
    claimed: Literal["rises", "falls", "does not rise", "does not fall"] | None
    # `medians`, `means` or, of successes, `boundaries`
    sample: Callable[[Any], Any] = stats.medians
    more: Callable[[Any], str] = lambda numbers: ""  # what else is said of the numbers of a line

    def find(self, numbers: Any) -> Any:
        values = _settings(numbers)
        return stats.trend(values, self.sample(numbers)) if len(values) > 1 else None

    def tell(self, found: Any, place: int, numbers: Any) -> str:
        if found is None:
            return f"{self.what} at too few values of {self.letter} for a trend"
        does = {"no trend": "has no trend"}.get(found.direction, found.direction)
        said = f"{self.what} {does} with {self.letter} ({found}){self.more(numbers)}"
        if self.claimed is None:
            return said
        _, negated, wanted = self.claimed.rpartition("does not ")
        holds = (found.direction.rstrip("s") == wanted.rstrip("s")) != bool(negated)
        return f"{said}, claimed: {self.claimed}: {verdict_of(holds, _seeds(numbers))}"


@dataclass(frozen=True, kw_only=True)
class Turn(Claimed):
    """A measure first falls and then rises with a letter: it is lowest inside, at neither end."""

    highest: bool = False  # whether it first rises and then falls instead
    sample: Callable[[Any], Any] = stats.medians  # `medians` or, of successes, `boundaries`

    def find(self, numbers: Any) -> Any:
        values, sign = _settings(numbers), -1 if self.highest else 1
        if not values:
            return None
        whole, drawn = self.sample(numbers)
        return stats.lowest(values, (sign * whole, sign * drawn))

    def tell(self, found: Any, place: int, numbers: Any) -> str:
        if found is None:
            return f"{self.what} at no value of {self.letter}"
        said, way = str(found), "fall and then to rise"
        if self.highest:
            said, way = said.replace("lowest", "highest"), "rise and then to fall"
        return (
            f"{self.what} over {self.letter} is {said}, claimed to {way}: "
            f"{verdict_of(found.holds, _seeds(numbers))}"
        )


@dataclass(frozen=True, kw_only=True)
class Level(Claimed):
    """The mean of a measure is within bounds at every setting, with its interval."""

    low: float = -math.inf  # the least that is claimed
    high: float = math.inf  # the most
    digits: str = ".2f"  # format of a size

    def find(self, numbers: Any) -> Any:
        return stats.levels(stats.means(numbers)) if numbers else None

    def tell(self, found: Any, place: int, numbers: Any) -> str:
        if found is None:
            return f"{self.what} at no value of {self.letter}"
        sizes = (f"{x.value:{self.digits}} [{x.low:{self.digits}}, {x.high:{self.digits}}]"
                 for x in found)  # fmt: skip
        shown = ", ".join(
            f"{size} at {self.letter} = {at:g}"
            for at, size in zip(_settings(numbers), sizes, strict=True)
        )
        bounds = [f"at least {self.low:g}"] * (self.low > -math.inf)
        bounds += [f"at most {self.high:g}"] * (self.high < math.inf)
        holds = all(self.low <= size.low and size.high <= self.high for size in found)
        return (
            f"{self.what} is {shown}, claimed {' and '.join(bounds)}: "
            f"{verdict_of(holds, _seeds(numbers))}"
        )


def zeros(errors: Sequence[float]) -> str:
    """How many of the errors are exactly 0, in words."""
    exact = sum(error == 0 for error in errors)
    return f"the error is exactly 0 in {exact} of {len(errors)} trials, at most {max(errors):.3f}"


def _settings(numbers: Any) -> list[float]:
    return numbers.values.tolist() if isinstance(numbers, Successes) else sorted(numbers)


def _seeds(numbers: Any) -> int:
    if isinstance(numbers, Successes):
        return numbers.trials
    return min((len(of) for of in numbers.values()), default=0)
