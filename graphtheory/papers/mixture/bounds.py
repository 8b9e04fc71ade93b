"""How well a mixture of groups is learned, and what the theory says of the mixture."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.integrate import trapezoid
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from graphtheory.papers.mixture.data import GaussianMixture

_NARROW = 100.0  # from this sigma on phi'(sigma z) is narrow beside the places of z


def weight_error(weights: Tensor, teacher: Tensor) -> Tensor:
    r"""Distance to the nearest column permutation of the teacher's weights.

    .. math:: \min_P \|W - W^* P\|_F

    Infinite or NaN where weights are.

    Args:
        weights: [..., d, K].
        teacher: [d, K].

    Returns:
        [...].

    Example:
        >>> float(weight_error(torch.tensor([[2.0, 1.0]]), torch.tensor([[1.0, 2.0]])))
        0.0
    """
    gap = weights[..., :, None] - teacher[..., None, :]  # [..., d, K, K]
    size = teacher.size(1)
    cost = gap.detach().square().sum(-3).reshape(-1, size, size)
    least = [
        c[linear_sum_assignment(c)].sum() if np.isfinite(c).all() else c.sum()
        for c in cost.double().numpy()
    ]
    return torch.tensor(np.sqrt(least)).view(weights.shape[:-2]).to(weights.dtype)


def risk(predicted: Tensor, true: Tensor) -> Tensor:
    r"""Mean cross-entropy over labels that the teacher draws.

    .. math:: -H^* \log H - (1 - H^*) \log(1 - H)

    On features of one group it estimates (4.5), of the mixture (4.4), without the noise of labels;
    that of the teacher itself is the least that any network has.

    Args:
        predicted: H, the network's P(y = 1 | x) of each example [..., n].
        true: H^*, the teacher's.
    """
    least = torch.finfo(predicted.dtype).eps
    known = predicted.clamp(least, 1 - least)
    return -(true * known.log() + (1 - true) * (1 - known).log()).mean(-1)


def rho(u: Tensor, sigma: float) -> float:
    r"""How curved the risk is at least, under N(u, I) and neurons of norm sigma.

    .. math:: \rho(u, \sigma) = \min_{j \ne i} \Big\{ (u_j^2 + 1)(\beta_0(i) - \alpha_0(i)^2),\;
        \beta_2(i) - \frac{\alpha_2(i)^2}{u_i^2 + 1} \Big\}

    with :math:`\alpha_q(i) = E[\phi'(\sigma z) z^q]`, :math:`\beta_q(i) = E[\phi'^2(\sigma z) z^q]`
    for z ~ N(u_i, 1). Of one entry only the second term is left.

    Raises:
        ValueError: A sigma that is no length, or entries of u that are not finite.

    Source:
        Li (2024), eq. (C.6).
    """
    if not 0 <= sigma < np.inf:
        raise ValueError(f"sigma: got {sigma}, expected 0 or more")
    means = np.asarray(u.detach(), float)
    if not np.isfinite(means).all():
        raise ValueError(f"u: got {means.tolist()}, expected finite entries")
    moment = [_moments(m, sigma) for m in means]
    found = [b_2 - a_2**2 / (m**2 + 1) for m, (_, a_2, _, b_2) in zip(means, moment, strict=True)]
    for i, (a_0, _, b_0, _) in enumerate(moment):
        others = np.delete(means, i)
        if len(others):
            found.append((others**2 + 1).min() * (b_0 - a_0**2))
    return float(min(found))


def _moments(mean: float, sigma: float) -> NDArray[np.float64]:
    """alpha_0, alpha_2, beta_0, beta_2; the trapezoid rule is nearly exact on such functions."""
    z = _places(mean, sigma)
    slope = 0.25 / np.cosh(np.clip(sigma * z / 2, -300, 300)) ** 2
    density = np.exp(-((z - mean) ** 2) / 2) / np.sqrt(2 * np.pi)
    parts = np.stack([slope, slope * z**2, slope**2, slope**2 * z**2])
    return np.asarray(trapezoid(parts * density, z, axis=1), np.float64)


def _places(mean: float, sigma: float) -> NDArray[np.float64]:
    """Where the density is, and, where phi' is narrow, closer together where phi' is."""
    z = np.linspace(mean - 10, mean + 10, 20001)
    if sigma <= _NARROW:
        return z
    half = 100 / sigma  # phi' falls to exp(-100) there
    near = np.linspace(-half, half, 20001)
    return np.concatenate([z[z < -half], near, z[z > half]])


@dataclass(frozen=True)
class Bounds:
    r"""Functions of the mixture in theorem 2, without constants.

    Attributes:
        gamma: Gamma(Psi), (C.7).
        samples: B(Psi), how the sample complexity (4.7) depends on the mixture, (C.93).
        rate: q(Psi); steps shrink the distance by 1 - q / K^2, (4.9), (C.96).
        weights: E_w(Psi), of the distance to the teacher, (C.97).
        average: E(Psi), of the average risk, (C.98).
        groups: E_l(Psi), of the risk of each group, (C.99).
    """

    gamma: float
    samples: float
    rate: float
    weights: float
    average: float
    groups: tuple[float, ...]


def bounds(mixture: GaussianMixture, teacher: Tensor) -> Bounds:
    r"""Theorem 2's functions of a mixture and the teacher's weights [d, K].

    Raises:
        ValueError: Weights of a rank below K, of which nothing follows.

    Source:
        Li (2024), eqs. (C.7), (C.93) and (C.96) to (C.99). Of (C.93) and (C.96) the general case,
        with rho itself instead of the monotone functions below it.
    """
    _check_rank(teacher.detach())
    values = torch.linalg.svdvals(teacher.detach())
    kappa, eta = float(values[0] / values[-1]), float((values / values[-1]).prod())
    share, largest, smallest, size = _sizes(mixture)
    tau = float(largest.max() / smallest.min())
    scale = float(values[-1]) * smallest  # delta_K |Sigma^-1|^-1/2
    inside = (mixture.means.double() @ teacher.detach().double()) / scale[:, None]
    curved = share * smallest.square()
    curved = curved * torch.tensor([rho(u, float(s)) for u, s in zip(inside, scale, strict=True)])
    spread = float((share * size.square()).sum())
    flat = float(curved.sum())
    constant = tau ** teacher.size(1) * kappa**2 * eta
    gamma = flat / (constant * float(largest.max()) ** 2)
    samples = (
        (float(largest.max()) * float(values[0])) ** 2
        * tau**12
        * (flat / (eta * float(largest.max()) ** 2)) ** -2
        * shift(mixture, 12)
    )
    return Bounds(
        gamma, samples, flat / (constant * spread), spread**0.5 / flat, spread / flat,
        tuple((spread**0.5 * size / flat).tolist()),
    )  # fmt: skip


def _check_rank(teacher: Tensor) -> None:
    """Raise unless the columns are independent."""
    shape = tuple(teacher.shape)
    if teacher.dim() != 2 or not teacher.isfinite().all():
        raise ValueError(f"teacher: shape {shape}, expected finite weights [d, K]")
    rank = int(torch.linalg.matrix_rank(teacher))
    if not rank == shape[1] > 0:
        raise ValueError(f"teacher: shape {shape} of rank {rank}, expected rank K, at least 1")


def shift(mixture: GaussianMixture, power: int) -> float:
    r""":math:`D_m(\Psi) = \sum_l \lambda_l (\|\mu_l\| / \|\Sigma_l^{-1}\|^{-1/2} + 1)^m`.

    Source:
        Li (2024), eq. (C.8).
    """
    share, _, smallest, _ = _sizes(mixture)
    ratio = mixture.means.double().norm(dim=1) / smallest + 1
    return float((share * ratio**power).sum())


def _sizes(mixture: GaussianMixture) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    r"""lambda, :math:`\|\Sigma^{1/2}\|`, :math:`\|\Sigma^{-1}\|^{-1/2}`, |mu| + the second; [L]."""
    values = torch.linalg.eigvalsh(mixture.covariances.double()).sqrt()
    largest, smallest = values[:, -1], values[:, 0]
    return mixture.weights.double(), largest, smallest, mixture.means.double().norm(dim=1) + largest
