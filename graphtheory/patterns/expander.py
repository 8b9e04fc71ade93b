"""Random regular edges beside the given ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from graphtheory.graph import Neighborhood
from graphtheory.patterns.added import check_sizes, graphs_of, with_edges
from graphtheory.patterns.base import Pattern, require_square
from graphtheory.patterns.draw import draw_device
from graphtheory.structure import UNREACHABLE


@dataclass(frozen=True)
class Expander(Pattern):
    r"""A random graph of even degree d on the nodes, added to the given edges.

    .. math:: n \leftrightarrow \pi_k(n), \qquad k = 1, \dots, d / 2

    with uniform permutations of the nodes of each graph, drawn again on every call: with high
    probability every node is within O(log N) such edges of every other. Loops and pairs that are
    drawn twice or given are left out, so a node gains at most d sources. Added edges have weight 1
    and, where the neighborhood has distances, distance `UNREACHABLE`: they lead anywhere.
    ``Compose(KHop(1), AddSelf(), Expander(4), VirtualNode())`` is Exphormer's pattern.

    Args:
        degree: d, even, 2 or more.
        sizes: Nodes of each graph of a batch, whose nodes are not linked with those of others; None
            is one graph.

    Raises:
        ValueError: If `degree` is not even, or `sizes` does not sum to the number of nodes.

    Source:
        Shirzad et al. (2023), Exphormer: sparse transformers for graphs, section 3.2 and appendix
        C, after Friedman (2003). Differs: no draw is rejected for its spectral gap.

    Example:
        >>> none = Neighborhood.from_edge_index(torch.zeros(2, 0, dtype=torch.int64), num_nodes=9)
        >>> drawn = Expander(4)(none, generator=torch.Generator().manual_seed(0))
        >>> int(drawn.degree().max()) <= 4
        True
    """

    degree: int = 4
    sizes: tuple[int, ...] | None = None
    is_random: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not isinstance(self.degree, int) or self.degree < 2 or self.degree % 2:
            raise ValueError(f"degree: got {self.degree!r}, expected an even number, 2 or more")
        check_sizes(self.sizes)

    def __call__(
        self, neighborhood: Neighborhood, *, generator: torch.Generator | None = None
    ) -> Neighborhood:
        """Draw the permutations."""
        nodes = require_square(neighborhood, "Expander")
        source, device = draw_device(generator, neighborhood), neighborhood.device
        first = graphs_of(self.sizes, nodes, device)[0]
        shape = self.degree // 2, nodes
        draw = torch.rand(shape, generator=generator, dtype=torch.float64, device=source).to(device)
        # Keys of a later graph are larger, so that each graph is permuted by itself.
        order = (first + draw).argsort(1)
        node = torch.arange(nodes, device=device).expand(shape)
        pairs = torch.stack([node.flatten(), order.flatten()])
        pairs = pairs[:, pairs[0] != pairs[1]]
        return with_edges(neighborhood, torch.cat([pairs, pairs.flip(0)], 1), UNREACHABLE)

    def mask(self, base: Tensor) -> Tensor:
        """The given edges, and all pairs of different nodes of a graph."""
        node = torch.arange(len(base))
        sizes = (len(base),) if self.sizes is None else self.sizes
        graph = node.new_tensor([g for g, n in enumerate(sizes) for _ in range(n)])
        return base | ((graph[:, None] == graph) & (node[:, None] != node))
