"""Trials of a shallow network: which succeed, how fast they learn, where they attend."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, ClassVar, TypeVar

from graphtheory.lab.bench.rows import Row, Table
from graphtheory.papers.claims import Crossing, Level, Power, Trend, exponent_rows, over, reached
from graphtheory.papers.grid import Grid, Measured, axis
from graphtheory.papers.pictures import needed_picture, phase_diagram, picture_of, step_curves
from graphtheory.papers.pivot import Measurements, Shown, groups, where
from graphtheory.papers.shallow import ShallowAttention
from graphtheory.papers.stats import Exponent, Successes, boundary, halves, means
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
        """The claimed exponent of the labels."""
        return Power(
            what="labels", letter=self.letter or self.setting, read=self.successes, fit=boundary,
            claimed=self.claimed, least=3,
        )  # fmt: skip

    def successes(self, grid: Phases, measured: Measurements) -> dict[str, Successes]:
        """Count the successful trials of each case."""
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
            cells = groups(where(measured, case=case), self.setting, "labels")
            for value, labels in sorted(cells):
                cell = [one["hinge"] for one in cells[value, labels]]
                share = sum(hinge < SUCCESS for hinge in cell) / grid.seeds
                about = {"case": case, claim.letter: round(self.shown(value), 6), "labels": labels}
                rows.append(Row.of("share of successes", share, "1", **about))
                rows.append(Row.of("test hinge loss", cell, "1", **about))
            rows += exponent_rows("exponent of the labels", law, case=case)
        heads = [f"{claim.letter} = {at:.3g}" for at in found.values.tolist()]
        title = "labels at which half of the trials succeed"
        return Shown(Table(title, ["case", *heads, "exponent", "claimed"], lines), rows)

    def picture(self, grid: Phases, measured: Measurements, title: str) -> Any:
        """The share of successes of each cell, with the laws."""
        by, claim = self.successes(grid, measured), self.claim
        laws = {
            case: law.line(claimed)
            for claimed, (case, found) in zip(self.claimed, by.items(), strict=True)
            if (law := claim.find(found)) is not None
        }
        return phase_diagram(
            by, laws, xlabel=claim.letter, ylabel=self.labels, title=f"{title} a cell"
        )


def number(value: float, digits: str = ".1f") -> str:
    """A number of labels or steps in a table; infinite where none is enough."""
    return "none" if math.isinf(value) else "all" if value == 0 else f"{value:{digits}}"


def short(law: Exponent | None) -> str:
    """An exponent in a table."""
    return "-" if law is None else str(law)


LOOSE = 0.1  # a second threshold of the hinge loss, where the first one may never be reached
CLOSE = 0.95  # of the attention is close to 1


@dataclass(frozen=True, kw_only=True)
class Curves(Grid):
    """Trials that are looked at in the course of training."""

    cases: tuple[Any, ...] = axis("case")  # what learns; a case has a name
    setting: str  # the letter
    values: tuple[float, ...] = axis("value")  # of the letter
    labels: int  # |L|, labeled nodes or training sets
    every: int  # steps between two looks
    until_learned: bool = False  # whether training ends where every trial's loss is below `SUCCESS`
    seeds: int = 10  # trials
    first: int = 0  # the first seed
    side_by_side: ClassVar[bool] = True

    def watch(
        self, case: Any, value: float, look: Callable[[ShallowAttention], Sequence[Measured]]
    ) -> tuple[Callable[[int, ShallowAttention], bool], list[Measured]]:
        """What a training loop calls in each step, and the list that it fills.

        `look` says what the networks do, "hinge" among it, one entry for each seed.
        """
        rows: list[Measured] = []

        def watch(step: int, model: ShallowAttention) -> bool:
            if step % self.every:
                return False
            found = look(model)
            about = {"case": case.name, self.setting: value, "step": step}
            rows.extend(about | {"seed": seed} | one for seed, one in enumerate(found, self.first))
            return self.until_learned and all(one["hinge"] < SUCCESS for one in found)

        return watch, rows


@dataclass(frozen=True)
class Speed:
    """The steps until the loss is below a threshold, over a letter: table, picture, power law."""

    setting: str  # the letter
    claimed: tuple[float, ...]  # the exponent of each case
    thresholds: tuple[float, ...] = (SUCCESS, LOOSE)  # of the test hinge loss

    @property
    def claims(self) -> tuple[Power, ...]:
        """The exponents, for each threshold."""
        return tuple(
            Power(
                what="steps", letter=self.setting, read=self._needed(threshold).inside,
                claimed=self.claimed,
            )
            for threshold in self.thresholds
        )  # fmt: skip

    def _needed(self, threshold: float) -> Crossing:
        line = f"{{case}}, loss below {threshold:g}"
        return Crossing("step", "hinge", threshold, self.setting, line, log_size=False)

    def _laws(
        self, grid: Curves, measured: Measurements
    ) -> Iterator[tuple[str, float, dict[float, list[float]], Exponent | None, float]]:
        """Of each line its name, threshold, steps needed, exponent, and the claimed one."""
        for threshold, claim in zip(self.thresholds, self.claims, strict=True):
            read = self._needed(threshold)
            inside = read.inside(grid, measured)
            for place, (line, needed) in enumerate(read(grid, measured).items()):
                yield line, threshold, needed, claim.find(inside[line]), self.claimed[place]

    def show(self, grid: Curves, measured: Measurements) -> Shown:
        """The median steps; rows of those that get there."""
        lines, rows = [], []
        for line, threshold, needed, law, claimed in self._laws(grid, measured):
            middle = [number(median(steps)) for steps in needed.values()]
            lines.append([line, *middle, short(law), f"{claimed:g}"])
            case = line.removesuffix(f", loss below {threshold:g}")
            for value, steps in needed.items():
                about = {"case": case, "loss": threshold, self.setting: value}
                rows += reached(steps, "share of trials that get there", "steps of those", about)
            rows += exponent_rows("exponent of the steps", law, case=line)
        heads = [f"{self.setting} = {value:g}" for value in grid.values]
        title = "median steps until the test hinge loss is below"
        return Shown(Table(title, ["case", *heads, "exponent", "claimed"], lines), rows)

    def picture(self, grid: Curves, measured: Measurements, title: str) -> Any:
        """The steps of each trial that gets there, with the laws; None without a law."""
        shown, laws = {}, {}
        for line, _, needed, law, claimed in self._laws(grid, measured):
            if law is not None:
                shown[line], laws[line] = needed, law.line(claimed)
        return needed_picture(shown, laws, xlabel=self.setting, ylabel="steps of SGD", title=title)


def attention_claims(relevant: str) -> tuple[Level, Trend]:
    """Attention on some nodes or tokens is close to 1 at the end, and rises over the steps."""
    what = f"attention on {relevant}"

    def last(grid: Curves, measured: Measurements) -> dict[str, dict[float, list[float]]]:
        every = over("step", "mass")(grid, measured)
        return {case: {max(by): by[max(by)]} for case, by in every.items()}

    return (
        Level(what=what, letter="step", read=last, low=CLOSE, digits=".3f"),
        Trend(what=what, letter="the steps", read=over("step", "mass"), claimed="rises",
              sample=means),
    )  # fmt: skip


def attention_picture(relevant: str) -> Callable[[Curves, Measurements, str], Any]:
    """Draws attention on some nodes or tokens, and on all others, over the steps."""

    def both(measured: Measurements) -> list[Measured]:
        return [
            one | {"series": series, "mass": mass}
            for one in measured
            for series, mass in ((relevant, one["mass"]), ("all others", 1 - one["mass"]))
        ]

    return picture_of(step_curves, both, value="mass", ylabel="attention")
