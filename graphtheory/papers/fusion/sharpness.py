"""Whether attention finds the classes of a batch, and what theorem 2 says of its growth."""

from math import exp, expm1, inf, log, sqrt
from sys import float_info
from typing import NamedTuple

import torch
from torch import Tensor

from graphtheory.lab.train.contract import check_each


def sharpness(attention: Tensor, labels: Tensor) -> float:
    r"""The least attention within a class over the largest between two classes.

    .. math:: S(A) = \frac{\min_{i \ne j,\, y_i = y_j} A_{ij}}{\max_{y_p \ne y_q} A_{pq}}

    Infinity where nothing passes between classes and something within each; 0 where a pair of a
    class has nothing. One pair decides it, so noise in a single entry does. Weights, 0 or more, are
    [..., B, B], where leading axes, such as heads, count as more pairs, labels int64 [B].

    Source: Li and Pimentel-Alarcon (2024), definition 2, which does not say whether i = j counts.
    """
    within, between = _pairs(attention, labels)
    _no_negative(attention)
    least, most = float(attention[..., within].min()), float(attention[..., between].max())
    return least / most if most > 0 else (inf if least > 0 else 0.0)


def sharpness_of_means(attention: Tensor, labels: Tensor) -> float:
    """The mean attention within a class, diagonal left out, over the mean between classes.

    1 where attention does not see the classes; unlike `sharpness` no single pair decides it.
    Arguments and errors as there, but entries may be negative.
    """
    within, between = _pairs(attention, labels)
    least, most = float(attention[..., within].mean()), float(attention[..., between].mean())
    return least / most if most > 0 else (inf if least > 0 else 0.0)


class ClassMass(NamedTuple):
    """Share of attention on the own class, and what uniform attention would have there."""

    mass: float
    uniform: float


def class_mass(attention: Tensor, labels: Tensor) -> ClassMass:
    r"""Share of a sample's attention to others that goes to its own class, mean over samples.

    .. math:: \frac1B \sum_i \frac{\sum_{j \ne i,\, y_j = y_i} A_{ij}}{\sum_{j \ne i} A_{ij}}

    A row whose attention is on itself alone is left out; heads are averaged. Block-diagonal
    attention has mass 1. Arguments and errors as in `sharpness`.
    """
    within, _ = _pairs(attention, labels)
    _no_negative(attention)
    others = ~torch.eye(len(labels), dtype=torch.bool, device=labels.device)
    own = torch.where(within, attention, 0).sum(-1)
    whole = torch.where(others, attention, 0).sum(-1)
    some = whole > 0
    if not bool(some.any()):
        raise ValueError("attention: nothing off the diagonal, expected a row with some")
    uniform = within.sum(1) / (len(labels) - 1)
    return ClassMass(float((own[some] / whole[some]).mean()), float(uniform.mean()))


class NoiseBounds(NamedTuple):
    """What noise leaves of theorem 1."""

    delta: float  # at most so much of a sample lies along a direction its cluster is orthogonal to
    Delta: float  # at least so much of a sample lies along its own cluster's direction
    separable: bool  # whether delta < Delta


def noise_bounds(noise: float, integrity: float) -> NoiseBounds:
    r"""Bounds on noisy projections, from the noise and the cluster integrity, both in [0, 1].

    .. math:: \delta = \sqrt{1 - (1 - \epsilon)^2}, \qquad
        \Delta = (1 - \epsilon) \rho - \delta \sqrt{1 - \rho^2}

    A noisy unit sample has at least cosine 1 - epsilon with its own.

    Source: Li and Pimentel-Alarcon (2024), eq. (6) and after.
    """
    given = {"noise": noise, "integrity": integrity}
    check_each("a number in [0, 1]", lambda value: 0 <= value <= 1, **given)
    delta = sqrt(1 - (1 - noise) ** 2)
    kept = (1 - noise) * integrity - delta * sqrt(1 - integrity**2)
    return NoiseBounds(delta, kept, delta < kept)


class GrowthBound(NamedTuple):
    """The factor of theorem 2."""

    factor: float  # at least so much is sharpness multiplied by in a block, says the theorem
    squares_negative: bool  # whether the bound squares a negative number, and so proves nothing


def growth_bound(count: int, delta: float, Delta: float) -> GrowthBound:
    r"""The lower bound of theorem 2 on the growth of sharpness in one block, as printed.

    .. math:: \frac{(\Delta e^{\Delta^2} - n e^{n(\delta + \delta^2)})^2
        e^{\delta + n \delta^2 - n \Delta^2}}{n^2 L + n^3 L^2}, \qquad
        L = \delta e^{n \Delta^2} + e^{n (\delta + \delta^2)}

    with n = `count` samples in the batch. It is below 1 wherever delta < Delta and n is 3 or more,
    that is, it does not say that sharpness grows; and the number under the square is negative
    there.

    Source: Li and Pimentel-Alarcon (2024), theorem 2, the last line of its proof.
    """
    if count < 1 or delta < 0 or Delta <= 0:
        raise ValueError(
            f"count, delta, Delta: got {count}, {delta}, {Delta}, expected 1 or more, 0 or more, "
            "above 0"
        )
    n = count
    gain, loss = log(Delta) + Delta**2, log(n) + n * (delta + delta**2)
    high, low = max(gain, loss), min(gain, loss)
    if high == low:
        return GrowthBound(0.0, False)
    square = 2 * (high + log(-expm1(low - high)))
    spread = n * (delta + delta**2)
    noisy = log(delta) + n * Delta**2 if delta > 0 else -inf
    both = _log_add(noisy, spread)
    below = _log_add(2 * log(n) + both, 3 * log(n) + 2 * both)
    power = square + delta + n * (delta**2 - Delta**2) - below
    return GrowthBound(exp(power) if power < log(float_info.max) else inf, gain < loss)


def _log_add(a: float, b: float) -> float:
    high, low = max(a, b), min(a, b)
    return high if low == -inf else high + log(1 + exp(low - high))


def _no_negative(attention: Tensor) -> None:
    if float(attention.min()) < 0:
        raise ValueError("attention: negative entries, expected weights of 0 or more")


def _pairs(attention: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Pairs of one class, and of two, Bool [B, B]."""
    if labels.dim() != 1 or attention.shape[-2:] != (len(labels), len(labels)):
        raise ValueError(
            f"attention: shape {tuple(attention.shape)}, expected [..., B, B] for labels "
            f"{tuple(labels.shape)}"
        )
    if not bool(torch.isfinite(attention).all()):
        raise ValueError("attention: entries that are not finite, expected weights")
    same = labels[:, None] == labels
    within = same & ~torch.eye(len(labels), dtype=torch.bool).to(same.device)
    if bool(same.all()) or not bool(within.any()):
        raise ValueError("labels: one class or no two samples of one, expected pairs of both kinds")
    return within, ~same
