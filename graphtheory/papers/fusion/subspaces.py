"""Classes on subspaces, and theorems 1 and 2: integrity, weights and sharpness of attention."""

from dataclasses import dataclass
from math import exp, expm1, inf, log, sqrt
from sys import float_info
from typing import NamedTuple

import numpy as np
import torch
from scipy.optimize import nnls
from torch import Generator, Tensor
from torch.nn.functional import normalize

from graphtheory.lab.train.contract import check_at_least, check_each


class SubspaceSample(NamedTuple):
    """Samples drawn from clusters, with their subspaces.

    Shapes: x and clean [n, m] unit vectors, with and without noise; y int64 [n], side by side;
        bases [K, m, r].
    """

    x: Tensor
    y: Tensor
    clean: Tensor
    bases: Tensor


@dataclass(frozen=True)
class Subspaces:
    r"""K subspaces of rank r in R^m, and unit vectors on them.

    .. math:: x_i = (1 - \epsilon) \bar x_i + \sqrt{1 - (1 - \epsilon)^2}\; g_i, \qquad
        \bar x_i \in U_{y_i}, \quad g_i \perp \bar x_i

    with unit vectors; the noise is as large as eq. (6) allows.

    Source: Li and Pimentel-Alarcon (2024), Deep Fusion, "One-Layer Fusion without Noise", eq. (6).
    """

    dim: int  # m
    clusters: int  # K, 2 or more
    rank: int  # r, with (K - 1) r < m
    per_cluster: int  # samples of each cluster
    # whether samples are turned so that all of a cluster lie on one side of a random vector that is
    # orthogonal to all other clusters: what theorem 1 needs and does not say
    half_space: bool = True
    noise: float = 0.0  # epsilon in [0, 1]

    def __post_init__(self) -> None:
        check_at_least(1, dim=self.dim, rank=self.rank, per_cluster=self.per_cluster)
        check_at_least(2, clusters=self.clusters)
        if (self.clusters - 1) * self.rank >= self.dim:
            raise ValueError(
                f"dim: got {self.dim}, expected above (clusters - 1) * rank = "
                f"{(self.clusters - 1) * self.rank}"
            )
        check_each("a number in [0, 1]", lambda value: 0 <= value <= 1, noise=self.noise)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """(m, K, r, nu), with nu samples per cluster."""
        return self.dim, self.clusters, self.rank, self.per_cluster

    def __str__(self) -> str:
        side = "" if self.half_space else ", no half-space"
        return f"(m, K, r, nu) = {self.shape}{side}, noise {self.noise:g}"

    def sample(self, generator: Generator) -> SubspaceSample:
        """Draw subspaces and samples, in float64."""
        shape = (self.clusters, self.dim, self.rank)
        drawn = torch.randn(shape, generator=generator, dtype=torch.float64)
        bases = torch.linalg.qr(drawn).Q
        y = torch.arange(self.clusters).repeat_interleave(self.per_cluster)
        inner = torch.randn(len(y), self.rank, 1, generator=generator, dtype=torch.float64)
        clean = normalize((bases[y] @ inner)[..., 0], dim=1)
        if self.half_space:
            sides = self._sides(bases, generator)
            clean = clean * torch.where((clean * sides[y]).sum(1, keepdim=True) < 0, -1.0, 1.0)
        return SubspaceSample(self._noisy(clean, generator), y, clean, bases)

    def _sides(self, bases: Tensor, generator: Generator) -> Tensor:
        """For each cluster a vector orthogonal to all others [K, m]."""
        sides = []
        for k in range(self.clusters):
            others = torch.cat([b for c, b in enumerate(bases) if c != k], 1)
            span = torch.linalg.qr(others).Q
            side = torch.randn(self.dim, generator=generator, dtype=torch.float64)
            sides.append(side - span @ (span.t() @ side))
        return torch.stack(sides)

    def _noisy(self, clean: Tensor, generator: Generator) -> Tensor:
        if self.noise == 0:
            return clean
        drawn = torch.randn(clean.shape, generator=generator, dtype=clean.dtype)
        across = normalize(drawn - (drawn * clean).sum(1, keepdim=True) * clean, dim=1)
        kept = 1 - self.noise
        return kept * clean + (1 - kept**2) ** 0.5 * across


