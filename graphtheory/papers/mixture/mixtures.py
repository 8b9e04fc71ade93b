"""Grids over one letter of the mixture, and the table that the figures of chapter 4 share."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch

from graphtheory.lab.bench.rows import Row
from graphtheory.lab.report.table import Table
from graphtheory.papers.claims import Claimed, Power
from graphtheory.papers.grid import Grid, axis
from graphtheory.papers.mixture.training import Learner, Setting, Trial, draw
from graphtheory.papers.power_law import Exponent
from graphtheory.papers.stats import Correlation, Minimum

Found = Exponent | Correlation | Minimum
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
    def ends(self) -> tuple[float, ...]:
        """The first value, the one in the middle and the last."""
        count = len(self.values)
        return tuple(self.values[i] for i in sorted({0, count // 2, count - 1}))

    @property
    def trial_seeds(self) -> range:
        """The seed of each trial."""
        return range(self.first, self.first + self.seeds)

    def draw(self, value: float, n: int, dtype: torch.dtype = torch.float32) -> list[Trial]:
        """The trials of all seeds at one value, with n examples each."""
        setting = varied(self.setting, self.letter, value)
        return [draw(setting, n, seed, dtype) for seed in self.trial_seeds]


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
        Exponent: ("exponent", "low", "high"), Correlation: ("rho", "low", "high"),
        Minimum: ("at", "inside"), type(None): (),
    }[type(found)]  # fmt: skip
    return [Row.of(part, getattr(found, part), "1", measure=measure) for part in parts]


def laws(claim: Claimed, found: Mapping[str, Found | None]) -> dict[str, dict[str, Any]]:
    """The fitted power laws beside the claimed exponent, for a picture; none of other claims."""
    if not isinstance(claim, Power) or isinstance(claim.claimed, tuple):
        return {}
    return {n: one.line(claim.claimed) for n, one in found.items() if isinstance(one, Exponent)}
