"""How scores are written, and tables of text that both a page and a terminal can show."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from scipy.special import stdtrit

from graphtheory.lab.train.score import SCORES

_SIGNIFICANT = 4  # digits of a score in the unit of its target


@dataclass(frozen=True)
class Table:
    """Columns and rows of text; every column but the first `words` holds numbers.

    Raises:
        ValueError: A row of another length than the headings.
    """

    title: str  #: Above the table.
    columns: Sequence[str]  #: Headings.
    rows: Sequence[Sequence[str]]  #: One text a column.
    words: int = 1  #: How many columns, from the left, are words.
    note: str = ""  #: Below the table; "" for none.

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(
                    f"rows: {len(row)} entries in {list(row)}, expected {len(self.columns)}, one "
                    f"for each of {list(self.columns)}"
                )

    def __str__(self) -> str:
        """Lines of text: columns as wide as they need, words to the left and numbers to the right.

        Example:
            >>> print(Table("", ("model", "test"), [("gt", "91.20"), ("gcn", "9.10")]))
            model   test
            gt     91.20
            gcn     9.10
        """
        lines = [list(self.columns), *(list(row) for row in self.rows)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        text = [
            "  ".join(
                cell.ljust(width) if place < self.words else cell.rjust(width)
                for place, (cell, width) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            for line in lines
        ]
        return "\n".join([*filter(None, [self.title]), *text, *filter(None, [self.note])])


def pairs(title: str, values: Iterable[tuple[str, object]]) -> Table:
    """Make a table of names and values, without headings."""
    return Table(title, ("", ""), [(name, str(value)) for name, value in values], words=2)


def counted(count: int | str, thing: str) -> str:
    """Write a number of things, such as "1 seed" and "3 seeds"."""
    return f"{count} {thing}" if str(count) == "1" else f"{count} {thing}s"


def mean_spread(values: Sequence[float], digits: str = ".2f") -> str:
    """Write mean ± standard deviation of a sample, such as "1.50 ± 0.71"; one value alone."""
    if len(values) == 1:
        return f"{values[0]:{digits}}"
    return f"{fmean(values):{digits}} ± {stdev(values):{digits}}"


def percent_mean(shares: Sequence[float]) -> str:
    """Write the mean of shares (0..1) in percent, such as "37.5"."""
    return f"{100 * fmean(shares):.1f}"


def percent_spread(shares: Sequence[float], digits: str = ".2f") -> str:
    """Write `mean_spread` of shares (0..1) in percent."""
    return mean_spread([100 * share for share in shares], digits)


@dataclass(frozen=True)
class Measure:
    """A metric as tables and pictures show it."""

    name: str  # as `train` and the data sets spell it
    title: str  # as it is written in a sentence

    @property
    def higher_is_better(self) -> bool:
        """Whether a higher score is a better one; False of errors."""
        return SCORES[self.name].higher_is_better

    share = higher_is_better  # lies in 0..1 and is shown in percent; errors have a unit

    @property
    def symbol(self) -> str:
        """The unit of what is shown: "%" of shares; that of a target is not known."""
        return "%" if self.share else ""

    def gain(self, first: float, other: float) -> float:
        """The advantage of the first score over the other one; negative where it is worse."""
        return first - other if self.higher_is_better else other - first

    def shown(self, score: float, spread: float = math.nan, sign: str = "") -> str:
        """Write a score without its unit as "91.20 ± 0.51", or "91.20" where the spread is nan."""
        digits, scale = (2, 100) if self.share else (_decimals(score, spread), 1)
        text = f"{scale * score:{sign}.{digits}f}"
        return text if math.isnan(spread) else f"{text} ± {scale * spread:.{digits}f}"

    def short(self, score: float, digits: str = ".1f") -> str:
        """Write a score without its unit for a line of progress; `digits` formats a percent."""
        return f"{100 * score:{digits}}" if self.share else self.shown(score)

    def format(self, score: float, spread: float = math.nan) -> str:
        """Write a score as `shown` does, with its unit."""
        return f"{self.shown(score, spread)} {self.symbol}".rstrip()

    @property
    def axis_unit(self) -> str:
        """Unit and, where lower is better, the direction, for axes and notes; "%" of shares."""
        direction = "" if self.higher_is_better else "lower is better"
        return ", ".join(filter(None, (self.symbol, direction)))


@dataclass(frozen=True)
class Difference:
    """The advantage of the first model over another on the same seeds; positive is better."""

    model: str  # the other one
    difference: float  # mean over the seeds that both have, 0..1 or in the unit of the target
    standard_error: float  # of that mean; nan of one seed
    ahead: int  # seeds on which the first model is strictly better
    seeds: int  # that both have

    @property
    def half_width(self) -> float:
        """Half of Student's 95 % interval of the mean over the seeds; nan of one seed."""
        return float(stdtrit(self.seeds - 1, 0.975)) * self.standard_error


_ROUNDING = 1e-9  # of differences that are all alike


def reading(found: Difference) -> str:
    """Whether Student's 95 % interval leaves 0 out; "no" of few seeds that differ all alike."""
    if math.isnan(found.standard_error):
        return "one seed"
    if found.standard_error <= _ROUNDING * abs(found.difference) and found.seeds < 5:
        return "no"
    if abs(found.difference) <= found.half_width:
        return "no"
    return "ahead" if found.difference > 0 else "behind"


_TITLES = {
    "accuracy": "accuracy", "rocauc": "ROC AUC", "ap": "average precision", "f1": "macro F1",
    "mae": "MAE", "rmse": "RMSE",
}  # fmt: skip
MEASURES = {name: Measure(name, title) for name, title in _TITLES.items()}
ACCURACY = MEASURES["accuracy"]


def measure_of(metric: str) -> Measure:
    """Look up how a metric is read."""
    if metric not in MEASURES:
        raise ValueError(f"metric: got {metric!r}, expected one of {', '.join(MEASURES)}")
    return MEASURES[metric]


def _decimals(*values: float) -> int:
    """Decimals that leave the largest of the values with this many significant digits."""
    largest = max((abs(v) for v in values if math.isfinite(v)), default=0.0)
    if largest == 0:
        return _SIGNIFICANT
    return max(0, min(8, _SIGNIFICANT - 1 - math.floor(math.log10(largest))))
