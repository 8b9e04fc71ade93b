"""The report of a diagnosis."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from graphtheory import plot
from graphtheory.bench.rows import Environment, Row
from graphtheory.bench.thesis_tables import NODES, PRINTED, REGIONS, Verdict, verdicts
from graphtheory.report.page import Page
from graphtheory.report.table import Table, pairs

_MARGINS = ("margin", "normalised margin", "pooled margin")


def margin_table(rows: Sequence[Row]) -> Table:
    """Average margins over the distance, in the rings N_z."""
    value = {
        (r.name, r.parameters["moment"], r.parameters["distance"]): r.value
        for r in rows
        if r.parameters.get("region") == "ring" and "distance" in r.parameters
    }
    moments = dict.fromkeys(moment for _, moment, _ in value)
    columns = [(name, moment) for moment in moments for name in _MARGINS]
    columns.append(("reach", next(iter(moments))))  # the same for every moment
    hops = sorted({z for _, _, z in value})
    return Table(
        "Winning margin over the distance",
        ("z", *(f"{name}, {moment}" for name, moment in columns[:-1]), "reach (%)"),
        [(str(z), *(f"{value[name, moment, z]:.3f}" for name, moment in columns)) for z in hops],
        note="Reach: nodes that have any node at distance z.",
    )


def core_table(rows: Sequence[Row]) -> Table:
    """Where each margin is largest, in hops."""
    hops: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        if row.name.startswith("core distance by "):
            p = row.parameters
            hops.setdefault((p["moment"], REGIONS[p["region"]]), []).append(f"{row.value:.0f}")
    return Table(
        "Core distance z_m (hops): where the average margin is largest",
        ("discriminative by", "counted in", *_MARGINS),
        [(*where, *found) for where, found in hops.items()],
        words=2,
        note="N_z: nodes at distance z; N_0..N_z: up to z and the node itself. Normalised: divided "
        "by their number node by node; pooled: sum by sum. Equation (3.6) is the first column.",
    )


def positive_table(rows: Sequence[Row]) -> Table:
    """Table B.5 under every definition."""
    shares: dict[tuple[str, str, str], dict[str, str]] = {}
    for row in rows:
        if row.name == "positive margin":
            p = row.parameters
            where = (p["moment"], REGIONS[p["region"]], str(p["distance"]))
            shares.setdefault(where, {})[p["nodes"]] = f"{row.value:.2f}"
    return Table(
        "Nodes with a margin above 0 (%)",
        ("discriminative by", "counted in", "z", *NODES.values()),
        [(*where, *(found.get(n, "-") for n in NODES)) for where, found in shares.items()],
        words=2,
        note="Hearing nodes: those with a discriminative node where it is counted.",
    )


def share_table(rows: Sequence[Row]) -> Table:
    """Discriminative nodes of each class, per cent, the printed ones beside."""
    series = dict(_share_series(rows))
    groups = sorted({group for found in series.values() for group in found})
    return Table(
        "Discriminative nodes by class (%)",
        ("definition", *(f"class {group}" for group in groups)),
        [(n, *(f"{found[g]:.2f}" for g in groups)) for n, found in series.items()],
    )


def verdict_table(found: Sequence[Verdict]) -> Table:
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


def tables(rows: Sequence[Row]) -> list[Table]:
    """Those that the rows have something for."""
    sizes = [(r.name, f"{r.value:,.6g}") for r in rows if r.parameters.keys() == {"dataset"}]
    out = [pairs("Graph", [(name.replace("_", " "), text) for name, text in sizes])]
    if any(row.name == "discriminative share" for row in rows):
        out += [share_table(rows), margin_table(rows), core_table(rows), positive_table(rows)]
    if found := verdicts(list(rows)):
        out.append(verdict_table(found))
    return out


def pictures(rows: Sequence[Row]) -> Iterator[tuple[str, Any, str]]:
    """(file name, figure, caption) of every picture that the rows have something for."""
    dataset = rows[0].parameters["dataset"]
    sizes = [
        {"group": f"class {r.parameters['group']}", "series": "nodes", "value": r.value}
        for r in rows
        if r.name == "class size"
    ]
    (mean,) = (row.value for row in rows if row.name == "balance mean")
    if curve := [_margin(row) for row in rows if _is_curve(row)]:
        yield (
            "margin",
            plot.winning_margin(curve, title=f"{dataset}, figure B.5"),
            "Winning margin in N_z over the distance, divided by the number of nodes there: node "
            "by node (normalised), or sum by sum (pooled).",
        )
        shares = [
            {"group": f"class {group}", "series": name, "value": value}
            for name, found in _share_series(rows)
            for group, value in found.items()
        ]
        yield (
            "shares",
            plot.grouped_bars(shares, label="discriminative nodes (%)", title=f"{dataset}"),
            "Nodes whose features tell their class, in each class.",
        )
    yield (
        "balance",
        plot.grouped_bars(
            sizes, label="nodes", reference=(f"mean {mean:,.1f}", mean), title=f"{dataset}, balance"
        ),
        "Sizes of the classes.",
    )


def diagnosis_page(rows: Sequence[Row], command: str, environment: Environment) -> Page:
    """The whole page."""
    dataset = rows[0].parameters["dataset"]
    page = Page(
        f"{dataset}: what the graph offers before training",
        "Discriminative nodes, winning margins and core distance, under several definitions.",
    )
    page.section("Pictures")
    for _, figure, caption in pictures(rows):
        page.picture(figure, caption)
    page.section("Tables")
    for table in tables(rows):
        page.table(table)
    page.section("How to reproduce").code(command)
    here = [("device", environment.device), ("commit", environment.commit)]
    page.table(pairs("", [*here, *environment.versions.items()]))
    return page


def _share_series(rows: Sequence[Row]) -> Iterator[tuple[str, dict[int, float]]]:
    own = [row for row in rows if row.name == "discriminative share"]
    for moment in dict.fromkeys(row.parameters["moment"] for row in own):
        mine = [row for row in own if row.parameters["moment"] == moment]
        yield moment, {row.parameters["group"]: row.value for row in mine}
    printed = PRINTED.get(rows[0].parameters["dataset"], {}).get("share")
    if own and printed:
        yield "thesis", dict(enumerate(printed, 1))


def _is_curve(row: Row) -> bool:
    return row.name in _MARGINS[1:] and row.parameters["region"] == "ring"


def _margin(row: Row) -> dict[str, Any]:
    p = row.parameters
    series = f"{row.name.removesuffix(' margin')}, {p['moment']}"
    return {"series": series, "distance": p["distance"], "margin": row.value}