_RANK_TOLERANCE = 1e-6  # of the largest singular value


class Integrity(NamedTuple):
    """How well each cluster is told apart."""

    rho: Tensor  # of each cluster [K], in 0..1
    directions: Tensor  # the unit vectors that reach it [K, m]


def cluster_integrity(
    x: Tensor,
    labels: Tensor,
    generator: Generator,
    *,
    own: bool = False,
    starts: int = 10,
    steps: int = 200,
    step_size: float = 0.1,
) -> Integrity:
    r"""Cluster integrity by the paper's greedy search, with the sign of its step corrected.

    .. math:: \rho_k = \max_{u \perp U_k} \min_{x_i \notin U_k} |x_i^\top u|, \qquad
        \rho'_k = \max_{u \perp U_c,\, c \ne k} \min_{x_i \in U_k} |x_i^\top u|

    The first is the paper's definition. The second, with `own`, is what theorem 1 needs: with more
    than two clusters a vector orthogonal to one cluster alone leaves the others in place. Samples x
    [n, m] are unit vectors, labels int64 [n] their clusters. A cluster whose complement is empty
    has rho 0.

    A search from several first u, so a lower bound; the paper has one, which often stays far below.
    Each of T = `steps` steps of size alpha moves u towards the sample with the least |x^T
    u|, by the sign of x^T u; the paper moves by +x, which for a negative product makes the least
    one smaller. All steps are taken: the tolerance of the paper is 0.

    Source: Li and Pimentel-Alarcon (2024), definition 1 and algorithm 1.
    """
    check_each("at least 1", lambda value: value >= 1, starts=starts)
    bases = _bases(x, labels)
    found = []
    for k in bases:
        mine = labels == k
        barred = torch.cat([basis for c, basis in bases.items() if c != k], 1) if own else bases[k]
        seen = x[mine] if own else x[~mine]
        u = torch.randn(x.size(1), starts, generator=generator, dtype=x.dtype)
        found.append(_search(seen, _orthonormal(barred), u, steps, step_size))
    rho, directions = zip(*found, strict=True)
    return Integrity(torch.tensor(rho, dtype=x.dtype), torch.stack(directions))


def _search(
    samples: Tensor, barred: Tensor, u: Tensor, steps: int, step_size: float
) -> tuple[float, Tensor]:
    """The best least product found, and its u; `barred` is an orthonormal basis [m, r]."""
    best, direction = u.new_zeros(u.size(1)), torch.zeros_like(u)
    for _ in range(steps):
        u = u - barred @ (barred.t() @ u)
        length = u.norm(dim=0)
        if float(length.max()) < _RANK_TOLERANCE:
            break
        u = u / length.clamp(min=_RANK_TOLERANCE)
        product = samples @ u
        value, nearest = product.abs().min(0)
        better = value > best
        best, direction = torch.where(better, value, best), torch.where(better, u, direction)
        sign = torch.where(product.gather(0, nearest[None])[0] < 0, -1.0, 1.0)
        u = u + step_size * sign * samples[nearest].t()
    top = best.argmax()
    return float(best[top]), direction[:, top]


class FusionWeights(NamedTuple):
    """The weights W* of theorem 1."""

    weights: Tensor  # [m, n]; column j is the direction of the cluster of sample j
    rho: Tensor  # the signed rho' of each cluster [K]: min over its samples of x^T w


