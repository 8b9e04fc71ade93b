"""A Gaussian mixture of features, and a network of one hidden layer whose mean is a probability."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import Generator, Tensor, nn

Teacher = Callable[[Tensor], Tensor]
"""x [n, d] -> P(y = 1 | x) [n]."""


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
    ) -> "GaussianMixture":
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

    def labeled(
        self, count: int, teacher: Teacher, generator: Generator
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Features [n, d], labels 0 or 1 [n] by P(y = 1 | x), eq. (4.1), and groups [n]."""
        x, group = self.sample(count, generator)
        coin = torch.rand(count, dtype=x.dtype, generator=generator)
        return x, (coin < teacher(x)).to(x), group

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


_TOGETHER = 2**17  # hidden units computed at a time: they stay in the processor's cache


class OneHidden(nn.Module):
    r"""T x S networks: S of them learn from the examples of each of T trials.

    .. math:: H(W, x) = \frac1K \sum_{j=1}^K \phi(w_j^\top x), \quad \phi(z) = 1 / (1 + e^{-z})

    H is the probability of the label 1.

    Args:
        weights: W at the start, which is copied.

    Shapes:
        - **weights:** [T, S, d, K].
        - **x:** [T, n, d].
        - **y:** 0 or 1, floating point [T, n].
        - **output:** [T, S, n].

    Source: Li (2024), eqs. (4.1) to (4.3), (C.71).
    """

    def __init__(self, weights: Tensor) -> None:
        super().__init__()
        self.W = nn.Parameter(weights.detach().clone())

    def forward(self, x: Tensor) -> Tensor:
        return self._hidden(x).mean(2)

    def risk(self, x: Tensor, y: Tensor) -> Tensor:
        """f_n(W) of each network, [T, S]: mean cross-entropy, eq. (4.2)."""
        known = self(x).clamp(min=_tiny(x), max=1 - _tiny(x))
        label = y[:, None].expand_as(known)
        return nn.functional.binary_cross_entropy(known, label, reduction="none").mean(2)

    @torch.no_grad()
    def gradient(self, x: Tensor, y: Tensor) -> Tensor:
        r"""Of `risk`, [T, S, d, K], without autograd.

        .. math:: \nabla_{w_j} f_n = -\frac1n \sum_i \frac1K
            \frac{y_i - H}{H (1 - H)}\, \phi'(w_j^\top x_i)\, x_i
        """
        total = torch.zeros_like(self.W)
        size = max(1, _TOGETHER * self.W.size(2) // self.W.numel())
        for some, labels in zip(x.split(size, 1), y.split(size, 1), strict=True):
            hidden = self._hidden(some)
            mean = hidden.mean(2)
            off = (mean - labels[:, None]) / (mean * (1 - mean)).clamp(min=_tiny(x))
            slope = torch.addcmul(hidden, hidden, hidden, value=-1).mul_(off[:, :, None])
            total += (slope.flatten(1, 2) @ some).unflatten(1, hidden.shape[1:3]).transpose(2, 3)
        return total / (x.size(1) * self.W.size(3))

    @torch.no_grad()
    def hessian(self, x: Tensor, y: Tensor) -> Tensor:
        r"""Of `risk`, [T, S, d K, d K], entries of W in the order of its memory.

        .. math:: \frac{\partial^2 f_n}{\partial w_j \partial w_l} = \frac1n \sum_i x_i x_i^\top
            \Big( \frac{\phi'_j \phi'_l}{K^2} \Big[ \frac{y_i}{H^2} + \frac{1 - y_i}{(1 - H)^2}
            \Big] - \delta_{jl} \frac{\phi''_j}{K} \frac{y_i - H}{H (1 - H)} \Big)

        Source: Li (2024), eqs. (C.72), (C.73).
        """
        trials, starts, dim, neurons = self.W.shape
        total = self.W.new_zeros(trials, starts, neurons, neurons, dim, dim)
        size = max(1, 8 * _TOGETHER // (trials * (starts * neurons**2 + dim**2)))
        for some, labels in zip(x.split(size, 1), y.split(size, 1), strict=True):
            factor = self._curvature(self._hidden(some), labels[:, None])
            pairs = (some[..., :, None] * some[..., None, :]).flatten(2)  # [T, n, d d]
            total += (factor.flatten(1, 3) @ pairs).view_as(total)
        order = total.permute(0, 1, 4, 2, 5, 3)  # [T, S, d, K, d, K]
        return order.reshape(trials, starts, dim * neurons, -1) / x.size(1)

    def _curvature(self, hidden: Tensor, y: Tensor) -> Tensor:
        """What x x^T is multiplied with, [T, S, K, K, n]; of labels [T, 1, n]."""
        neurons, mean = hidden.size(2), hidden.mean(2)
        slope = hidden * (1 - hidden)
        bend = slope * (1 - 2 * hidden)
        least = _tiny(hidden)
        surprise = (y - mean) / (mean * (1 - mean)).clamp(min=least)
        own = bend * (surprise / -neurons)[:, :, None]  # [T, S, K, n]
        pull = slope * (surprise.abs() / neurons)[:, :, None]  # (y - H)^2 is what (C.73) has above
        return (
            pull[:, :, :, None] * pull[:, :, None]
            + torch.eye(neurons).to(own)[..., None] * own[:, :, :, None]
        )

    def _hidden(self, x: Tensor) -> Tensor:
        """Activations of the neurons [T, S, K, n]."""
        rows = self.W.transpose(2, 3).flatten(1, 2)  # [T, S K, d]
        shape = (self.W.size(1), self.W.size(3))
        return (rows @ x.transpose(1, 2)).sigmoid().unflatten(1, shape)


def weight_error(weights: Tensor, teacher: Tensor) -> Tensor:
    r"""Distance of weights [..., d, K] to the nearest column permutation of the teacher's [d, K].

    .. math:: \min_P \|W - W^* P\|_F

    Infinite or NaN where weights are.
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
    r"""Mean cross-entropy of H over labels that the teacher H^* draws.

    .. math:: -H^* \log H - (1 - H^*) \log(1 - H)

    On features of one group it estimates (4.5), of the mixture (4.4), without the noise of labels;
    that of the teacher itself is the least that any network has.
    """
    least = torch.finfo(predicted.dtype).eps
    known = predicted.clamp(least, 1 - least)
    return -(true * known.log() + (1 - true) * (1 - known).log()).mean(-1)


def _tiny(x: Tensor) -> float:
    return torch.finfo(x.dtype).eps
