"""The start of a network that tensors of a Gaussian mixture's moments give."""

from dataclasses import dataclass

import numpy as np
import torch
from scipy.linalg import eig
from scipy.optimize import brentq
from torch import Generator, Tensor

from graphtheory.lab.train.contract import check_each
from graphtheory.papers.mixture.model import GaussianMixture

_GRID = 101  # magnitudes that are looked at, of which the root lies between two


@dataclass(frozen=True)
class TensorInit:
    r"""Subroutine 1: directions from a decomposed tensor, magnitudes from the first moment.

    .. math:: Q_j = E[y\,(-1)^j p^{-1}(x) \nabla^{(j)} p(x)]
        = \frac1K \sum_i E[\phi^{(j)}(w_i^\top x)]\, w_i^{\otimes j}

    The subspace U is spanned by the K eigenvectors of largest absolute eigenvalue of Q_2, or of
    Q_3(I, I, alpha) for a symmetric mixture; R_3 = Q_3(U, U, U) is decomposed; (C.5) fits Q_1.

    Source: Li (2024), subroutine 1, (C.2) to (C.5). `printed` is the printed method, but for its
        decomposition: Kuleshov et al. (2015) diagonalize many contractions together, here each pair
        gives generalized eigenvectors.
    """

    neurons: int  # K
    # take y less its mean, which leaves every Q_j as it is and has less noise
    centered: bool = True
    shared: bool = True  # estimate all three from all examples instead of from a third of them each
    # the direction of Q_1, far better known than the others, is one of those that span U, and is
    # alpha, which otherwise is drawn
    with_mean: bool = True
    # U from Q_3 whatever the mixture is; None where it is symmetric. Q_2 is small, too, where it is
    # nearly so.
    third: bool | None = None
    # (C.5) finds |w_j| E[phi'(w_j^T x)] / K, as Q_1 says, and not the magnitude that subroutine 1
    # takes it for; solve for |w_j| as well. Where features have a mean along w_j, two magnitudes
    # may solve it; the smaller is taken.
    rescaled: bool = True
    tries: int = 30  # pairs of random contractions, of which the one that fits R_3 best is taken

    def __post_init__(self) -> None:
        sizes = {"neurons": self.neurons, "tries": self.tries}
        check_each("at least 1", lambda value: value >= 1, **sizes)

    @classmethod
    def printed(cls, neurons: int) -> "TensorInit":
        """Without what is added here."""
        return cls(neurons, centered=False, shared=False, with_mean=False, rescaled=False)

    def __call__(
        self, density: GaussianMixture, x: Tensor, y: Tensor, generator: Generator
    ) -> Tensor:
        """W_0 [d, K] from features [n, d] and labels 0 or 1 [n]."""
        if self.neurons > x.size(1):
            raise ValueError(f"neurons: got {self.neurons}, expected at most d = {x.size(1)}")
        label = y - y.mean() if self.centered else y
        parts = [(x, label)] * 3
        if not self.shared:
            parts = list(zip(x.tensor_split(3), label.tensor_split(3), strict=True))
        moment = first(density, *parts[2])
        basis = self._subspace(density, *parts[0], moment, generator)
        found = directions(third(density, *parts[1], basis), generator, self.tries)
        return self._scaled(basis @ found.to(basis), moment, parts[2][0])

    def _subspace(
        self, density: GaussianMixture, x: Tensor, y: Tensor, moment: Tensor, generator: Generator
    ) -> Tensor:
        """An orthonormal basis U, [d, K]."""
        if density.symmetric if self.third is None else self.third:
            alpha = torch.randn(x.size(1), dtype=x.dtype, generator=generator)
            matrix = third_along(density, x, y, moment if self.with_mean else alpha)
        else:
            matrix = second(density, x, y)
        values, vectors = torch.linalg.eigh(matrix)
        best = vectors[:, values.abs().argsort(descending=True)]
        if self.with_mean:
            best = torch.cat([moment[:, None], best], 1)
        return torch.linalg.qr(best[:, : self.neurons])[0]

    def _scaled(self, direction: Tensor, moment: Tensor, x: Tensor) -> Tensor:
        """Unit columns [d, K] times their magnitudes."""
        size = torch.linalg.lstsq(direction, moment[:, None]).solution[:, 0]
        if self.rescaled:
            wanted = (self.neurons * size).tolist()
            size = size.new_tensor(
                [_magnitude(x @ w, a) for w, a in zip(direction.t(), wanted, strict=True)]
            )
        return direction * size


