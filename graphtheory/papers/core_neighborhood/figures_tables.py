"""Appendix B on real graphs: what a diagnosis finds beside what the thesis prints."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

from graphtheory.lab.bench.diagnose import MOMENTS, Diagnosis, discriminative_shares, load_graph
from graphtheory.lab.bench.rows import Row
from graphtheory.lab.bench.table import Table
from graphtheory.lab.datasets.graphs import load_known
from graphtheory.lab.report.diagnosis import NODES, REGIONS, Printed, pictures, share_table
from graphtheory.papers.figure import DataSets, Figure, Verdict, small
from graphtheory.papers.grid import Grid, Measured, unrecorded
from graphtheory.papers.pivot import Measurements, Shown

PRINTED: dict[str, dict[str, Any]] = json.loads(
    Path(__file__).with_name("printed.json").read_text("utf-8")
)
"""Tables B.1 to B.4 (share, percent by class), B.5 (positive margin, percent), B.6 (sizes), B.8
(mean, largest_gap, nodes); core distance and shape are what section B.1.1 says of figure B.5. Edges
of PascalVOC-SP-1G are half of the 2,718 printed, both directions, for regions of a plane with 479
nodes have 1,431 at most."""

_SHARES = {"Cora": "B.1", "PubMed": "B.2", "Actor": "B.3", "PascalVOC-SP-1G": "B.4"}
_FLAT = 0.05
"""Gap of the largest and the smallest normalized margin up to which a curve is "nearly flat"; the
text gives no number."""


@dataclass(frozen=True)
class Compared:
    """A printed number beside the one found."""

    table: str  # where it is printed
    what: str  # the quantity and the definition used here
    found: str  # here
    thesis: str  # there
    # absolute, averaged over the classes where there are several; None for words
    difference: float | None
    stated: bool = True  # whether this is the definition that is printed with the number
    closest: bool = False  # whether, of several definitions, this one comes closest
    verdict: str = ""  # what was found of what is printed in words; "" for numbers


def verdicts(rows: list[Row]) -> list[Compared]:
    """Every printed number of the rows' data set beside those found; none for other data sets."""
    dataset = rows[0].parameters["dataset"] if rows else ""
    printed = PRINTED.get(dataset)
    if printed is None:
        return []
    return [
        *_shares(rows, dataset, printed),
        *_positives(rows, printed),
        *_sizes(rows, printed),
        *_figure(rows, printed),
    ]


def beside(rows: list[Row]) -> Printed | None:
    """The printed numbers as the report of a diagnosis takes them; None for other data sets."""
    found = verdicts(rows)
    if not found:
        return None
    shares = PRINTED[rows[0].parameters["dataset"]]["share"]
    return Printed("thesis", shares, verdict_table(found))


def verdict_table(found: list[Compared]) -> Table:
    """Found, printed, difference: the definition as printed, and the closest."""
    return Table(
        "Beside the printed numbers",
        ("table", "quantity", "found", "thesis", "difference"),
        [
            (
                v.table, v.what, v.found, v.thesis,
                ("" if v.difference is None else f"{v.difference:.2f}") + " *" * v.closest,
            )
            for v in found
            if v.stated or v.closest
        ],
        words=2,
        note="* the closest of several definitions; without a star the one that is printed.",
    )  # fmt: skip


def _select(rows: list[Row], name: str, **parameters: Any) -> list[Row]:
    wanted = parameters.items()
    return [r for r in rows if r.name == name and wanted <= r.parameters.items()]


def _shares(rows: list[Row], dataset: str, printed: dict[str, Any]) -> list[Compared]:
    out = []
    for moment in _moments(rows):
        found = [r.value for r in _select(rows, "discriminative share", moment=moment)]
        gap = fmean(abs(a - b) for a, b in zip(found, printed["share"], strict=True))
        here, there = (f"{fmean(shares):.2f}" for shares in (found, printed["share"]))
        what = f"discriminative nodes, mean over classes (%), {moment}"
        out.append(Compared(_SHARES[dataset], what, here, there, gap, moment == "covariance"))
    return _marked(out)


def _positives(rows: list[Row], printed: dict[str, Any]) -> list[Compared]:
    out = []
    for row in _select(rows, "positive margin"):
        p = row.parameters
        where = f"{REGIONS[p['region']]}, z = {p['distance']}, {NODES[p['nodes']]}"
        what = f"margin > 0 (%), {p['moment']}, {where}"
        stated = (p["region"], p["nodes"], p["distance"]) == ("ring", "all", printed["core"])
        found = _number("B.5", what, row.value, printed["positive margin"])
        out.append(replace(found, stated=stated))
    return _marked(out)


def _sizes(rows: list[Row], printed: dict[str, Any]) -> list[Compared]:
    sizes = printed.get("sizes", {})
    out = [
        _number("B.6", name, row.value, size, digits=0)
        for name, size in sizes.items()
        for row in _select(rows, name)
    ]
    for name in ("mean", "largest_gap"):
        if name in printed:
            (row,) = _select(rows, f"balance {name}")
            what = f"class sizes, {name.replace('_', ' ')} (nodes)"
            out.append(_number("B.8", what, row.value, printed[name]))
    return out


def _figure(rows: list[Row], printed: dict[str, Any]) -> list[Compared]:
    """What is said of figure B.5, read off the rings N_z that at least half of the nodes have."""
    out = []
    for moment in _moments(rows):
        where = {"moment": moment, "region": "ring"}
        reach = [r.value for r in _select(rows, "reach", **where)]
        found = zip(_select(rows, "normalized margin", **where), reach, strict=True)
        curve = [row.value for row, share in found if share >= 50]
        if not curve:
            continue
        core = curve.index(max(curve)) + 1
        what = f"z of the largest normalized margin (hops), {moment}"
        out.append(_number("fig. B.5", what, core, printed["core"], digits=0))
        falls = sum(a > b for a, b in pairwise(curve))
        seen = f"{min(curve):.3f}..{max(curve):.3f}, falls in {falls} of {len(curve) - 1} steps"
        what = f"normalized margin, z = 1..{len(curve)}, {moment}"
        verdict = _verdict(curve, printed["shape"])
        out.append(Compared("fig. B.5", what, seen, printed["shape"], None, verdict=verdict))
    return out


def _verdict(curve: list[float], shape: str) -> str:
    """What was found of the shape of a curve over z = 1, 2, ...; "" where that cannot be told."""
    if shape == "decreasing":
        falls = [a > b for a, b in pairwise(curve)]
        last = [*falls, False].index(False) + 1
        word = "not found" if last == 1 else f"in part, it falls at every step up to z = {last}"
        return "holds" if all(falls) else word
    if shape == "nearly flat":
        return "holds" if max(curve) - min(curve) <= _FLAT else "not found"
    return ""


def _moments(rows: list[Row]) -> list[str]:
    return list(dict.fromkeys(r.parameters["moment"] for r in rows if "moment" in r.parameters))


def _number(table: str, what: str, found: float, thesis: float, digits: int = 2) -> Compared:
    gap = abs(found - thesis)
    return Compared(table, what, f"{found:.{digits}f}", f"{thesis:.{digits}f}", gap)


def _marked(group: list[Compared]) -> list[Compared]:
    """The same with the closest of the competing definitions marked."""
    best = min((v.difference for v in group if v.difference is not None), default=None)
    return [replace(v, closest=v.difference == best) for v in group]


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
            PrintedTable(_SHARES[dataset], (_SHARE,), "shares"), Diagnosed(max_distance=1), dataset,
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
