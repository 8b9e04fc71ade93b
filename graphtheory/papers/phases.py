"""Which trials of a shallow network succeed, over a letter and the number of labels."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from graphtheory.lab.bench.rows import Row
from graphtheory.lab.report.table import Table
from graphtheory.papers.claims import Power, exponent_rows
from graphtheory.papers.figure import Measurements, Shown
from graphtheory.papers.grid import Grid, axis
from graphtheory.papers.pictures import phase_diagram
from graphtheory.papers.pivot import groups
from graphtheory.papers.power_law import Exponent, Successes, boundary, halves
from graphtheory.patterns.draw import derive

SUCCESS = 1e-3  # test hinge loss
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Phases(Grid):
    """Trials in cells of a letter and of the number of labels, each with data of its own."""

    cases: tuple[Any, ...] = axis("case")  # what learns; a case has a name
    setting: str  # the letter
    values: tuple[float, ...]  # of the letter
    labels: tuple[int, ...] = axis("labels")  # |L|, labeled nodes or training sets
    seeds: int = 20  # trials in each cell
    first: int = 0  # the first seed
    side_by_side: ClassVar[bool] = True


def seed_of(seed: int, labels: int, value: float) -> int:
    """The seed of one cell's trial."""
    return derive(seed, labels, round(1e6 * value))


def ends(values: tuple[T, ...]) -> tuple[T, ...]:
    """The first and the last one, for a quick form."""
    return values[:: max(len(values) - 1, 1)]


@dataclass(frozen=True)
class Boundary:
    """Where half of the trials succeed, over a letter, as table, picture and power law."""

    setting: str  # key of the letter
    # the exponent of each case; nan where the figure claims something else
    claimed: tuple[float, ...]
    labels: str = "labeled nodes"  # what is counted
    letter: str = ""  # what tables and pictures call the letter; "" for its key
    shown: Callable[[float], float] = float  # what they show of its value

    @property
    def claim(self) -> Power:
        """The exponent."""
        return Power(
            what="labels", letter=self.letter or self.setting, read=self.successes, fit=boundary,
            claimed=self.claimed, least=3,
        )  # fmt: skip

    def successes(self, grid: Phases, measured: Measurements) -> dict[str, Successes]:
        """Counts of each case."""
        labels = sorted({one["labels"] for one in measured})
        shown = [self.shown(value) for value in sorted({one[self.setting] for one in measured})]
        return {
            case: Successes.counted(
                shown, labels,
                [
                    (self.shown(one[self.setting]), one["labels"])
                    for one in mine
                    if one["hinge"] < SUCCESS
                ],
                grid.seeds,
            )
            for (case,), mine in groups(measured, "case").items()
        }  # fmt: skip

    def show(self, grid: Phases, measured: Measurements) -> Shown:
        """The labels at which half of the trials succeed; rows of every cell."""
        claim, lines, rows = self.claim, [], []
        for place, (case, found) in enumerate(self.successes(grid, measured).items()):
            law, claimed = claim.find(found), self.claimed[place]
            half = [number(labels) for labels in halves(found).tolist()]
            lines.append([case, *half, short(law), "-" if math.isnan(claimed) else f"{claimed:g}"])
            for at, labels, share in found.shares():
                cell = [
                    one["hinge"] for one in measured
                    if one["case"] == case and one["labels"] == labels
                    and self.shown(one[self.setting]) == at
                ]  # fmt: skip
                about = {"case": case, claim.letter: round(at, 6), "labels": int(labels)}
                rows.append(Row.of("share of successes", share, "1", **about))
                rows.append(Row.of("test hinge loss", cell, "1", **about))
            rows += exponent_rows("exponent of the labels", law, case=case)
        heads = [f"{claim.letter} = {at:.3g}" for at in found.values.tolist()]
        title = "labels at which half of the trials succeed"
        return Shown(Table(title, ["case", *heads, "exponent", "claimed"], lines), rows)

    def picture(self, grid: Phases, measured: Measurements, title: str) -> Any:
        """The share of successes of each cell, with the laws."""
        by, claim, laws = self.successes(grid, measured), self.claim, {}
        for claimed, (case, found) in zip(self.claimed, by.items(), strict=True):
            law = claim.find(found)
            if law is not None:
                laws[case] = law.line(claimed)
        return phase_diagram(
            cells(by), laws, xlabel=claim.letter, ylabel=self.labels, title=f"{title} a cell"
        )


def cells(by: Mapping[str, Successes]) -> list[dict[str, Any]]:
    """Successes of each case as `pictures.phase_diagram` takes them."""
    out = []
    for case, found in by.items():
        half = dict(zip(found.values.tolist(), halves(found).tolist(), strict=True))
        out += [
            {"case": case, "value": value, "labels": labels, "share": share, "half": half[value]}
            for value, labels, share in found.shares()
        ]
    return out


def number(value: float, digits: str = ".1f") -> str:
    """A number of labels or steps in a table; infinite where none is enough."""
    return "none" if math.isinf(value) else "all" if value == 0 else f"{value:{digits}}"


def short(law: Exponent | None) -> str:
    """An exponent in a table."""
    return "-" if law is None else str(law)