def first(density: GaussianMixture, x: Tensor, y: Tensor) -> Tensor:
    """Estimate the first moment Q_1, [d]."""
    weight = (y[:, None] * density.posterior(x)).t()[:, None]  # [L, 1, n]
    return (weight @ density.slopes(x)).sum((0, 1)) / len(x)


def second(density: GaussianMixture, x: Tensor, y: Tensor) -> Tensor:
    """Estimate of Q_2, [d, d]."""
    weight, slope = y[:, None] * density.posterior(x), density.slopes(x)
    inverse = torch.linalg.inv(density.covariances)
    total = (slope * weight.t()[..., None]).transpose(1, 2) @ slope
    return (total / len(x) - weight.mean(0)[:, None, None] * inverse).sum(0)


def third_along(density: GaussianMixture, x: Tensor, y: Tensor, alpha: Tensor) -> Tensor:
    """Estimate of Q_3(I, I, alpha), [d, d]."""
    weight, slope = (y[:, None] * density.posterior(x)).t()[..., None], density.slopes(x)
    along = (slope @ alpha)[..., None]  # [L, n, 1]
    inverse = torch.linalg.inv(density.covariances)
    total = (slope * weight * along).transpose(1, 2) @ slope / len(x)
    mean, own = (slope * weight).mean(1), (along * weight).mean(1)[..., None]
    cross = mean[:, :, None] * (inverse @ alpha)[:, None]  # [L, d, d]
    return (total - own * inverse - cross - cross.transpose(1, 2)).sum(0)


def third(density: GaussianMixture, x: Tensor, y: Tensor, basis: Tensor) -> Tensor:
    """Estimate of Q_3(U, U, U), [K, K, K]."""
    weight = (y[:, None] * density.posterior(x)).t()[..., None]
    slope = density.slopes(x) @ basis  # [L, n, K]
    inverse = basis.t() @ torch.linalg.inv(density.covariances) @ basis
    pairs = (slope[..., :, None] * slope[..., None, :]).flatten(2)
    total = ((slope * weight).transpose(1, 2) @ pairs).unflatten(2, inverse.shape[1:]) / len(x)
    cross = (slope * weight).mean(1)[:, :, None, None] * inverse[:, None]  # [L, K, K, K]
    return (total - cross - cross.permute(0, 2, 1, 3) - cross.permute(0, 3, 2, 1)).sum(0)


def directions(tensor: Tensor, generator: Generator, tries: int = 30) -> Tensor:
    r"""Unit columns v_j [K, K] of a symmetric tensor :math:`\sum_j c_j v_j^{\otimes 3}`.

    Two random contractions are V D V^T and V D' V^T: with generalized eigenvectors x_j of the pair
    v_j is along V D' V^T x_j. Signs and order of the columns are arbitrary.
    """
    cube, best, found = tensor.double().numpy(), np.inf, np.eye(len(tensor))
    for _ in range(tries):
        left, right = np.einsum(
            "ijk,ka->aij", cube, torch.randn(len(cube), 2, generator=generator).double().numpy()
        )
        columns = (right @ eig(left, right)[1]).real
        norm = np.linalg.norm(columns, axis=0)
        if not np.isfinite(norm).all() or norm.min() == 0:
            continue  # the contraction was singular
        unit = columns / norm
        cubes = np.einsum("ia,ja,ka->ijka", unit, unit, unit).reshape(-1, len(unit))
        fit = np.linalg.lstsq(cubes, cube.reshape(-1), rcond=None)[0]
        residual = float(np.linalg.norm(cube.reshape(-1) - cubes @ fit))
        if residual < best:
            best, found = residual, unit
    return torch.from_numpy(found)


def _magnitude(along: Tensor, wanted: float) -> float:
    """The smallest z with z E[phi'(z w^T x / |w|)] = |wanted|, else the best; signed as wanted."""

    def excess(z: float) -> float:
        half = (z * along / 2).cosh()
        return float(z * (1 / (4 * half.square())).mean()) - abs(wanted)

    grid = np.linspace(0.0, 10 / float(along.square().mean().sqrt()), _GRID).tolist()
    found = np.array([excess(z) for z in grid])
    first = int((found >= 0).argmax())
    if found[first] < 0:
        return float(np.copysign(grid[int(found.argmax())], wanted))
    once = bool((found[first:] >= 0).all())  # then the whole range has one root
    return float(np.copysign(brentq(excess, 0.0, grid[-1 if once else first]), wanted))
