"""Nodes that are near in the order of nodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from graphtheory.graph import Neighborhood
from graphtheory.patterns.added import check_sizes, graphs_of
from graphtheory.patterns.base import Pattern, require_square


@dataclass(frozen=True)
class Window(Pattern):
    r"""Nodes at most `size` positions away: :math:`T^n = \{s : |s - n| \le w\}` of the same graph.

    The given edges do not matter. The node itself belongs to its window.

    Args:
        size: Positions w to either side, 0 or more.
        sizes: Nodes of each graph of a batch, which no window leaves; None is one graph.

    Raises:
        ValueError: If `size` is negative, or `sizes` does not sum to the number of nodes.

    Source:
        Beltagy et al. (2020), Longformer, section 3.1, sliding window.

    Example:
        >>> none = Neighborhood.from_edge_index(torch.zeros(2, 0, dtype=torch.int64), num_nodes=3)
        >>> Window(1)(none).edge_index().tolist()
        [[0, 1, 0, 1, 2, 1, 2], [0, 0, 1, 1, 1, 2, 2]]
    """

    size: int = 1
    sizes: tuple[int, ...] | None = None
    by_position: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not isinstance(self.size, int) or self.size < 0:
            raise ValueError(f"size: got {self.size!r}, expected a number of positions, 0 or more")
        check_sizes(self.sizes)

    def __call__(
        self, neighborhood: Neighborhood, *, generator: torch.Generator | None = None
    ) -> Neighborhood:
        """The windows of all nodes."""
        nodes, device = require_square(neighborhood, "Window"), neighborhood.device
        first, end = graphs_of(self.sizes, nodes, device)
        node = torch.arange(nodes, device=device)
        low = torch.maximum(first, node - self.size)
        count = torch.minimum(end, node + self.size + 1) - low
        indptr = torch.cat([count.new_zeros(1), count.cumsum(0)])
        total = int(indptr[-1])
        start = (low - indptr[:-1]).repeat_interleave(count, output_size=total)
        sources = torch.arange(total, device=device) + start
        return Neighborhood(indptr, sources, nodes, validate=False)

    def mask(self, base: Tensor) -> Tensor:
        """Positions that differ by `size` or less, in the same graph."""
        node = torch.arange(len(base))
        near = (node[:, None] - node).abs() <= self.size
        if self.sizes is None:
            return near
        graph = node.new_tensor([g for g, n in enumerate(self.sizes) for _ in range(n)])
        return near & (graph[:, None] == graph)
