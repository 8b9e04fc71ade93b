"""Clusters in low-dimensional subspaces: the data model of Deep Fusion's theorems."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Generator, Tensor
from torch.nn.functional import normalize


class SubspaceSample(NamedTuple):
    """Samples of clusters.

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

    Example:
        >>> sample = Subspaces(4, 2, 1, 2).sample(Generator().manual_seed(0))
        >>> sample.x.shape, sample.y.tolist()
        (torch.Size([4, 4]), [0, 0, 1, 1])
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
        least = {"dim": 1, "clusters": 2, "rank": 1, "per_cluster": 1}
        for name, low in least.items():
            if getattr(self, name) < low:
                raise ValueError(f"{name}: got {getattr(self, name)}, expected {low} or more")
        if (self.clusters - 1) * self.rank >= self.dim:
            raise ValueError(
                f"dim: got {self.dim}, expected above (clusters - 1) * rank = "
                f"{(self.clusters - 1) * self.rank}"
            )
        if not 0 <= self.noise <= 1:
            raise ValueError(f"noise: got {self.noise}, expected a number in [0, 1]")

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """(m, K, r, nu), with nu samples per cluster."""
        return self.dim, self.clusters, self.rank, self.per_cluster

    @property
    def name(self) -> str:
        """In progress."""
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
