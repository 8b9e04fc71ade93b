"""Tables B.1 to B.8 and figure B.5 on real graphs: what is printed, and what a diagnosis finds."""

from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from graphtheory.lab.bench.diagnose import MOMENTS, Diagnosis, discriminative_shares, load_graph
from graphtheory.lab.bench.rows import Row
from graphtheory.lab.bench.table import Table
from graphtheory.lab.datasets.graphs import load_known
from graphtheory.lab.report.diagnosis import pictures, share_table
from graphtheory.papers.core_neighborhood.printed import SHARES, Compared, beside, verdicts
from graphtheory.papers.figure import DataSets, Figure, Verdict, small
from graphtheory.papers.grid import Grid, Measured, unrecorded
from graphtheory.papers.pivot import Measurements, Shown

_EXACT = 0.01  # of a number that is printed with two digits
_SHARE, _KNOWN = "discriminative share", "nodes with features"


@dataclass(frozen=True)
class Diagnosed(Grid):
    """A diagnosis, as far as a table needs it; one cell."""

    max_distance: int = 12  # largest distance z of the margins, hops
    # definitions of discriminative nodes; none where no feature is needed
    moments: tuple[str, ...] = MOMENTS
    dataset: str = "Cora"  # name of a graph
    root: Path | None = unrecorded(None)  # folder with the raw files


def diagnosis(grid: Diagnosed) -> list[Measured]:
    """The result rows of the diagnosis as plain values.

    Where some nodes have no features at hand, as in a PubMed without its file allx, the shares of
    discriminative nodes are those of the others.
    """
    chosen = Diagnosis(grid.dataset, grid.root, grid.max_distance, moments=grid.moments)
    rows = chosen.run()
    if grid.moments and not any(row.name == _SHARE for row in rows):
        known = load_known(grid.dataset, grid.root)
        rows.append(Row.of(_KNOWN, len(known.y), "nodes", dataset=chosen.name))
        for moment in grid.moments:
            rows += discriminative_shares(chosen.name, known.x, known.y, moment)[1]
    return [asdict(row) for row in rows]


@dataclass(frozen=True)
class PrintedTable:
    """A printed table or picture."""

    table: str  # as `PRINTED` names it
    wanted: tuple[str, ...]  # names of the rows that it is made of
    drawn: str = ""  # name of its picture in a diagnosis; "" for none

    def show(self, grid: Diagnosed, measured: Measurements) -> Shown:
        """By class where there is a number for each, else every definition."""
        every, found = _read(measured), self._compared(measured)
        own = [row for row in every if row.name in self.wanted]
        if found and own[0].name == _SHARE:
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
        known = [row for row in _read(measured) if row.name == _KNOWN]
        of = "".join(f" Of the {row.value:,.0f} nodes whose features are at hand." for row in known)
        return Verdict(f"As printed: {stated}.{also}{of}", known)

    def picture(self, grid: Diagnosed, measured: Measurements, title: str) -> Any:
        """Draw the picture of the diagnosis."""
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
        return ": ".join(filter(None, (told, one.verdict)))
    return f"{told}, {'found' if one.difference < _EXACT else f'off by {one.difference:.2f}'}"


def _table(
    figure: str,
    summary: str,
    printed: PrintedTable,
    grid: Diagnosed,
    *datasets: str,
    read: Any = None,
) -> Figure:
    return Figure(
        figure, summary, grid, diagnosis, printed.show, (printed.agrees,),
        printed.picture if printed.drawn else None, 
        small(max_distance=lambda hops: min(3, hops)),
        DataSets(datasets[0], datasets, read=read),
    )  # fmt: skip


_NO_FEATURES = Diagnosed(moments=())
FIGURES = (
    _table(
        "fig-b-5", "winning margin over the distance",
        PrintedTable("fig. B.5", ("normalized margin", "pooled margin", "reach"), "margin"),
        Diagnosed(), "Cora", "PubMed", "Actor", "PascalVOC-SP-1G",
    ),
    *(
        _table(
            figure, "discriminative nodes of each class",
            PrintedTable(SHARES[dataset], (_SHARE,), "shares"), Diagnosed(max_distance=1), dataset,
            read=load_known,
        )
        for figure, dataset in (
            ("table-b-1", "Cora"), ("table-b-2", "PubMed"), ("table-b-3", "Actor"),
            ("table-b-4", "PascalVOC-SP-1G"),
        )
    ),
    _table(
        "table-b-5", "nodes with a winning margin above 0",
        PrintedTable("B.5", ("positive margin",)),
        Diagnosed(), "Cora", "PubMed", "Actor", "PascalVOC-SP-1G",
    ),
    _table(
        "table-b-6", "sizes of the graphs",
        PrintedTable("B.6", ("nodes", "edges", "classes", "features")), _NO_FEATURES,
        "Actor", "PubMed",
        "PascalVOC-SP-1G", read=partial(load_graph, seed=0),
    ),
    _table(
        "table-b-8", "how even the classes are",
        PrintedTable("B.8", ("class size", "balance mean", "balance largest_gap"), "balance"),
        _NO_FEATURES, "Cora", "Actor",
    ),
)  # fmt: skip