def fusion_weights(x: Tensor, labels: Tensor) -> FusionWeights:
    r"""W_Q = W_K = W* that makes the attention :math:`(XW)(XW)^\top` block-diagonal.

    .. math:: w_k = \arg\max_{|w| = 1,\, w \perp U_c,\, c \ne k}\; \min_{x_i \in U_k} x_i^\top w

    Then entries between clusters are 0, and entries within cluster k, of nu samples, are at least
    nu rho'^2. That takes what the paper does not state: all samples of a cluster on one side of a
    w. Solved exactly, as a least-distance problem, for unit vectors x [n, m] of clusters int64 [n].

    Source: Li and Pimentel-Alarcon (2024), theorem 1 and its proof. Differs: the sign condition;
        rho' in place of rho. Lawson and Hanson (1974), chapter 23, least distance programming.
    """
    bases = _bases(x, labels)
    directions, rho = {}, []
    for k in bases:
        barred = _orthonormal(torch.cat([basis for c, basis in bases.items() if c != k], 1))
        w = _one_side((x[labels == k] - (x[labels == k] @ barred) @ barred.t()).double())
        if w is None:
            raise ValueError(
                f"x: no direction orthogonal to the other clusters has all samples of cluster {k} "
                "on one side, which theorem 1 needs"
            )
        directions[k] = w.to(x.dtype)
        rho.append(float((x[labels == k] @ directions[k]).min()))
    columns = torch.stack([directions[int(k)] for k in labels], 1)
    return FusionWeights(columns, torch.tensor(rho, dtype=x.dtype))


def _one_side(samples: Tensor) -> Tensor | None:
    """The unit w of largest least product, by its dual with a >= 0; None where none is positive."""
    count, dim = samples.shape
    system = np.vstack([samples.t().numpy(), np.ones(count)])
    a, residual = nnls(system, np.append(np.zeros(dim), 1.0), maxiter=30 * count)
    if residual < 1e-7:
        return None
    rest = system @ a - np.append(np.zeros(dim), 1.0)
    w = torch.from_numpy(-rest[:-1] / rest[-1])
    return None if float(w.norm()) == 0 else w / w.norm()


def _bases(x: Tensor, labels: Tensor) -> dict[int, Tensor]:
    """Cluster -> orthonormal basis of its samples [m, r]."""
    if x.dim() != 2 or labels.shape != x.shape[:1]:
        raise ValueError(f"x: shape {tuple(x.shape)}, expected [n, m] for {tuple(labels.shape)}")
    clusters = [int(k) for k in labels.unique()]
    if len(clusters) < 2:
        raise ValueError(f"labels: {len(clusters)} clusters, expected two or more")
    return {k: _orthonormal(x[labels == k].t()) for k in clusters}


def _orthonormal(vectors: Tensor) -> Tensor:
    """Basis of the columns' span [m, r]."""
    u, s, _ = torch.linalg.svd(vectors, full_matrices=False)
    return u[:, s > _RANK_TOLERANCE * s.max()]


def sharpness(attention: Tensor, labels: Tensor) -> float:
    r"""The least attention within a class over the largest between two classes.

    .. math:: S(A) = \frac{\min_{i \ne j,\, y_i = y_j} A_{ij}}{\max_{y_p \ne y_q} A_{pq}}

    Infinity where nothing passes between classes and something within each; 0 where a pair of a
    class has nothing. One pair decides it, so noise in a single entry does. Weights, 0 or more, are
    [..., B, B], where leading axes, such as heads, count as more pairs, labels int64 [B].

    Source: Li and Pimentel-Alarcon (2024), definition 2, which does not say whether i = j counts.
    """
    within, between = _pairs(attention, labels)
    least, most = float(attention[..., within].min()), float(attention[..., between].max())
    return least / most if most > 0 else (inf if least > 0 else 0.0)


def sharpness_of_means(attention: Tensor, labels: Tensor) -> float:
    """The mean attention within a class, diagonal left out, over the mean between classes.

    1 where attention does not see the classes; unlike `sharpness` no single pair decides it.
    Arguments and errors as there, but entries may be negative.
    """
    within, between = _pairs(attention, labels, negative=True)
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


def _pairs(attention: Tensor, labels: Tensor, *, negative: bool = False) -> tuple[Tensor, Tensor]:
    """Pairs of one class, and of two, Bool [B, B]; `negative` says whether entries may be."""
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
    if not negative and float(attention.min()) < 0:
        raise ValueError("attention: negative entries, expected weights of 0 or more")
    return within, ~same
