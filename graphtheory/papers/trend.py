"""Whether a measure rises, falls or turns over a setting, with intervals over resampled seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from graphtheory.papers.power_law import Successes, halves

Array = NDArray[np.float64]
FEWEST = 3
"""Seeds that a verdict needs."""
SURE = 0.95
"""Share of resamples in which something must be so, to be sure of it."""
_LEVEL = (0.025, 0.975)


@dataclass(frozen=True)
class Level:
    """The size of a measure.

    Attributes:
        value: It.
        low: Lower end of its 95 % interval over resampled seeds.
        high: Upper end.
    """

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        """The size and its interval."""
        return f"{self.value:.2f} [{self.low:.2f}, {self.high:.2f}]"


@dataclass(frozen=True)
class Trend:
    """Spearman's correlation of a setting with the median or mean of a measure.

    Attributes:
        rho: -1 falls always, 1 rises always.
        low: Lower end of its 95 % interval over resampled seeds.
        high: Upper end.
    """

    rho: float
    low: float
    high: float

    def __str__(self) -> str:
        """The correlation and its interval."""
        return f"{self.rho:.2f} [{self.low:.2f}, {self.high:.2f}]"

    @property
    def direction(self) -> str:
        """In a word, where the interval is on one side of 0."""
        return "rises" if self.low > 0 else "falls" if self.high < 0 else "no trend"


@dataclass(frozen=True)
class Turn:
    """Where the median of a measure is lowest.

    Attributes:
        at: The setting.
        inside: Share of resamples in which it is lowest at neither end of the settings.
    """

    at: float
    inside: float

    @property
    def holds(self) -> bool:
        """Whether it first falls and then rises, in 95 of 100 resamples."""
        return self.inside >= SURE

    def __str__(self) -> str:
        """Where, and how sure it is that this is not an end."""
        return f"lowest at {self.at:g}, inside in {100 * self.inside:.0f} % of resamples"


def medians(
    by: Mapping[float, Sequence[float]], resamples: int = 1000, seed: int = 0
) -> tuple[Array, Array]:
    """Medians at each setting [V], and again of resampled seeds [R, V].

    Args:
        by: Setting -> the measure of each seed, in the same order of seeds; nan of a trial that
            has none, but not of all. A resample of these alone has the median of all seeds.
        resamples: Of the bootstrap, over seeds: those of a seed stay together.
        seed: Of the bootstrap.
    """
    table = np.array([list(by[value]) for value in sorted(by)], float)  # [V, seeds]
    pick = np.random.default_rng(seed).integers(table.shape[1], size=(resamples, table.shape[1]))
    known = np.ma.masked_invalid(table)
    whole = np.ma.median(known, axis=1).filled(np.nan)
    drawn = np.ma.median(known[:, pick], axis=2).filled(np.nan).T
    return whole, np.where(np.isnan(drawn), whole, drawn)


def means(
    by: Mapping[float, Sequence[float]], resamples: int = 1000, seed: int = 0
) -> tuple[Array, Array]:
    """`medians`, but means: of few seeds, whose differences then cancel; infinite where one is."""
    table = np.array([list(by[value]) for value in sorted(by)], float)  # [V, seeds]
    pick = np.random.default_rng(seed).integers(table.shape[1], size=(resamples, table.shape[1]))
    return table.mean(1), table[:, pick].mean(2).T


def levels(sample: tuple[Array, Array]) -> list[Level]:
    """The size at each setting of `medians` or `means`, which are finite."""
    ends = np.quantile(sample[1], _LEVEL, axis=0)
    return [Level(*map(float, of)) for of in zip(sample[0], *ends, strict=True)]


def boundaries(found: Successes, resamples: int = 300, seed: int = 0) -> tuple[Array, Array]:
    """`halves` at each setting [V], and again of successes drawn anew in each cell [R, V]."""
    random = np.random.default_rng(seed)
    share = found.counts / found.trials
    drawn = []
    for _ in range(resamples):
        counts = random.binomial(found.trials, share).astype(float)
        drawn.append(halves(Successes(found.values, found.labels, counts, found.trials)))
    return halves(found), np.stack(drawn)


def trend(values: Sequence[float], sample: tuple[Array, Array]) -> Trend:
    """The trend of `medians`, `means` or `boundaries` over the settings, which rise."""
    whole, drawn = sample
    every = np.array([_spearman(np.asarray(values), line) for line in drawn])
    low, high = np.quantile(every, _LEVEL)
    return Trend(_spearman(np.asarray(values), whole), float(low), float(high))


def lowest(values: Sequence[float], sample: tuple[Array, Array]) -> Turn:
    """Where `medians` or `boundaries` are lowest; of equal ones the first."""
    whole, drawn = sample
    at = drawn.argmin(1)
    inside = (at > 0) & (at < len(values) - 1)
    return Turn(float(values[int(whole.argmin())]), float(inside.mean()))


def _spearman(x: Array, y: Array) -> float:
    """0 where all y are equal."""
    a, b = rankdata(x), rankdata(y)
    a, b = a - a.mean(), b - b.mean()
    size = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / size if size else 0.0
