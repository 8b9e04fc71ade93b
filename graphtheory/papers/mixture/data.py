"""Data of a Gaussian mixture with a teacher."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Generator, Tensor

Teacher = Callable[[Tensor], Tensor]
"""x [n, d] -> P(y = 1 | x) [n]."""


class Labeled(NamedTuple):
    """Labeled examples drawn from a mixture."""

    x: Tensor  # features [n, d]
    y: Tensor  # labels 0 or 1, floating point [n]
    group: Tensor  # which Gaussian each x is drawn from, int64 [n]


@dataclass(frozen=True, eq=False)
class GaussianMixture:
    r"""A Gaussian mixture of L groups of features.

    .. math:: x \sim \sum_{l=1}^L \lambda_l \mathcal{N}(\mu_l, \Sigma_l)

    Group l is a minority where lambda_l < 1 / L. A weight may be 0: that group is then never drawn,
    but has a risk of its own.

    Source: Li (2024), section 4.3 and (C.3).
    """

    weights: Tensor  # lambda_l, 0 or more with sum 1 [L]
    means: Tensor  # mu_l [L, d]
    covariances: Tensor  # Sigma_l, symmetric and positive definite [L, d, d]

    def __post_init__(self) -> None:
        if self.means.dim() != 2:
            raise ValueError(f"means: shape {tuple(self.means.shape)}, expected [L, d]")
        groups, dim = self.means.shape
        for name, shape in (("weights", (groups,)), ("covariances", (groups, dim, dim))):
            given = tuple(getattr(self, name).shape)
            if given != shape:
                raise ValueError(f"{name}: shape {given}, expected {shape}, as means has it")
        total = float(self.weights.sum())
        if bool((self.weights < 0).any()) or not math.isclose(total, 1, abs_tol=1e-5):
            raise ValueError(f"weights: got {self.weights.tolist()}, expected 0 or more, sum 1")
        even = self.covariances.transpose(1, 2)
        if not torch.allclose(self.covariances, even) or bool(
            torch.linalg.cholesky_ex(self.covariances).info.any()
        ):
            raise ValueError("covariances: one is not symmetric and positive definite")

    @classmethod
    def isotropic(
        cls,
        weights: Sequence[float],
        means: Sequence[Sequence[float]],
        deviations: Sequence[float],
        dtype: torch.dtype = torch.float32,
    ) -> GaussianMixture:
        """Groups with Sigma_l = deviations[l]^2 I."""
        mu, sigma = torch.tensor(means, dtype=dtype), torch.tensor(deviations, dtype=dtype)
        eye = torch.eye(mu.size(1), dtype=dtype)
        return cls(torch.tensor(weights, dtype=dtype), mu, sigma.square()[:, None, None] * eye)

    @property
    def dim(self) -> int:
        """The number of features, d."""
        return self.means.size(1)

    @property
    def symmetric(self) -> bool:
        """Whether x and -x are equally likely, eq. (C.4): each group has a mirror image or is one.

        Of weights that several groups share only pairs of equal weight are found.
        """
        means, spread = self.means, self.covariances
        mirrored = (means[:, None] + means).abs().amax(2) < 1e-6
        alike = (spread[:, None] - spread).abs().amax((2, 3)) < 1e-6
        even = (self.weights[:, None] - self.weights).abs() < 1e-6
        return bool((mirrored & alike & even | (self.weights == 0)[:, None]).any(1).all())

    @property
    def step_bound(self) -> float:
        r""":math:`(\sum_l \lambda_l (\|\mu_l\|_\infty + \|\Sigma_l^{1/2}\|)^2)^{-1}`, without O().

        Source:
            Li (2024), algorithm 1. It writes mu with a tilde, which nothing defines; this is mu.
        """
        spread = torch.linalg.matrix_norm(self.covariances, 2).sqrt()
        size = self.means.abs().amax(1) + spread
        return 1 / float((self.weights * size.square()).sum())

    def sample(self, count: int, generator: Generator) -> tuple[Tensor, Tensor]:
        """Features [count, d] and the group of each [count]; ValueError for a count below 1."""
        if count < 1:
            raise ValueError(f"count: got {count}, expected at least 1")
        group = torch.multinomial(self.weights, count, replacement=True, generator=generator)
        x = torch.randn(count, self.dim, dtype=self.means.dtype, generator=generator)
        for index, factor in enumerate(torch.linalg.cholesky(self.covariances)):
            mine = group == index
            x[mine] = x[mine] @ factor.t() + self.means[index]
        return x, group

    def of_group(self, group: int, count: int, generator: Generator) -> Tensor:
        """Features [count, d] of one group, whatever its weight."""
        x = torch.randn(count, self.dim, dtype=self.means.dtype, generator=generator)
        return x @ torch.linalg.cholesky(self.covariances[group]).t() + self.means[group]

    def labeled(self, count: int, teacher: Teacher, generator: Generator) -> Labeled:
        """Draw features, and labels by P(y = 1 | x), eq. (4.1)."""
        x, group = self.sample(count, generator)
        coin = torch.rand(count, dtype=x.dtype, generator=generator)
        return Labeled(x, (coin < teacher(x)).to(x), group)

    def posterior(self, x: Tensor) -> Tensor:
        """P(group | x), [n, L]."""
        factor = torch.linalg.cholesky(self.covariances)
        off = (x - self.means[:, None]).transpose(1, 2)  # [L, d, n]
        square = torch.linalg.solve_triangular(factor, off, upper=False).square().sum(1)  # [L, n]
        half_log = factor.diagonal(dim1=1, dim2=2).log().sum(1)
        return (self.weights.log() - half_log - square.t() / 2).softmax(1)

    def slopes(self, x: Tensor) -> Tensor:
        r""":math:`\Sigma_l^{-1} (x - \mu_l)`, minus the gradient of each log density, [L, n, d]."""
        return (x - self.means[:, None]) @ torch.linalg.inv(self.covariances)
