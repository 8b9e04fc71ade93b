"""A node that is linked with all nodes of its graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from graphtheory.graph import Neighborhood
from graphtheory.patterns.added import check_sizes, graphs_of, with_edges
from graphtheory.patterns.base import Pattern, require_square


@dataclass(frozen=True)
class VirtualNode(Pattern):
    """The last node of each graph exchanges with all nodes of its graph, itself included.

    Other edges stay. Added edges have weight 1 and the distance `graph.TOKEN`, where the
    neighborhood has weights or distances. `graph.GraphTokens` appends such a node to each graph.

    Args:
        sizes: Nodes of each graph of a batch, the virtual node included; None is one graph.

    Raises:
        ValueError: If `sizes` is no tuple of counts or does not sum to the number of nodes.

    Source:
        Gilmer et al. (2017), section 5.2; Shirzad et al. (2023), Exphormer, section 3.2.

    Example:
        >>> pair = Neighborhood.from_edge_index(torch.tensor([[0], [1]]), num_nodes=3)
        >>> VirtualNode()(pair).edge_index().tolist()
        [[2, 0, 2, 0, 1, 2], [0, 1, 1, 2, 2, 2]]
    """

    sizes: tuple[int, ...] | None = None
    by_position: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_sizes(self.sizes)

    def __call__(
        self, neighborhood: Neighborhood, *, generator: torch.Generator | None = None
    ) -> Neighborhood:
        """Add the edges that are missing."""
        nodes = require_square(neighborhood, "VirtualNode")
        node = torch.arange(nodes, device=neighborhood.device)
        last = graphs_of(self.sizes, nodes, neighborhood.device)[1] - 1
        into, out = torch.stack([node, last]), torch.stack([last, node])
        return with_edges(neighborhood, torch.cat([into, out], 1))

    def mask(self, base: Tensor) -> Tensor:
        """Row and column of the last node of each graph, within the graph."""
        out, first = base.clone(), 0
        for size in (len(base),) if self.sizes is None else self.sizes:
            if size:
                out[first + size - 1, first : first + size] = True
                out[first : first + size, first + size - 1] = True
            first += size
        return out
