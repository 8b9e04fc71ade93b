"""Theorems 1 and 2 of Deep Fusion, on the data that they are about."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Generator, Tensor
from torch.nn.functional import normalize

from graphtheory.papers.fusion.data import Subspaces
from graphtheory.papers.fusion.integrity import cluster_integrity, fusion_weights
from graphtheory.papers.fusion.sharpness import growth_bound, noise_bounds, sharpness
from graphtheory.papers.study import Row, Step, Study
from graphtheory.patterns.draw import derive

Shape = tuple[int, int, int, int]
SHAPES: tuple[Shape, ...] = ((4, 2, 1, 2), (16, 3, 2, 8), (20, 4, 3, 8), (64, 10, 4, 16))
"""m, K, r and samples of a cluster; the first is the paper's example."""


@dataclass(frozen=True)
class SubspaceStudy(Study):
    """Attention with W* on clusters in subspaces, without noise and with.

    Attributes:
        shapes: m, K, r and samples of a cluster.
        noises: epsilon, above 0.
        seeds: Draws of subspaces and samples.
        first: The first seed.
        layers: Blocks whose sharpness is measured, where there is noise.
    """

    shapes: tuple[Shape, ...] = SHAPES
    noises: tuple[float, ...] = (1e-4, 1e-3, 1e-2, 0.05, 0.1, 0.2)
    seeds: int = 20
    first: int = 0
    layers: int = 3

    def steps(self) -> list[Step]:
        """Rows of kind "exact" (theorem 1) and "noisy" (theorem 2), one a draw."""
        made = [self._step("exact", shape, half, 0.0) for shape in self.shapes
                for half in (True, False)]  # fmt: skip
        noisy = [
            self._step("noisy", shape, True, noise)
            for shape in self.shapes
            for noise in self.noises
        ]
        return made + noisy

    def _step(self, kind: str, shape: Shape, half: bool, noise: float) -> Step:
        model = Subspaces(*shape, half, noise)
        seeds = list(range(self.first, self.first + self.seeds))
        settings = asdict(model) | {"kind": kind, "seeds": seeds, "layers": self.layers}

        def rows() -> list[Row]:
            found = exact if kind == "exact" else self._noisy
            return [
                asdict(model) | {"kind": kind, "seed": seed, **found(model, seed)} for seed in seeds
            ]

        return Step(f"{kind}, m, K, r, nu = {shape}, noise {noise:g}", settings, rows)

    def _noisy(self, model: Subspaces, seed: int) -> dict[str, Any]:
        """Sharpness block by block, with the W* of the clean samples.

        As in the proof of theorem 2: exp(A) without the softmax's row sums, no residual; samples
        are unit vectors again before the next block.
        """
        sample = model.sample(_generator(model, seed))
        try:
            found = fusion_weights(sample.clean, sample.y)
        except ValueError:
            return {"sharpness": [], "rho": 0.0, "separable": False, "bound": None}
        x, sharp = sample.x, []
        for _ in range(self.layers):
            seen = x @ found.weights
            attention = (seen @ seen.t()).exp()
            sharp.append(sharpness(attention, sample.y))
            x = normalize(attention @ x, dim=1)
        rho = float(found.rho.min())
        delta, kept, separable = noise_bounds(model.noise, min(rho, 1.0))
        bound = growth_bound(len(x), delta, kept)._asdict() if separable else None
        return {"sharpness": sharp, "rho": rho, "separable": separable, "bound": bound}


def exact(model: Subspaces, seed: int) -> dict[str, Any]:
    """What theorem 1 says of A = (X W*)(X W*)^T, and what is found.

    Where some cluster has its samples on both sides of every direction W* has the directions of the
    greedy search on |x^T u|, as the paper's definition would give them.

    Returns:
        `one_side`, whether every cluster has a direction with its samples on one side; `between`,
        the largest entry between clusters, absolute; `least`, the smallest entry within one;
        `ratio`, the smallest entry within a cluster over its nu rho'^2; `rho`, the least rho';
        `paper_rho`, the paper's rho by its search.
    """
    generator = _generator(model, seed)
    sample = model.sample(generator)
    x, y = sample.x, sample.y
    try:
        weights, rho = fusion_weights(x, y)
        one_side = True
    except ValueError:
        one_side = False
        greedy = cluster_integrity(x, y, generator, own=True)
        weights, rho = greedy.directions.t()[:, y], greedy.rho
    paper = cluster_integrity(x, y, generator)
    seen = x @ weights
    attention: Tensor = seen @ seen.t()
    same = y[:, None] == y
    bound = model.per_cluster * rho[y] ** 2
    ratio = (torch.where(same, attention, torch.inf).min(1).values / bound).min()
    return {
        "one_side": one_side, "between": float(attention[~same].abs().max()),
        "least": float(attention[same].min()), "ratio": float(ratio), "rho": float(rho.min()),
        "paper_rho": paper.least,
    }  # fmt: skip


def _generator(model: Subspaces, seed: int) -> Generator:
    return Generator().manual_seed(derive(seed, model.dim, model.clusters))
