"""A table of appendix B of Li (2024), found beside printed."""

from __future__ import annotations

from typing import Any

from graphtheory.bench.rows import Row
from graphtheory.papers.core_neighborhood.table_study import TableStudy
from graphtheory.papers.core_neighborhood.thesis_tables import Verdict, beside, verdicts
from graphtheory.papers.outcome import StudyReport
from graphtheory.report.diagnosis import Printed, pictures, share_table
from graphtheory.report.table import Table

_PICTURES = {"fig. B.5": "margin", "B.1": "shares", "B.2": "shares", "B.3": "shares",
             "B.8": "balance"}  # fmt: skip
_EXACT = 0.01  # of a number that is printed with two digits


def printed(study: TableStudy, rows: list[dict[str, Any]]) -> StudyReport:
    """One of the tables from its study's rows."""
    every = [Row(**row) for row in rows]
    found = [v for v in verdicts(every) if v.table == study.table]
    wanted = _PICTURES.get(study.table)
    numbers = beside(every)
    picture = next((f for name, f, _ in pictures(every, numbers) if name == wanted), None)
    own = [row for row in every if row.name in study.wanted]
    return StudyReport(_table(study.table, own, found, numbers), own, _verdict(found), picture)


def _table(table: str, rows: list[Row], found: list[Verdict], numbers: Printed | None) -> Table:
    """By class where there is a number for each, else every definition."""
    if found and rows[0].name == "discriminative share":
        return share_table(rows, numbers)
    return Table(
        f"Table {table}" if table.startswith("B") else table.replace("fig.", "Figure"),
        ("quantity", "found", "thesis", "difference", "definition"),
        [
            (
                v.what, v.found, v.thesis, "" if v.difference is None else f"{v.difference:.2f}",
                ", ".join(["as printed"] * v.stated + ["closest"] * v.closest),
            )
            for v in found
        ],
    )  # fmt: skip


def _verdict(found: list[Verdict]) -> str:
    """Whether the definition that is printed gives the number; if not, which comes closest."""
    stated = "; ".join(_told(v) for v in found if v.stated)
    nearer = [_told(v) for v in found if v.closest and not v.stated]
    also = "".join(f" Of other definitions the closest: {told}." for told in nearer)
    return f"As printed: {stated}.{also}"


def _told(verdict: Verdict) -> str:
    beside = f"{verdict.what}: {verdict.found}, thesis {verdict.thesis}"
    if verdict.difference is None:
        return beside
    gap = f"off by {verdict.difference:.2f}"
    return f"{beside}, {'found' if verdict.difference < _EXACT else gap}"
