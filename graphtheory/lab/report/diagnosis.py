"""The report of what a graph offers before training."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from graphtheory.lab import plot
from graphtheory.lab.bench.diagnose import ONE_WAY, UNDETERMINED
from graphtheory.lab.bench.node_task import ACCURACY, gains_of, helpful_hops
from graphtheory.lab.bench.rows import ACCURACY as SHARE
from graphtheory.lab.bench.rows import Environment, Row, Table, counted, pairs
from graphtheory.lab.bench.rows import reading as decided
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


def _margin_tables(rows: Sequence[Row]) -> Iterator[Table]:
    value = {
        (r.name, p["moment"], p["distance"]): r.value
        for r in rows
        if (p := r.parameters).get("region") == "ring" and "distance" in p
    }
    names = (*_MARGINS, "reach")
    hops = sorted({z for (name, _, z), found in value.items() if name == "reach" and found > 0})
    headings = ("z", "margin (nodes)", *_MARGINS[1:], "reach (%)")
    for moment in dict.fromkeys(moment for _, moment, _ in value):
        shown = [(str(z), *(f"{value[name, moment, z]:.3f}" for name in names)) for z in hops]
        title = f"Winning margin over the distance, discriminative by {moment}"
        note = "Reach: nodes that have any node at distance z."
        yield Table(title, headings, shown, note=note)


def _hop_table(rows: Sequence[Row]) -> Table:
    added = {
        z: (SHARE.shown(gain.difference, gain.half_width, "+"), decided(gain))
        for z, gain in gains_of(rows).items()
    }
    right = ((r.parameters["distance"], f"{100 * r.value:.2f}") for r in rows if r.name == ACCURACY)
    lines = [(str(z), share, *added.get(z, ("-", "-"))) for z, share in right]
    columns = ("z", "accuracy (%)", "gain of distance z, points ± 95 %", "result")
    return Table("A linear classifier on distances 0 to z", columns, lines, note=CAPTIONS["hops"])


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
    """Say whether distance matters, what to try and where margins peak; "" without features."""
    said, found = _tried(rows), _core_distances(rows)
    if not found:
        return said
    if any(row.name == UNDETERMINED for row in rows):
        return f"{said} {CAPTIONS['no directions']}".strip()
    whole, normalized = (found["covariance", "ring", name] for name in _MARGINS[:2])
    if whole is None:
        return f"{said} {CAPTIONS['no margin']}".strip()
    share = "" if normalized is None else f", the margin per node at {normalized}"
    return f"{said} The total margin peaks at {counted(whole, 'hop')}{share}.".strip()


def _tried(rows: Sequence[Row]) -> str:
    """Say how far nodes help a linear classifier; empty where it was not tried."""
    right = {r.parameters["distance"]: r.value for r in rows if r.name == ACCURACY}
    if len(right) < 2:
        return ""
    hops = helpful_hops(rows)
    kind = "far" if hops > 1 else "near" if hops else "no"
    farthest, before = max(right), max(hops, 1) - 1
    one_way = any(row.name == ONE_WAY for row in rows)
    chosen = f"neighbors={hops}{',undirected=true' if one_way else ''}"
    words = {"hops": counted(hops, "hop"), "fewer": counted(before, "hop"), "set": chosen}
    at = {"before": 100 * right[before], "after": 100 * right[before + 1]}
    return CAPTIONS[f"{kind} help"].format(**words, **at, farthest=counted(farthest, "hop"))


def _core_table(rows: Sequence[Row]) -> Table:
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
    shares: dict[tuple[str, str, str], dict[str, str]] = {}
    for p, value in ((r.parameters, r.value) for r in rows if r.name == "positive margin"):
        where = (p["moment"], REGIONS[p["region"]], str(p["distance"]))
        shares.setdefault(where, {})[p["nodes"]] = f"{value:.2f}"
    return Table(
        "Nodes with a margin above 0 (%)",
        ("discriminative by", "counted in", "z", "all nodes", "nodes that reach one"),
        [(*where, *(found.get(n, "-") for n in NODES)) for where, found in shares.items()],
        words=2,
        note="The last column counts only nodes that reach a discriminative node there.",
    )


def share_table(rows: Sequence[Row], printed: Printed | None = None) -> Table:
    """Make the table of discriminative nodes of each class, percent, and the printed ones."""
    series = _share_series(rows, printed)
    groups = sorted({group for found in series.values() for group in found})
    return Table(
        "Discriminative nodes by class (%)",
        ("class", *series),
        [(str(g), *(f"{found[g]:.2f}" for found in series.values())) for g in groups],
    )


def tables(rows: Sequence[Row], printed: Printed | None = None) -> list[Table]:
    """The tables that the rows have something for, and the printed numbers."""
    sizes = [r for r in rows if r.parameters.keys() == {"dataset"}]
    named = ((r.name.replace("_", " "), f"{r.value:,.6g}") for r in sizes)
    out = [replace(pairs("Graph", named), note=CAPTIONS["class sizes"])]
    if any(row.name == ACCURACY for row in rows):
        out.append(_hop_table(rows))
    if any(row.name == "discriminative share" for row in rows):
        out += [share_table(rows, printed), *_margin_tables(rows), _core_table(rows)]
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
    where = [row.parameters for row in rows if row.name == "reach" and row.value > 0]
    reached = {p["distance"] for p in where if p["region"] == "ring"}
    for name, kinds in (("total-margin", _MARGINS[:1]), ("margin", _MARGINS[1:])):
        curve = [
            {"series": f"{row.name.removesuffix(' margin')}, {row.parameters['moment']}",
             "distance": row.parameters["distance"], "margin": row.value}
            for row in rows
            if row.name in kinds and row.parameters["region"] == "ring"
            if row.parameters["distance"] in reached  # farther there are no nodes to count
        ]  # fmt: skip
        if curve:
            drawn = plot.winning_margin(curve, normalized=name == "margin", title=dataset)
            yield name, drawn, CAPTIONS[name]
    if curve:
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
        reading(rows) or CAPTIONS["no features"],
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
