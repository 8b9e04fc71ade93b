"""Settings of the figures on mixtures, and what their counts and laws look like."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median
from typing import Any, Literal

import torch

from graphtheory.lab.bench.rows import Row, Table
from graphtheory.papers.claims import Claimed, Numbers, Power
from graphtheory.papers.figure import Verdict
from graphtheory.papers.grid import Grid, Measured, axis
from graphtheory.papers.mixture.training import Learner, Setting, Trial, draw
from graphtheory.papers.pictures import needed_picture
from graphtheory.papers.pivot import Measurements, Shown, groups
from graphtheory.papers.stats import FEWEST_SEEDS, Array, Estimate, Exponent, Minimum, medians

Found = Exponent | Estimate | Minimum
Letter = Literal[
    "d", "mean 1", "mean 2", "means", "sigma", "sigma 1", "sigma 2", "lambda 2", "K", "n"
]
STEPS = "steps of gradient descent"
SHORT = (Learner(steps=300),)  # Newton's method continues from there
_NAMES: dict[Letter, str] = {
    "mean 1": "|mu_1|", "mean 2": "|mu_2|", "means": "|mu_1|", "sigma": "|Sigma|",
    "sigma 1": "|Sigma_1|", "sigma 2": "|Sigma_2|", "lambda 2": "lambda_2", "n": "log n / n",
}  # fmt: skip
_USUAL = Setting()


def varied(setting: Setting, letter: Letter, value: float) -> Setting:
    r"""The setting with one letter changed; a mean is m_l, a sigma :math:`\|\Sigma_l\|`."""
    m, s = setting.means, setting.deviations
    root = (value / setting.stretch) ** 0.5
    changes: dict[str, dict[str, Any]] = {
        "d": {"dim": int(value)}, "K": {"neurons": int(value)}, "n": {},
        "mean 1": {"means": (value, m[1])}, "mean 2": {"means": (m[0], value)},
        "means": {"means": (value, -value)}, "sigma": {"deviations": (root, root)},
        "sigma 1": {"deviations": (root, s[1])}, "sigma 2": {"deviations": (s[0], root)},
        "lambda 2": {"weights": (1 - value, value)},
    }  # fmt: skip
    return replace(setting, **changes[letter])


@dataclass(frozen=True)
class Mixtures(Grid):
    """Networks that learn from examples of a mixture, of which one letter varies."""

    letter: Letter  # what varies
    learners: tuple[Learner, ...] = axis("learner")  # how the network learns
    values: tuple[float, ...] = axis("value")  # of the letter
    setting: Setting = _USUAL  # all other letters
    examples: int = 0  # n, where it is not the letter
    seeds: int = 20
    first: int = 0

    @property
    def name(self) -> str:
        """The letter in tables and pictures."""
        return _NAMES.get(self.letter, self.letter)

    def shown(self, value: float) -> float:
        """A value in tables and pictures: of a mean its norm, of n log n / n."""
        if self.letter.startswith("mean"):
            return abs(value) * self.setting.dim**0.5
        return math.log(value) / value if self.letter == "n" else value

    @property
    def places(self) -> list[float]:
        """All values as they are shown, sorted."""
        return sorted({self.shown(value) for value in self.values})

    @property
    def trial_seeds(self) -> range:
        """The seed of each trial."""
        return range(self.first, self.first + self.seeds)

    def draw(self, value: float, n: int, dtype: torch.dtype = torch.float32) -> list[Trial]:
        """The trials of all seeds at one value, with n examples each."""
        setting = varied(self.setting, self.letter, value)
        return [draw(setting, n, seed, dtype) for seed in self.trial_seeds]


def ends(values: tuple[float, ...]) -> tuple[float, ...]:
    """The first one, the one in the middle and the last, for a quick form."""
    count = len(values)
    return tuple(values[i] for i in sorted({0, count // 2, count - 1}))


def found_table(
    title: str,
    letter: str,
    places: Sequence[float],
    lines: Mapping[str, tuple[Mapping[float, str], Found | None]],
    note: str = "",
) -> Table:
    """A line for each measure: a number at each place, and what was found of it."""
    return Table(
        title,
        ["measure", *(f"{letter} = {place:.3g}" for place in places), "found"],
        [
            [measure, *(numbers.get(place, "-") for place in places), _short(found)]
            for measure, (numbers, found) in lines.items()
        ],
        note=note,
    )


def _short(found: Found | None) -> str:
    if isinstance(found, Minimum):
        return f"{found.at:g} ({100 * found.inside:.0f} %)"
    return "-" if found is None else str(found)


def found_rows(measure: str, found: Found | None) -> list[Row]:
    """What was found as result rows; none where there is nothing."""
    parts = {
        Exponent: ("exponent", "low", "high"), Estimate: ("rho", "low", "high"),
        Minimum: ("at", "inside"), type(None): (),
    }[type(found)]  # fmt: skip
    values = vars(found).values() if found else ()
    return [
        Row.of(part, value, "1", measure=measure)
        for part, value in zip(parts, values, strict=False)
    ]


def laws(claim: Claimed, found: Mapping[str, Found | None]) -> dict[str, dict[str, Any]]:
    """The fitted power laws beside the claimed exponent, for a picture; none of other claims."""
    if not isinstance(claim, Power) or isinstance(claim.claimed, tuple):
        return {}
    return {n: one.line(claim.claimed) for n, one in found.items() if isinstance(one, Exponent)}


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
