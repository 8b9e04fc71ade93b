"""Trials of a shallow network in the course of training: how fast they learn, where they attend."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, ClassVar

from graphtheory.lab.report.table import Table
from graphtheory.papers.claims import Level, Power, Trend, exponent_rows, over, reached
from graphtheory.papers.crossing import Crossing
from graphtheory.papers.figure import Measurements, Shown
from graphtheory.papers.grid import Grid, Measured, axis
from graphtheory.papers.phases import SUCCESS, number, short
from graphtheory.papers.pictures import needed_picture, step_curves
from graphtheory.papers.power_law import Exponent
from graphtheory.papers.shallow import ShallowAttention
from graphtheory.papers.stats import means

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

    def picture(grid: Curves, measured: Measurements, title: str) -> Any:
        curves = [
            {"case": one["case"], "series": series, "step": one["step"], "mass": mass}
            for one in measured
            for series, mass in ((relevant, one["mass"]), ("all others", 1 - one["mass"]))
        ]
        return step_curves(curves, value="mass", ylabel="attention", title=title)

    return picture
