"""A table of text, which both a page and a terminal can show."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev


@dataclass(frozen=True)
class Table:
    """Columns and rows of text; every column but the first `words` holds numbers.

    Attributes:
        title: Above the table.
        columns: Headings.
        rows: One text a column.
        words: How many columns, from the left, are words.
        note: Below the table; "" for none.

    Raises:
        ValueError: A row of another length than the headings.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: int = 1
    note: str = ""

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
