"""Weights of the GCN: the symmetrically normalised adjacency."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from graphtheory.graph import Neighborhood
from graphtheory.patterns.base import Pattern, require_square


@dataclass(frozen=True)
class SymmetricNormalize(Pattern):
    r"""The same edges with weights :math:`w_{ij} / \sqrt{d_i d_j}`, d the weighted in-degree.

    `Compose(AddSelf(), SymmetricNormalize())` gives the propagation matrix of the GCN. A node of
    degree 0 gets weight 0 on its edges.

    Example:
        >>> pair = Neighborhood.from_edge_index(torch.tensor([[0, 1], [1, 0]]), num_nodes=2)
        >>> SymmetricNormalize()(pair).weight.tolist()
        [1.0, 1.0]
    """

    def __call__(
        self, neighborhood: Neighborhood, *, generator: torch.Generator | None = None
    ) -> Neighborhood:
        """Attach the weights."""
        nodes = require_square(neighborhood, "SymmetricNormalize")
        rows, senders = neighborhood.receivers(), neighborhood.indices
        weight = neighborhood.weight
        if weight is None:
            weight = torch.ones(neighborhood.num_edges, device=neighborhood.device)
        degree = weight.new_zeros(nodes).index_add(0, rows, weight)
        root = torch.where(degree > 0, degree, torch.inf).rsqrt()
        return neighborhood.replace(weight=weight * root[rows] * root[senders])

    def mask(self, base: Tensor) -> Tensor:
        """Unchanged."""
        return base
