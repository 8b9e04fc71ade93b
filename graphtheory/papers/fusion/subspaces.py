"""Classes on subspaces: samples of clusters, with noise and without."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
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

    @property
    def name(self) -> str:
        """The name in progress messages."""
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
