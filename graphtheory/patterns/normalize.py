"""Weights of the GCN, the symmetrically normalized adjacency, and those of a mean."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from graphtheory.graph import Neighborhood
from graphtheory.patterns.base import Pattern, require_square
from graphtheory.patterns.draw import edge_weight


@dataclass(frozen=True)
class SymmetricNormalize(Pattern):
    r"""The same edges with weights :math:`w_{ij} / \sqrt{d_i d_j}`; d is the weighted in-degree.

    `Compose(AddSelf(), SymmetricNormalize())` gives the propagation matrix of the GCN. Edges of a
    node with degree 0 get weight 0.

    Example:
        >>> pair = Neighborhood.from_edge_index(torch.tensor([[0, 1], [1, 0]]), num_nodes=2)
        >>> SymmetricNormalize()(pair).weight.tolist()
        [1.0, 1.0]
    """

    def __call__(
        self, neighborhood: Neighborhood, *, generator: torch.Generator | None = None
    ) -> Neighborhood:
        """Compute the weights."""
        nodes = require_square(neighborhood, "SymmetricNormalize")
        rows, sources = neighborhood.targets(), neighborhood.indices
        weight = edge_weight(neighborhood)
        degree = weight.new_zeros(nodes).index_add(0, rows, weight)
        root = torch.where(degree > 0, degree, torch.inf).rsqrt()
        return neighborhood.replace(weight=weight * root[rows] * root[sources])

    def mask(self, base: Tensor) -> Tensor:
        """Unchanged."""
        return base


@dataclass(frozen=True)
class MeanNormalize(Pattern):
    r"""The same edges with weights :math:`w_{ij} / d_i`, whose sum is the mean over T^i.

    d is the weighted in-degree; edges of a node with degree 0 get weight 0.

    Example:
        >>> star = Neighborhood.from_edge_index(torch.tensor([[1, 2], [0, 0]]), num_nodes=3)
        >>> MeanNormalize()(star).weight.tolist()
        [0.5, 0.5]
    """

    def __call__(
        self, neighborhood: Neighborhood, *, generator: torch.Generator | None = None
    ) -> Neighborhood:
        """Compute the weights."""
        rows, weight = neighborhood.targets(), edge_weight(neighborhood)
        degree = weight.new_zeros(neighborhood.num_dst).index_add(0, rows, weight)
        return neighborhood.replace(weight=torch.where(degree > 0, 1 / degree, 0)[rows] * weight)

    def mask(self, base: Tensor) -> Tensor:
        """Unchanged."""
        return base
