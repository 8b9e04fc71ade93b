"""Intervals, trends, minima and crossings of what was measured."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata
from scipy.stats import t as student

Array = NDArray[np.float64]
LEVEL = (0.025, 0.975)  # ends of the intervals, as quantiles
FEWEST_SEEDS = 3
"""Seeds that a verdict needs."""
SURE = 0.95
"""Share of resamples in which a claim must hold."""


@dataclass(frozen=True)
class Estimate:
    """The size of a measure, or Spearman's correlation of a setting with its median or mean."""

    value: float  # the estimate; of a correlation -1 falls always, 1 rises always
    low: float  # lower end of its 95 % interval over resampled seeds
    high: float  # upper end

    def __str__(self) -> str:
        """The estimate and its interval."""
        return f"{self.value:.2f} [{self.low:.2f}, {self.high:.2f}]"

    @property
    def direction(self) -> str:
        """In a word, where the interval is on one side of 0."""
        return "rises" if self.low > 0 else "falls" if self.high < 0 else "no trend"


@dataclass(frozen=True)
class Minimum:
    """Where the median of a measure is lowest."""

    at: float  # the setting
    inside: float  # share of resamples in which it is lowest at neither end of the settings

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


def levels(sample: tuple[Array, Array]) -> list[Estimate]:
    """The size at each setting of `medians` or `means`, which are finite."""
    ends = np.quantile(sample[1], LEVEL, axis=0)
    return [Estimate(*map(float, of)) for of in zip(sample[0], *ends, strict=True)]


def student_interval(values: Sequence[float]) -> tuple[float, float]:
    """Mean, and half of Student's 95 % interval; nan of one value."""
    if len(values) < 2:
        return fmean(values), math.nan
    error = float(np.std(values, ddof=1)) / len(values) ** 0.5
    return fmean(values), float(student.ppf(LEVEL[1], len(values) - 1)) * error


def trend(values: Sequence[float], sample: tuple[Array, Array]) -> Estimate:
    """The trend of `medians`, `means` or `boundaries` over the settings, which rise."""
    rho, *drawn = _spearman(np.asarray(values), np.vstack(sample))
    low, high = np.quantile(drawn, LEVEL)
    return Estimate(float(rho), float(low), float(high))


def lowest(values: Sequence[float], sample: tuple[Array, Array]) -> Minimum:
    """Where `medians` or `boundaries` are lowest; of equal ones the first."""
    whole, drawn = sample
    at = drawn.argmin(1)
    inside = (at > 0) & (at < len(values) - 1)
    return Minimum(float(values[int(whole.argmin())]), float(inside.mean()))


def _spearman(x: Array, y: Array) -> Array:
    """Rank correlations [R] of x [V] with each row of y [R, V]; 0 where a row has equal entries."""
    a, b = rankdata(x), rankdata(y, axis=1)
    a, b = a - a.mean(), b - b.mean(1, keepdims=True)
    size = np.sqrt((a @ a) * (b * b).sum(1))
    return np.divide(b @ a, size, out=np.zeros_like(size), where=size != 0)


def crossing(
    curve: Sequence[tuple[float, float]], threshold: float,
    *, rising: bool = False, log_x: bool = False, log_y: bool = False, stays: bool = False,
) -> float:  # fmt: skip
    """Where a curve first passes a threshold, on the straight line between the points around it.

    Args:
        curve: Points (x, y), x ascending, at least one.
        threshold: Of y.
        rising: Whether to pass is to reach it from below; otherwise to fall below it.
        log_x: The line is straight over the logarithm of x, which is above 0.
        log_y: The line is straight in the logarithm of y, of which what lies below a hundredth of
            the threshold counts as that hundredth.
        stays: Take the last time that it passes, after which no point is back.

    Returns: The first x where that point is past the threshold already, infinity where none is.
    """
    past = [y >= threshold if rising else y < threshold for _, y in curve]
    if stays and not all(past):
        last = len(past) - 1 - past[::-1].index(False)
        curve, past = curve[last:], past[last:]
    x, y = curve[0]
    for (x_next, y_next), there in zip(curve, past, strict=True):
        if there:
            if x_next == x:
                return float(x)
            if log_y:
                top = math.log(max(y, threshold))
                low = math.log(max(y_next, threshold / 100))
                part = (top - math.log(threshold)) / max(top - low, 1e-12)
            else:
                part = (threshold - y) / (y_next - y)
            return float(x * (x_next / x) ** part if log_x else x + part * (x_next - x))
        x, y = x_next, y_next
    return math.inf
