"""Appendix B on real graphs: what a diagnosis finds beside what the thesis prints."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from graphtheory.bench.diagnose import MOMENTS, Diagnosis
from graphtheory.bench.rows import Row
from graphtheory.papers.core_neighborhood.thesis_tables import Compared, beside, verdicts
from graphtheory.papers.figure import DataSets, Figure, Measurements, Shown, Verdict
from graphtheory.papers.grid import Grid, Measured, unrecorded
from graphtheory.report.diagnosis import pictures, share_table
from graphtheory.report.table import Table

_EXACT = 0.01  # of a number that is printed with two digits


@dataclass(frozen=True)
class Diagnosed(Grid):
    """A diagnosis, as far as a table needs it; one cell.

    Attributes:
        max_distance: Largest distance z of the margins, hops.
        moments: Definitions of discriminative nodes; none where no feature is needed.
        dataset: Name of a graph.
        root: Folder with the raw files.
    """

    max_distance: int = 12
    moments: tuple[str, ...] = MOMENTS
    dataset: str = "Cora"
    root: Path | None = unrecorded(None)


def diagnosis(grid: Diagnosed) -> list[Measured]:
    """The result rows of the diagnosis as plain values."""
    chosen = Diagnosis(grid.dataset, grid.root, grid.max_distance, moments=grid.moments)
    return [asdict(row) for row in chosen.run()]


@dataclass(frozen=True)
class Printed:
    """A printed table or picture.

    Attributes:
        table: As `thesis_tables` names it.
        wanted: Names of the rows that it is made of.
        drawn: Name of its picture in a diagnosis; "" for none.
    """

    table: str
    wanted: tuple[str, ...]
    drawn: str = ""

    def show(self, grid: Diagnosed, measured: Measurements) -> Shown:
        """By class where there is a number for each, else every definition."""
        every, found = _read(measured), self._compared(measured)
        own = [row for row in every if row.name in self.wanted]
        if found and own[0].name == "discriminative share":
            return Shown(share_table(own, beside(every)), own, own_names=True)
        heads = ("quantity", "found", "thesis", "difference", "definition")
        lines = [
            (
                one.what, one.found, one.thesis,
                "" if one.difference is None else f"{one.difference:.2f}",
                ", ".join(["as printed"] * one.stated + ["closest"] * one.closest),
            )
            for one in found
        ]  # fmt: skip
        return Shown(Table("beside the printed numbers", heads, lines), own, own_names=True)

    def agrees(self, grid: Diagnosed, measured: Measurements) -> Verdict:
        """Whether the printed definition gives the number; if not, which comes closest."""
        found = self._compared(measured)
        stated = "; ".join(_told(one) for one in found if one.stated)
        nearer = [_told(one) for one in found if one.closest and not one.stated]
        also = "".join(f" Of other definitions the closest: {told}." for told in nearer)
        return Verdict(f"As printed: {stated}.{also}")

    def picture(self, grid: Diagnosed, measured: Measurements, title: str) -> Any:
        """That of the diagnosis."""
        every = _read(measured)
        return next(
            (drawn for name, drawn, _ in pictures(every, beside(every)) if name == self.drawn), None
        )

    def _compared(self, measured: Measurements) -> list[Compared]:
        return [one for one in verdicts(_read(measured)) if one.table == self.table]


def _read(measured: Measurements) -> list[Row]:
    return [Row(**row) for row in measured]


def _told(one: Compared) -> str:
    told = f"{one.what}: {one.found}, thesis {one.thesis}"
    if one.difference is None:
        return told
    return f"{told}, {'found' if one.difference < _EXACT else f'off by {one.difference:.2f}'}"


def _quick(grid: Diagnosed) -> Diagnosed:
    return replace(grid, max_distance=min(3, grid.max_distance))


def _table(figure: str, summary: str, printed: Printed, grid: Diagnosed, *datasets: str) -> Figure:
    return Figure(
        figure, summary, grid, diagnosis, printed.show, (printed.agrees,),
        printed.picture if printed.drawn else None, _quick, DataSets(datasets[0], datasets),
    )  # fmt: skip


def _shares(figure: str, table: str, dataset: str) -> Figure:
    return _table(
        figure, "discriminative nodes of each class",
        Printed(table, ("discriminative share",), "shares"), Diagnosed(max_distance=1), dataset,
    )  # fmt: skip


_NO_FEATURES = Diagnosed(moments=())
FIGURES = (
    _table(
        "fig-b-5", "winning margin over the distance",
        Printed("fig. B.5", ("normalised margin", "pooled margin", "reach"), "margin"),
        Diagnosed(), "Cora", "PubMed", "Actor",
    ),
    _shares("table-b-1", "B.1", "Cora"),
    _shares("table-b-2", "B.2", "PubMed"),
    _shares("table-b-3", "B.3", "Actor"),
    _table(
        "table-b-5", "nodes with a winning margin above 0", Printed("B.5", ("positive margin",)),
        Diagnosed(), "Cora", "PubMed", "Actor",
    ),
    _table(
        "table-b-6", "sizes of the graphs",
        Printed("B.6", ("nodes", "edges", "classes", "features")), _NO_FEATURES, "Actor", "PubMed",
    ),
    _table(
        "table-b-8", "how even the classes are",
        Printed("B.8", ("class size", "balance mean", "balance largest_gap"), "balance"),
        _NO_FEATURES, "Cora", "Actor",
    ),
)  # fmt: skip
