"""Power laws of numbers, and of the boundary between success and failure, with intervals."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, log_expit
from scipy.stats import chi2, linregress

from graphtheory.papers.stats import LEVEL, Array

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
        """The exponent and its interval."""
        return f"{self.exponent:.2f} [{self.low:.2f}, {self.high:.2f}]"

    def line(self, claimed: float) -> dict[str, float]:
        """As the pictures `phase_diagram` and `power_laws` draw it beside a claimed exponent."""
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
    ) -> Successes:
        """Counts of trials, from the value and labels of each that succeeded."""
        counts = np.zeros((len(values), len(labels)))
        for value, of in succeeded:
            counts[values.index(value), labels.index(of)] += 1
        return cls(np.array(values, float), np.array(labels, float), counts, trials)

    def resampled(self, resamples: int, seed: int) -> Iterator[Successes]:
        """The same with successes drawn again in each cell."""
        random, share = np.random.default_rng(seed), self.counts / self.trials
        for _ in range(resamples):
            yield replace(self, counts=random.binomial(self.trials, share).astype(float))

    def shares(self) -> Iterator[tuple[float, float, float]]:
        """Value, labels and share of successes of each cell."""
        for value, counts in zip(self.values.tolist(), self.counts.tolist(), strict=True):
            for labels, count in zip(self.labels.tolist(), counts, strict=True):
                yield value, labels, count / self.trials


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


def boundary(found: Successes, resamples: int = 400, seed: int = 0) -> Exponent:
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
    for again in found.resampled(resamples, seed):
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

    if start is None:
        start = np.eye(1 + design.shape[1])[0]
    else:
        start = start + np.concatenate([[0], start[0] * middle * _ones(design)])
    bounds = [(0.0, None), *[(None, None)] * design.shape[1]]
    best = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds)
    at = np.array(best.x)
    at[1:] -= at[0] * middle * _ones(design)
    return at, float(best.fun)


def _ones(design: Array) -> Array:
    """Coefficients of the design's constant column, as log labels are centered."""
    return np.asarray(np.linalg.lstsq(design, np.ones(len(design)), rcond=None)[0], np.float64)


def regression(
    values: Sequence[float], counts: Sequence[float], resamples: int = 1000, seed: int = 0
) -> Exponent:
    """The power law of numbers, by least squares of logarithms, at two or more different v.

    The interval is that of a bootstrap, which resamples the points within each v.
    """
    x, y = np.log(np.asarray(values, float)), np.log(np.asarray(counts, float))
    line = linregress(x, y)
    random = np.random.default_rng(seed)
    groups = [np.flatnonzero(x == v) for v in np.unique(x)]
    drawn = []
    for _ in range(resamples):
        pick = np.concatenate([random.choice(g, len(g)) for g in groups])
        drawn.append(linregress(x[pick], y[pick]).slope)
    low, high = np.quantile(drawn, LEVEL)
    return Exponent(float(line.slope), float(low), float(high), float(np.exp(line.intercept)))


def regression_of(measured: Mapping[float, Sequence[float]]) -> Exponent | None:
    """`regression` of the measurements at each v; None of fewer than two v."""
    if len(measured) < 2:
        return None
    pairs = [(v, count) for v, counts in measured.items() for count in counts]
    return regression([v for v, _ in pairs], [count for _, count in pairs])


def boundaries(found: Successes, resamples: int = 300, seed: int = 0) -> tuple[Array, Array]:
    """`halves` at each setting [V], and again of successes drawn again in each cell [R, V]."""
    return halves(found), np.stack([halves(again) for again in found.resampled(resamples, seed)])
