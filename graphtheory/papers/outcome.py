"""A study's rows as a table, a picture and a verdict."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from graphtheory.bench.rows import Row
from graphtheory.papers.stats import FEWEST_SEEDS
from graphtheory.report.table import Table


@dataclass(frozen=True)
class StudyReport:
    """What a study gives to read.

    Attributes:
        table: The numbers.
        rows: The same as result rows.
        verdict: What became of the claim, in a sentence or two.
        picture: The matplotlib figure, or None.
    """

    table: Table
    rows: list[Row]
    verdict: str
    picture: Any


def became(holds: bool | str, seeds: int) -> str:
    """What became of a claim, in words; a text says more than whether it holds."""
    if seeds < FEWEST_SEEDS:
        return f"no verdict of fewer than {FEWEST_SEEDS} seeds"
    return holds if isinstance(holds, str) else "holds" if holds else "not found"
