"""Uniform sampling of nodes of the whole graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from graphtheory.graph import Neighborhood
from graphtheory.patterns.draw import draw_device, first_of_each, scale_columns
from graphtheory.patterns.samplers import NodeSampler


@dataclass(frozen=True)
class UniformNodes(NodeSampler):
    r"""S of the N sources, uniformly without replacement; every row keeps those only.

    .. math:: A^s_{ij} = A_{ij}\, \frac NS \text{ if j was drawn, else } 0, \qquad E[A^s] = A

    Without sources nothing is drawn.

    Args:
        count: S, 1 to N nodes.
        share: S / N instead, in (0, 1], rounded to at least one node. The default of both is half
            of the nodes.

    Raises:
        ValueError: If both sizes are given, one is out of range, or more nodes are asked for than
            exist.
        TypeError: If `generator` is not a torch.Generator.

    Source:
        Li (2024), section 5.3.2 with one group and p* = 1.

    Example:
        >>> pair = Neighborhood.from_edge_index(torch.tensor([[0, 1], [1, 0]]), num_nodes=2)
        >>> UniformNodes(count=1)(pair, generator=torch.Generator().manual_seed(0)).weight.tolist()
        [2.0]
    """

    by_row: ClassVar[bool] = True

    def __call__(
        self, neighborhood: Neighborhood, *, generator: torch.Generator | None = None
    ) -> Neighborhood:
        """Draw."""
        device = draw_device(generator, neighborhood)
        nodes = neighborhood.num_src
        if nodes == 0:
            return neighborhood
        size = self.size(nodes, distinct=True)
        one_group = torch.zeros(nodes, dtype=torch.int64, device=neighborhood.device)
        drawn = first_of_each(one_group, torch.tensor([size]), generator, device)
        return scale_columns(neighborhood, drawn.double() * (nodes / size))
