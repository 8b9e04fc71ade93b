"""What a diagnosis of a graph finds beside the numbers that appendix B prints."""

import json
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

from graphtheory.lab.bench.rows import Row, Table
from graphtheory.lab.report.diagnosis import NODES, REGIONS, Printed

PRINTED: dict[str, dict[str, Any]] = json.loads(
    Path(__file__).with_name("printed.json").read_text("utf-8")
)
"""Tables B.1 to B.4 (share, percent by class), B.5 (positive margin, percent), B.6 (sizes), B.8
(mean, largest_gap, nodes); core distance and shape are what section B.1.1 says of figure B.5. Edges
of PascalVOC-SP-1G are half of the 2,718 printed, both directions, for regions of a plane with 479
nodes have 1,431 at most."""

SHARES = {"Cora": "B.1", "PubMed": "B.2", "Actor": "B.3", "PascalVOC-SP-1G": "B.4"}
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
    """The printed numbers as the report of a diagnosis takes them; None for other data sets.

    Of each quantity the definition as printed, and the closest.
    """
    found = verdicts(rows)
    if not found:
        return None
    shares = PRINTED[rows[0].parameters["dataset"]]["share"]
    table = Table(
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
    return Printed("thesis", shares, table)


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
        out.append(Compared(SHARES[dataset], what, here, there, gap, moment == "covariance"))
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
