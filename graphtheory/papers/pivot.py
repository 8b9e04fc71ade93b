"""Measurements in groups, and as a table and result rows: means over the seeds."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, NamedTuple

from graphtheory.lab.bench.rows import Row, Table
from graphtheory.papers.grid import Measured

Measurements = Sequence[Measured]


def groups(measured: Iterable[Measured], *keys: str) -> dict[tuple[Any, ...], list[Measured]]:
    """Values of these keys -> the measurements that have them, in the order of appearance."""
    out: dict[tuple[Any, ...], list[Measured]] = {}
    for one in measured:
        out.setdefault(tuple(one[key] for key in keys), []).append(one)
    return out


def at_most(setting: str, measured: Measurements) -> list[Measured]:
    """Those of the largest setting, such as the last step of training."""
    most = max(one[setting] for one in measured)
    return [one for one in measured if one[setting] == most]


def where(measured: Iterable[Measured], **values: Any) -> list[Measured]:
    """Those that have these values."""
    return [one for one in measured if values.items() <= one.items()]


class Shown(NamedTuple):
    """Measurements for people and for files."""

    table: Table  # the numbers
    rows: list[Row]  # the same as result rows, whose names do not say the figure yet
    # whether that stays so, because they say it or another command writes them
    own_names: bool = False


@dataclass(frozen=True)
class Pivot:
    """Means over the seeds: a line for each value of `lines`, a column for each value of `across`.

    Without `across` each measure is a column.
    """

    title: str  # what the numbers are, after the figure's name
    measures: Mapping[str, str]  # key of a measurement -> its name in the result rows
    lines: Mapping[str, str]  # keys whose values make a line -> their names in the result rows
    across: str | None = None  # key whose values make the columns, or None
    heads: Sequence[str] = ()  # headings of the columns before the numbers
    # the entries of a line before the numbers, from one of its measurements; None for the values of
    # `lines`
    begin: Callable[[Measured], list[str]] | None = None
    facts: Sequence[str] = ()  # more keys of the result rows, the same within a line
    column: str = "{}"  # heading of a column, with "{}" for its value
    # the measurements of a cell as text, such as `lab.bench.rows.mean_spread`
    cell: Callable[[Sequence[float]], str] = lambda values: f"{fmean(values):.3f}"
    words: int = 1  # how many columns are words
    # whether lines and columns change places in the table, but not in the rows
    turned: bool = False
    note: str = ""  # below the table

    def __call__(self, grid: Any, measured: Measurements) -> Shown:
        """The table and the rows, whose values are those of the seeds."""
        columns = list(dict.fromkeys(one[self.across] for one in measured)) if self.across else []
        lines, rows = [], []
        for mine in groups(measured, *self.lines).values():
            facts = {fact: mine[0][fact] for fact in self.facts}
            about = {name: mine[0][key] for key, name in self.lines.items()} | facts
            begin = self.begin(mine[0]) if self.begin else [str(mine[0][k]) for k in self.lines]
            cells = groups(mine, self.across) if self.across else {(): mine}
            for at, cell in cells.items():
                where = about | ({self.across: at[0]} if self.across else {})
                for key, name in self.measures.items():
                    values = [one[key] for one in cell]
                    rows.append(Row.of(name, values, "1", **where))
                    begin.append(self.cell(values))
            lines.append(begin)
        heads, names = [*(self.heads or self.lines.values())], list(self.measures.values())
        if self.across:
            names = names if len(names) > 1 else [""]
            heads += [
                ", ".join(filter(None, [name, self.column.format(at)]))
                for at in columns
                for name in names
            ]
        else:
            heads += names
        if self.turned:
            heads, *lines = [list(line) for line in zip(heads, *lines, strict=True)]
        return Shown(Table(self.title, heads, lines, words=self.words, note=self.note), rows)
