"""Appendix B on real graphs: eigenvalues of the features of a class, and what is printed."""

from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from graphtheory.lab.bench.diagnose import MOMENTS, Diagnosis, discriminative_shares, load_graph
from graphtheory.lab.bench.rows import Row, Table
from graphtheory.lab.datasets.graphs import load_known
from graphtheory.lab.report.diagnosis import pictures, share_table
from graphtheory.papers.core_neighborhood.printed import SHARES, Compared, beside, verdicts
from graphtheory.papers.figure import DataSets, Figure, Verdict, small
from graphtheory.papers.grid import Grid, Measured, unrecorded
from graphtheory.papers.pictures import log_axis, picture_of, value_curves
from graphtheory.papers.pivot import Measurements, Shown, groups

DIRECTIONS = 3  # eigenvectors that tables B.1 to B.4 take
HELD = 0.5  # share that these hold of a class that "a few eigenvectors" represent
MOST = 0.9  # of the second moment
_NOTHING = 1e-12  # of the largest eigenvalue: rounding
PLACES = (1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 500, 700)
"""Which eigenvalues are kept, the largest at 1, as far as a class has enough."""


@dataclass(frozen=True)
class Spectra(Grid):
    """Second moments of the features of each class; one cell."""

    # second-moment matrices, with the mean of the class and without
    moments: tuple[str, ...] = MOMENTS
    dataset: str = "Cora"  # name of a graph
    root: Path | None = unrecorded(None)  # folder with the raw files


def eigenvalues(x: np.ndarray, *, centered: bool) -> np.ndarray:
    """Those of the second moment of the rows x [n, d], the largest first: min(n, d) of them.

    Centered they are those of the covariance matrix, the mean over the n rows.
    """
    rows = x - x.mean(0) if centered else x
    return np.linalg.svd(rows, compute_uv=False) ** 2 / len(x)


def spectra(grid: Spectra) -> list[Measured]:
    """Of each class and moment the first eigenvalues, what three hold, and how many hold 90 %."""
    data = load_known(grid.dataset, grid.root)
    x, y = data.x.double().numpy(), data.y.numpy()
    out = []
    for moment in grid.moments:
        for c in np.unique(y[y >= 0]):
            own = x[y == c]
            found = eigenvalues(own, centered=moment == "covariance")
            held = found.cumsum() / found.sum()
            above = int((found > _NOTHING * found[0]).sum())
            out.append({
                "moment": moment, "class": int(c) + 1, "nodes": len(own),
                "held": float(held[DIRECTIONS - 1]), "needed": int((held < MOST).sum()) + 1,
                "above": above,
                "eigenvalues": [[p, float(found[p - 1])] for p in PLACES if p <= above],
            })  # fmt: skip
    return out


def _show(grid: Spectra, measured: Measurements) -> Shown:
    lines, rows = [], []
    for one in measured:
        about = {"dataset": grid.dataset, "moment": one["moment"], "class": one["class"]}
        lines.append([
            one["moment"], str(one["class"]), str(one["nodes"]), f"{100 * one['held']:.1f}",
            str(one["needed"]), str(one["above"]),
        ])  # fmt: skip
        rows += [
            Row.of("nodes with features", one["nodes"], "nodes", **about),
            Row.of(f"share of the {DIRECTIONS} largest eigenvalues", one["held"], "1", **about),
            Row.of("eigenvalues that hold 90 %", one["needed"], "1", **about),
            Row.of("eigenvalues above 0", one["above"], "1", **about),
        ]
        rows += [
            Row.of("eigenvalue", value, "1", **about, place=place)
            for place, value in one["eigenvalues"]
        ]
    heads = ["moment", "class", "nodes", f"{DIRECTIONS} largest hold %", "90 % takes", "above 0"]
    title = "eigenvalues of the features of a class"
    return Shown(Table(title, heads, lines, words=2), rows)


def few_directions(grid: Spectra, measured: Measurements) -> Verdict:
    """Whether three eigenvectors hold at least half of the second moment in every class."""
    told = []
    for (moment,), mine in groups(measured, "moment").items():
        held, needed = [one["held"] for one in mine], [one["needed"] for one in mine]
        word = "holds" if min(held) >= HELD else "not found"
        told.append(
            f"{moment}: the {DIRECTIONS} largest eigenvalues hold {100 * min(held):.0f} to "
            f"{100 * max(held):.0f} % (mean {100 * fmean(held):.0f}), 90 % takes {min(needed)} to "
            f"{max(needed)}; claimed that a few eigenvectors represent a class, read as at least "
            f"{100 * HELD:.0f} % by {DIRECTIONS} in each: {word}."
        )
    nodes = sum(one["nodes"] for one in groups(measured, "moment")[measured[0]["moment"],])
    return Verdict(f"{' '.join(told)} Of {nodes:,} nodes with features.")


_picture = picture_of(
    value_curves,
    lambda measured: [
        one | {"at": place, "value": value}
        for one in measured
        for place, value in one["eigenvalues"]
    ],
    xlabel="place, the largest first", ylabel="eigenvalue", panel="{moment}",
    series="class {class}", axis=log_axis,
)  # fmt: skip


_EXACT = 0.01  # of a number that is printed with two digits
_SHARE, _KNOWN = "discriminative share", "nodes with features"


@dataclass(frozen=True)
class Diagnosed(Spectra):
    """A diagnosis, as far as a table needs it; without moments where it needs no feature."""

    max_distance: int = 12  # largest distance z of the margins, hops


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
    *(
        Figure(
            figure, "eigenvalues of the features of each class", Spectra(), spectra, _show,
            (few_directions,), _picture, data=DataSets(dataset, (dataset,), read=load_known),
        )
        for figure, dataset in zip(
            ("fig-b-1", "fig-b-2", "fig-b-3", "fig-b-4"), SHARES, strict=True
        )
    ),
    _table(
        "fig-b-5", "winning margin over the distance",
        PrintedTable("fig. B.5", ("normalized margin", "pooled margin", "reach"), "margin"),
        Diagnosed(), *SHARES,
    ),
    *(
        _table(
            figure, "discriminative nodes of each class",
            PrintedTable(number, (_SHARE,), "shares"), Diagnosed(max_distance=1), dataset,
            read=load_known,
        )
        for figure, (dataset, number) in zip(
            ("table-b-1", "table-b-2", "table-b-3", "table-b-4"), SHARES.items(), strict=True
        )
    ),
    _table(
        "table-b-5", "nodes with a winning margin above 0",
        PrintedTable("B.5", ("positive margin",)), Diagnosed(), *SHARES,
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
