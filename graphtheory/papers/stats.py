"""Intervals, trends, minima, crossings and power laws of what was measured."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit, log_expit
from scipy.stats import chi2, linregress, rankdata
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
        return f"lowest at {self.at:g}, inside in {100 * self.inside:.0f} % of resamples"


def medians(by: Mapping[float, Sequence[float]], resamples: int = 1000) -> tuple[Array, Array]:
    """Medians at each setting [V], and again of resampled seeds [R, V].

    Args:
        by: Setting -> the measure of each seed, in the same order of seeds; nan of a trial that
            has none, but not of all. A resample of these alone has the median of all seeds.
        resamples: Of the bootstrap, over seeds: those of a seed stay together.
    """
    table = np.array([list(by[value]) for value in sorted(by)], float)  # [V, seeds]
    pick = np.random.default_rng(0).integers(table.shape[1], size=(resamples, table.shape[1]))
    known = np.ma.masked_invalid(table)
    whole = np.ma.median(known, axis=1).filled(np.nan)
    drawn = np.ma.median(known[:, pick], axis=2).filled(np.nan).T
    return whole, np.where(np.isnan(drawn), whole, drawn)


def means(by: Mapping[float, Sequence[float]], resamples: int = 1000) -> tuple[Array, Array]:
    """`medians`, but means: of few seeds, whose differences then cancel; infinite where one is."""
    table = np.array([list(by[value]) for value in sorted(by)], float)  # [V, seeds]
    pick = np.random.default_rng(0).integers(table.shape[1], size=(resamples, table.shape[1]))
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
    a, b = rankdata(values), rankdata(np.vstack(sample), axis=1)
    a, b = a - a.mean(), b - b.mean(1, keepdims=True)
    size = np.sqrt((a @ a) * (b * b).sum(1))  # 0 where a row has equal entries
    rho, *drawn = np.divide(b @ a, size, out=np.zeros_like(size), where=size != 0)
    low, high = np.quantile(drawn, LEVEL)
    return Estimate(float(rho), float(low), float(high))


def lowest(values: Sequence[float], sample: tuple[Array, Array]) -> Minimum:
    """Where `medians` or `boundaries` are lowest; of equal ones the first."""
    whole, drawn = sample
    at = drawn.argmin(1)
    inside = (at > 0) & (at < len(values) - 1)
    return Minimum(float(values[int(whole.argmin())]), float(inside.mean()))


_RIDGE = 1e-3  # keeps the fit finite where no trial contradicts another


@dataclass(frozen=True)
class Exponent:
    """A fitted power law y ~ c v^exponent."""

    exponent: float  # of v
    low: float  # lower end of its 95 % interval over resampled trials
    high: float  # upper end
    factor: float  # c
    # P-value of the law against a boundary that is free at every v; nan where there is no such
    # test. Near 0: no power law.
    misfit: float = float("nan")

    def __str__(self) -> str:
        return f"{self.exponent:.2f} [{self.low:.2f}, {self.high:.2f}]"

    def line(self, claimed: float) -> dict[str, float]:
        """As `phase_diagram` and `needed_picture` draw it beside a claimed exponent."""
        return {"factor": self.factor, "exponent": self.exponent, "claimed": claimed}


@dataclass(frozen=True)
class Successes:
    """How many trials succeeded in each cell of a grid."""

    values: Array  # v of each row, above 0 [V]
    labels: Array  # of each column, above 0 [L]
    counts: Array  # successes [V, L]
    trials: int  # in each cell

    @classmethod
    def counted(
        cls,
        values: Sequence[float],
        labels: Sequence[float],
        succeeded: Iterable[tuple[float, float]],
        trials: int,
    ) -> "Successes":
        """Counts of trials, from the value and labels of each that succeeded."""
        counts = np.zeros((len(values), len(labels)))
        for value, of in succeeded:
            counts[values.index(value), labels.index(of)] += 1
        return cls(np.array(values, float), np.array(labels, float), counts, trials)

    def resampled(self, resamples: int) -> "Iterator[Successes]":
        """The same with successes drawn again in each cell."""
        random, share = np.random.default_rng(0), self.counts / self.trials
        for _ in range(resamples):
            yield replace(self, counts=random.binomial(self.trials, share).astype(float))


def halves(found: Successes) -> Array:
    """The number of labels at which half of the trials succeed, for each v.

    From a logistic regression on log labels with one steepness for all v. Not inside the grid (half
    a step of it added at both ends) it is 0, where more succeed everywhere, or infinite.
    """
    steepness, *shift = _fit(found, np.eye(len(found.values)))[0]
    half = np.exp(np.clip(-np.asarray(shift) / max(steepness, 1e-9), -700, 700))
    step = (found.labels[1] / found.labels[0]) ** 0.5 if len(found.labels) > 1 else 1.0
    half = np.where(half < found.labels[0] / step, 0.0, half)
    return np.where(half > found.labels[-1] * step, np.inf, half)


def boundary(found: Successes, resamples: int = 400) -> Exponent:
    r"""The power law of the boundary between success and failure.

    .. math:: \mathrm{logit}\,P = w (\log L - \log c - \beta \log v)

    The interval is that of a parametric bootstrap over trials: successes drawn again in each cell.
    Where no v has a boundary, or only one has, the exponent is nan.
    """
    inside = halves(found)
    if int(np.isfinite(np.where(inside > 0, inside, np.inf)).sum()) < 2:
        nan = float("nan")
        return Exponent(nan, nan, nan, nan)
    log = np.log(found.values)
    design = np.stack([np.ones_like(log), log], 1)
    fitted, loss = _fit(found, design)
    steepness, shift, slope = fitted
    free_loss = _fit(found, np.eye(len(log)))[1]
    freedom = len(log) - 2
    misfit = chi2.sf(2 * (loss - free_loss), freedom) if freedom > 0 else np.nan
    drawn = []
    for again in found.resampled(resamples):
        (w, _, s), _ = _fit(again, design, fitted)
        drawn.append(-s / max(w, 1e-9))
    low, high = np.quantile(drawn, LEVEL)
    w = max(steepness, 1e-9)
    return Exponent(
        float(-slope / w), float(low), float(high), float(np.exp(-shift / w)), float(misfit)
    )


def _fit(found: Successes, design: Array, start: Array | None = None) -> tuple[Array, float]:
    """(steepness, shifts of the columns of the design) and the loss, negative log-likelihood."""
    log = np.log(found.labels)
    middle = log.mean()

    def loss(at: Array) -> tuple[float, Array]:
        logit = at[0] * (log - middle)[None] + (design @ at[1:])[:, None]
        good, bad = found.counts, found.trials - found.counts
        value = -(good * log_expit(logit) + bad * log_expit(-logit)).sum()
        off = found.trials * expit(logit) - good
        slope = np.concatenate([[(off * (log - middle)).sum()], design.T @ off.sum(1)])
        return float(value + _RIDGE * (at**2).sum()), slope + 2 * _RIDGE * at

    # coefficients of the design's constant column, as log labels are centered
    ones = np.linalg.lstsq(design, np.ones(len(design)), rcond=None)[0]
    if start is None:
        start = np.eye(1 + design.shape[1])[0]
    else:
        start = start + np.concatenate([[0], start[0] * middle * ones])
    bounds = [(0.0, None), *[(None, None)] * design.shape[1]]
    best = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds)
    at = np.array(best.x)
    at[1:] -= at[0] * middle * ones
    return at, float(best.fun)


def regression_of(
    measured: Mapping[float, Sequence[float]], resamples: int = 1000
) -> Exponent | None:
    """The power law of numbers at each v, by least squares of logarithms; None of fewer than two v.

    The interval is that of a bootstrap, which resamples the points within each v.
    """
    if len(measured) < 2:
        return None
    pairs = [(v, count) for v, counts in measured.items() for count in counts]
    x, y = np.log(np.array([*zip(*pairs, strict=True)], float))
    line = linregress(x, y)
    random = np.random.default_rng(0)
    groups = [np.flatnonzero(x == v) for v in np.unique(x)]
    drawn = []
    for _ in range(resamples):
        pick = np.concatenate([random.choice(g, len(g)) for g in groups])
        drawn.append(linregress(x[pick], y[pick]).slope)
    low, high = np.quantile(drawn, LEVEL)
    return Exponent(float(line.slope), float(low), float(high), float(np.exp(line.intercept)))


def boundaries(found: Successes, resamples: int = 300) -> tuple[Array, Array]:
    """`halves` at each setting [V], and again of successes drawn again in each cell [R, V]."""
    return halves(found), np.stack([halves(again) for again in found.resampled(resamples)])
