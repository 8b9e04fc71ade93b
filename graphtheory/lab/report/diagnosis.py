"""The report of what a graph offers before training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from graphtheory.lab import plot
from graphtheory.lab.bench.rows import Environment, Row
from graphtheory.lab.bench.table import Table, counted, pairs
from graphtheory.lab.report.page import CAPTIONS, Page

_MARGINS = ("margin", "normalized margin", "pooled margin")
_CORE = "core distance by "
REGIONS = {"ring": "N_z", "ball": "N_0..N_z"}
NODES = {"all": "all nodes", "hearing": "nodes that reach a discriminative one"}


@dataclass(frozen=True)
class Printed:
    """Numbers of a publication about the same graph, to be shown beside those found."""

    name: str  # of the publication, as a legend writes it
    shares: Sequence[float]  # discriminative nodes of each class, percent; may be empty
    table: Table  # its other numbers beside those found


def _margin_table(rows: Sequence[Row]) -> Table:
    """Make the table of average margins over the distance, in the rings N_z."""
    value = {
        (r.name, p["moment"], p["distance"]): r.value
        for r in rows
        if (p := r.parameters).get("region") == "ring" and "distance" in p
    }
    moments = list(dict.fromkeys(moment for _, moment, _ in value))
    columns = [(name, moment) for moment in moments for name in _MARGINS]
    headings = ("z", *(f"{name}, {moment}" for name, moment in columns), "reach (%)")
    columns.append(("reach", moments[0]))  # the same for every moment
    hops = sorted({z for _, _, z in value})
    shown = [(str(z), *(f"{value[name, moment, z]:.3f}" for name, moment in columns)) for z in hops]
    note = "Reach: nodes that have any node at distance z."
    return Table("Winning margin over the distance", headings, shown, note=note)


def _core_distances(rows: Sequence[Row]) -> dict[tuple[str, str, str], int | None]:
    """(moment, region, kind of margin) -> hops where it is largest; None where none is above 0."""
    margins, places = set(), {}
    for row in rows:
        where, name = row.parameters, row.name.removeprefix(_CORE)
        if name in _MARGINS and name != row.name:
            places[where["moment"], where["region"], name] = int(row.value)
        elif name in _MARGINS and row.value > 0:
            margins.add((where["moment"], where["region"], name))
    return {place: hops if place in margins else None for place, hops in places.items()}


def reading(rows: Sequence[Row]) -> str:
    """Say in a sentence what the margins suggest to try; empty without margins."""
    found = _core_distances(rows)
    if not found:
        return ""
    whole, normalized = (found["covariance", "ring", name] for name in _MARGINS[:2])
    if whole is None:
        return CAPTIONS["no margin"]
    share = "" if normalized is None else f", the margin per node at {normalized}"
    advice = CAPTIONS["near margin" if whole == 1 else "far margin"]
    return f"The total margin peaks at {counted(whole, 'hop')}{share}. {advice}"


def _core_table(rows: Sequence[Row]) -> Table:
    """Make the table of the hops where each margin is largest."""
    hops: dict[tuple[str, str], list[str]] = {}
    for (moment, region, _), largest in _core_distances(rows).items():
        text = "none" if largest is None else str(largest)
        hops.setdefault((moment, REGIONS[region]), []).append(text)
    return Table(
        "Core distance z_m (hops): where the average margin is largest",
        ("discriminative by", "counted in", *_MARGINS),
        [(*where, *found) for where, found in hops.items()],
        words=2,
        note=CAPTIONS["core distance"],
    )


def _positive_table(rows: Sequence[Row]) -> Table:
    """Make the table of nodes whose margin is above 0, under every definition."""
    shares: dict[tuple[str, str, str], dict[str, str]] = {}
    for p, value in ((r.parameters, r.value) for r in rows if r.name == "positive margin"):
        where = (p["moment"], REGIONS[p["region"]], str(p["distance"]))
        shares.setdefault(where, {})[p["nodes"]] = f"{value:.2f}"
    return Table(
        "Nodes with a margin above 0 (%)",
        ("discriminative by", "counted in", "z", *NODES.values()),
        [(*where, *(found.get(n, "-") for n in NODES)) for where, found in shares.items()],
        words=2,
        note="The last column counts only nodes with a discriminative node there.",
    )


def share_table(rows: Sequence[Row], printed: Printed | None = None) -> Table:
    """Make the table of discriminative nodes of each class, percent, and the printed ones."""
    series = _share_series(rows, printed)
    groups = sorted({group for found in series.values() for group in found})
    return Table(
        "Discriminative nodes by class (%)",
        ("definition", *(f"class {group}" for group in groups)),
        [(n, *(f"{found[g]:.2f}" for g in groups)) for n, found in series.items()],
    )


def tables(rows: Sequence[Row], printed: Printed | None = None) -> list[Table]:
    """The tables that the rows have something for, and the printed numbers."""
    sizes = [r for r in rows if r.parameters.keys() == {"dataset"}]
    named = ((r.name.replace("_", " "), f"{r.value:,.6g}") for r in sizes)
    out = [pairs("Graph", named)]
    if any(row.name == "discriminative share" for row in rows):
        out += [share_table(rows, printed), _margin_table(rows), _core_table(rows)]
        out.append(_positive_table(rows))
    return out if printed is None else [*out, printed.table]


def pictures(rows: Sequence[Row], printed: Printed | None = None) -> Iterator[tuple[str, Any, str]]:
    """(file name, figure, caption) of every picture that the rows have something for."""
    dataset = rows[0].parameters["dataset"]
    sizes = [
        {"group": f"class {r.parameters['group']}", "series": "nodes", "value": r.value}
        for r in rows
        if r.name == "class size"
    ]
    (mean,) = (row.value for row in rows if row.name == "balance mean")
    curve = [
        {"series": f"{row.name.removesuffix(' margin')}, {row.parameters['moment']}",
         "distance": row.parameters["distance"], "margin": row.value}
        for row in rows
        if row.name in _MARGINS[1:] and row.parameters["region"] == "ring"
    ]  # fmt: skip
    if curve:
        yield "margin", plot.winning_margin(curve, title=dataset), CAPTIONS["margin"]
        shares = [
            {"group": f"class {group}", "series": name, "value": value}
            for name, found in _share_series(rows, printed).items()
            for group, value in found.items()
        ]
        drawn = plot.grouped_bars(shares, label="discriminative nodes (%)", title=dataset)
        yield "shares", drawn, CAPTIONS["shares"]
    reference, title = (f"mean {mean:,.1f}", mean), f"{dataset}, balance"
    drawn = plot.grouped_bars(sizes, label="nodes", reference=reference, title=title)
    yield "balance", drawn, CAPTIONS["balance"]


def diagnosis_page(
    rows: Sequence[Row], command: str, environment: Environment, printed: Printed | None = None
) -> Page:
    """Make the whole page of a diagnosis."""
    dataset = rows[0].parameters["dataset"]
    page = Page(
        f"{dataset}: what the graph offers before training",
        reading(rows) or "The features are missing: shares and margins are not measured.",
    )
    page.section("Pictures")
    for _, figure, caption in pictures(rows, printed):
        page.picture(figure, caption)
    page.section("Tables")
    for table in tables(rows, printed):
        page.table(table)
    page.how_to_reproduce(command, environment)
    return page


def _share_series(rows: Sequence[Row], printed: Printed | None) -> dict[str, dict[int, float]]:
    """Definition of discriminative nodes -> class -> their share, and the printed shares."""
    series: dict[str, dict[int, float]] = {}
    for row in rows:
        if row.name == "discriminative share":
            series.setdefault(row.parameters["moment"], {})[row.parameters["group"]] = row.value
    if series and printed is not None:
        series[printed.name] = dict(enumerate(printed.shares, 1))
    return series
