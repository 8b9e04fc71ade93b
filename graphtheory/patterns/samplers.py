"""What samplers share: a random choice of edges or nodes that keeps the mean of the weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from graphtheory.graph import Neighborhood
from graphtheory.patterns.base import Pattern, Randomness
from graphtheory.patterns.draw import draw_device, first_of_each, scale_columns, weighted


class Sampler(Pattern):
    """A random pattern that keeps some edges of the graph, with weights of the same mean.

    A subclass needs no more than a call; one that does not keep the mean replaces `expected`.
    """

    is_random: ClassVar[bool] = True

    def mask(self, base: Tensor) -> Tensor:
        return base

    def expected(self, neighborhood: Neighborhood) -> Neighborhood | None:
        return weighted(neighborhood)


@dataclass(frozen=True)
class NodeSampler(Sampler):
    """A sampler that draws S nodes for the whole layer.

    Args:
        count: S, at least 1.
        share: S divided by the number of nodes instead, in (0, 1], rounded to at least one node.
            The default of both is half of the nodes.

    Raises:
        ValueError: If both sizes are given, or one is out of range.
    """

    count: int | None = None
    share: float | None = None

    def __post_init__(self) -> None:
        count, share = self.count, self.share
        if count is not None and share is not None:
            raise ValueError(
                f"count: got {count} together with share={share}, expected one of the two"
            )
        whole = isinstance(count, int) and not isinstance(count, bool)
        if count is not None and not (whole and count >= 1):
            raise ValueError(f"count: got {count!r}, expected a whole number of nodes, at least 1")
        number = isinstance(share, (int, float)) and not isinstance(share, bool)
        if share is not None and not (number and 0 < share <= 1):
            raise ValueError(f"share: got {share!r}, expected a share of the nodes, in (0, 1]")

    def size(self, nodes: int, *, distinct: bool = False) -> int:
        """S for a number of nodes; raises if it is above that and they must be `distinct`."""
        size = self.count
        if size is None:
            size = max(1, round((0.5 if self.share is None else self.share) * nodes))
        if distinct and size > max(nodes, 1):
            raise ValueError(f"count: got {size}, expected at most the {nodes} sources there are")
        return size


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

    def __call__(self, neighborhood: Neighborhood, *, generator: Randomness = None) -> Neighborhood:
        device = draw_device(generator, neighborhood)
        nodes = neighborhood.num_src
        if nodes == 0:
            return neighborhood
        size = self.size(nodes, distinct=True)
        one_group = torch.zeros(nodes, dtype=torch.int64, device=neighborhood.device)
        drawn = first_of_each(one_group, torch.tensor([size]), generator, device)
        return scale_columns(neighborhood, drawn.double() * (nodes / size))
