"""A figure or table of a paper as one value: run, shown, claimed and drawn; all of them by ID."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from graphtheory.lab.bench.rows import Row, Table, counted
from graphtheory.papers.grid import Grid, Measured
from graphtheory.papers.pivot import Measurements, Shown
from graphtheory.papers.stats import FEWEST_SEEDS

G = TypeVar("G", bound=Grid)


class Verdict(NamedTuple):
    """What was found of a claim."""

    text: str  # a sentence or more
    # the numbers that it is read from, beyond those of the table
    rows: list[Row] = []  # noqa: RUF012  (never changed)


Claim = Callable[[Any, Measurements], Verdict]
"""A claim of the paper, checked on (grid, measurements); `papers.claims` has the common ones."""


class Report(NamedTuple):
    """What a figure gives to read."""

    table: Table  # the numbers
    rows: list[Row]  # the same and those of the claims, as result rows
    verdict: str  # what was found of the claims, in sentences
    picture: Any  # the matplotlib figure, or None


@dataclass(frozen=True)
class DataSets:
    """The data sets that a figure can be made on; its grid has fields `dataset` and `root`."""

    default: str  # the one that is taken where none is named
    only: tuple[str, ...] = ()  # those that it is made for; empty for every graph
    images: bool = False  # whether they are sets of images, not graphs
    read: Callable[[str, Path | None], Any] | None = None  # loads one that is no graph for nodes

    def __str__(self) -> str:
        return ", ".join(self.only) or f"any graph, else {self.default}"


def on_dataset(grid: G, dataset: str, root: Path | None) -> G:
    """The grid on a data set: the usual `Figure.bind`."""
    return replace(grid, dataset=dataset, root=root)  # type: ignore[call-arg]


def changed(old: Any, to: Any) -> Any:
    """What a change makes of a value.

    A dictionary changes these fields of a dataclass, or of every one in a tuple; a slice takes a
    part of a tuple, a function makes the new value of the old one, and all else takes its place.
    """
    if isinstance(to, dict):
        if isinstance(old, tuple):
            return tuple(changed(one, to) for one in old)
        return replace(old, **{name: changed(getattr(old, name), of) for name, of in to.items()})
    if isinstance(to, slice):
        return old[to]
    return to(old) if callable(to) else to


def small(**changes: Any) -> Callable[[Any], Any]:
    """A quick form: the grid with other fields, as `changed` says."""
    return partial(changed, to=changes)


@dataclass(frozen=True)
class Figure:
    """One figure or table of a paper.

    The key under which a finished cell is kept, the table, the result rows, the verdict, the quick
    form and the line of the list follow from these fields.
    """

    id: str  # what `graphtheory reproduce` takes, such as "fig-7-3a"
    summary: str  # what it shows, in a line
    grid: Any  # settings and cells
    run: Callable[..., list[Measured]]  # measures one cell: ``run(grid, **cell)``
    # the measurements as a table and as rows; `papers.pivot.Pivot` is the usual one
    show: Callable[[Any, Measurements], Shown]
    claims: tuple[Claim, ...] = ()  # what the paper claims
    # draws the measurements: ``picture(grid, measured, title)``; None for no picture
    picture: Callable[[Any, Measurements, str], Any] | None = None
    quick: Callable[[Any], Any] = lambda grid: grid  # the grid in a small form for a first look
    # the data sets that it is made on; None for a figure that draws its own data
    data: DataSets | None = None
    # sets the data set and the folder of its files in the grid
    bind: Callable[[Any, str, Path | None], Any] = on_dataset

    @property
    def name(self) -> str:
        """As a title writes it: "Figure 7.3a", "Table B.1"."""
        kind, *rest = self.id.split("-")
        word = {"fig": "Figure", "table": "Table"}.get(kind)
        if word is None:
            return self.id
        number = ".".join(part.upper() if len(part) == 1 else part for part in rest[:2])
        return " ".join([word, number, *rest[2:]])

    @property
    def random(self) -> bool:
        """Whether its measurements depend on seeds."""
        return any(f.name == "seeds" for f in fields(self.grid))

    def settings(
        self, dataset: str = "", root: Path | None = None,
        *, seeds: int | None = None, first: int = 0, quick: bool = False,
    ) -> Any:  # fmt: skip
        """The grid that options ask for.

        On a data set with its files under `root`, where the figure is made on one; with this many
        seeds, None for the grid's own number, from `first` on; or in a small form, whatever `seeds`
        says.
        """
        grid = self.bind(self.grid, dataset, root) if self.data else self.grid
        if first and not hasattr(grid, "first"):
            raise ValueError(f"seed: got {first}, but the grid of {self.id} has no field `first`")
        if first:
            grid = replace(grid, first=grid.first + first)
        if quick:
            return self.quick(grid)
        return replace(grid, seeds=seeds) if seeds is not None else grid

    def report(self, grid: Any, measured: Measurements) -> Report:
        """Table, rows, verdict and picture of what `grid.measure(figure.run)` measured."""
        shown = self.show(grid, measured)
        found = [claim(grid, measured) for claim in self.claims]
        rows = [*shown.rows, *(row for verdict in found for row in verdict.rows)]
        title = self.name + (f" on {grid.dataset}" if self.data else "")
        title += f", {counted(grid.seeds, 'trial')}" if self.random else ""
        return Report(
            replace(shown.table, title=f"{title}: {shown.table.title}"),
            rows
            if shown.own_names
            else [replace(row, name=f"{self.id} {row.name}") for row in rows],
            " ".join(verdict.text for verdict in found),
            None if self.picture is None else self.picture(grid, measured, title),
        )


def verdict_of(holds: bool | str, seeds: int) -> str:
    """What was found of a claim, in words; a text says more than whether it holds."""
    if seeds < FEWEST_SEEDS:
        return f"no verdict of fewer than {FEWEST_SEEDS} seeds"
    return holds if isinstance(holds, str) else "holds" if holds else "not found"


def figures() -> dict[str, Figure]:
    """Every figure by its ID, in the order of numbers, those without one last.

    They are the entries of `FIGURES` of the modules `papers/<chapter>/figures*.py`, so that a new
    figure is an entry there, or a new file of that name.
    """
    return dict(sorted(_read(_modules()).items(), key=lambda item: _order(item[0])))


def figure(name: str) -> Figure | None:
    """The figure of an ID, or None; imports the modules alone whose source quotes the ID."""
    return _read(path for path in _modules() if f'"{name}"' in path.read_text("utf-8")).get(name)


def _modules() -> list[Path]:
    return sorted(Path(__file__).parent.glob("*/figures*.py"))


def _read(paths: Iterable[Path]) -> dict[str, Figure]:
    found: dict[str, Figure] = {}
    for path in paths:
        module = import_module(f"graphtheory.papers.{path.parent.name}.{path.stem}")
        for one in module.FIGURES:
            if one.id in found:
                raise ValueError(f"figures: {one.id} stands twice, expected an ID of its own")
            found[one.id] = one
    return found


def _order(name: str) -> tuple[bool, list[tuple[int, str]]]:
    """Numbers before letters, other names last: fig-2-1a, fig-10-1, fig-b-6, theorem-1."""
    kind, *parts = name.split("-")
    numbers = [re.match(r"(\d*)(.*)", part) for part in parts]
    key = [(int(m[1] or 10**6), m[2]) for m in numbers if m]
    return kind not in ("fig", "table", "steps"), [*key, (0, kind)]
