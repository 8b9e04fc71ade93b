"""Measures of trials of which the same seeds count at every value, as figures 4.4 to 4.7 need."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

from graphtheory.lab.bench.rows import Row
from graphtheory.papers.claims import Claimed, Numbers
from graphtheory.papers.figure import Measurements, Shown, Verdict
from graphtheory.papers.grid import Measured
from graphtheory.papers.mixture.mixtures import Mixtures, found_rows, found_table, laws
from graphtheory.papers.pictures import needed_picture
from graphtheory.papers.pivot import groups
from graphtheory.papers.stats import FEWEST_SEEDS, Array, medians


@dataclass(frozen=True)
class Counted:
    """Reads a measure of each trial that counts, for each learner.

    A trial has a rate and a distance to W* where descent ends at a minimum; a risk it has anyway.
    Values at which fewer than half of the seeds have the measure are left out, then the seeds that
    lack it at any value that is left: medians of other seeds at every value would compare teachers.
    """

    measure: str  # key of the measure; "speed" is 1 - v
    everywhere: bool = False  # whether every trial has it

    def of(self, row: Measured) -> float:
        """The measure of one trial."""
        return float(1 - row["rate"] if self.measure == "speed" else row[self.measure])

    def rows(self, grid: Mixtures, own: Measurements) -> list[Measured]:
        """The measurements of one learner that count, by value and seed."""
        by: dict[float, dict[int, Measured]] = {}
        for row in own:
            mine = by.setdefault(grid.shown(row["value"]), {})
            if (self.everywhere or row["ended"]) and not math.isnan(self.of(row)):
                mine[row["seed"]] = row
        seeds = len({row["seed"] for row in own})
        enough = {value: mine for value, mine in sorted(by.items()) if 2 * len(mine) >= seeds}
        shared = sorted(set.intersection(*map(set, enough.values()))) if enough else []
        return [mine[seed] for mine in enough.values() for seed in shared]

    def __call__(self, grid: Mixtures, measured: Measurements) -> dict[str, Numbers]:
        """Learner -> value as it is shown -> the measure of each seed that counts."""
        out: dict[str, Numbers] = {}
        for (learner,), own in groups(measured, "learner").items():
            by: dict[float, list[float]] = {}
            for row in self.rows(grid, own):
                by.setdefault(grid.shown(row["value"]), []).append(self.of(row))
            out[learner] = by
        return out


def medians_of_differences(by: Numbers) -> tuple[Array, Array]:
    """`medians` of what each seed has above its own mean over the values.

    Teachers differ in their risk by more than the values do.
    """
    means = [sum(of) / len(of) for of in zip(*by.values(), strict=True)]
    return medians({v: [y - m for y, m in zip(of, means, strict=True)] for v, of in by.items()})


def _find(claim: Claimed, numbers: Numbers) -> Any:
    """What was found; None of too few values or seeds."""
    enough = len(numbers) > 1 and min(map(len, numbers.values())) >= FEWEST_SEEDS
    return claim.find(numbers) if enough else None


def show(claims: Sequence[Claimed], grid: Mixtures, measured: Measurements) -> Shown:
    """Medians over the values for each learner and claim, and the share that ends at a minimum."""
    lines, rows = {}, []
    for learner, share in _ended(measured).items():
        for claim in claims:
            numbers, about = claim.read(grid, measured)[learner], f"{learner}, {claim.what}"
            found = _find(claim, numbers)
            lines[about] = ({at: f"{median(of):.4g}" for at, of in numbers.items()}, found)
            rows += [
                Row.of(claim.what, of, "1", learner=learner, **{grid.name: round(value, 6)})
                for value, of in numbers.items()
            ]
            rows += found_rows(about, found)
        rows.append(Row.of("share that ends at a minimum", share, "1", learner=learner))
    table = found_table("medians over the trials", grid.name, grid.places, lines)
    return Shown(table, rows)


def _ended(measured: Measurements) -> dict[str, float]:
    """For each learner the share of trials that end at a minimum."""
    by = groups(measured, "learner").items()
    return {learner: fmean(row["ended"] for row in own) for (learner,), own in by}


def counting(read: Counted, grid: Mixtures, measured: Measurements) -> Verdict:
    """How many trials end at a minimum, and which values and seeds a verdict is of."""
    told, ended = [], _ended(measured)
    for learner, numbers in read(grid, measured).items():
        text = f"{learner}: {100 * ended[learner]:.0f} % of trials end at a minimum"
        if read.everywhere:
            told.append(f"{text}; the risks of the others are those of the last step.")
            continue
        missing = ", ".join(f"{place:.3g}" for place in grid.places if place not in numbers)
        seeds = max(map(len, numbers.values()), default=0)
        told.append(
            f"{text}; {seeds} of {grid.seeds} seeds do so at every value"
            + (f" but {grid.name} = {missing}, left out here" if missing else "")
            + ", and only these count."
        )
    return Verdict(" ".join(told))


def picture_of_laws(claim: Claimed, grid: Mixtures, measured: Measurements, title: str) -> Any:
    """A measure over the letter, with the power law of each learner."""
    numbers = claim.read(grid, measured)
    fitted = laws(claim, {learner: _find(claim, by) for learner, by in numbers.items()})
    return needed_picture(numbers, fitted, xlabel=grid.name, ylabel=claim.what, title=title)
