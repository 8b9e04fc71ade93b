"""What samplers share: a random choice of edges or nodes that keeps the mean of the weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from graphtheory.graph import Neighborhood
from graphtheory.patterns.base import Pattern
from graphtheory.patterns.draw import weighted


class Sampler(Pattern):
    """A random pattern that keeps some edges of the graph, with weights of the same mean.

    A subclass needs no more than a call; one that does not keep the mean replaces `expected`.
    """

    is_random: ClassVar[bool] = True

    def mask(self, base: Tensor) -> Tensor:
        """The edges that it may keep: all."""
        return base

    def expected(self, neighborhood: Neighborhood) -> Neighborhood | None:
        """The graph itself."""
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
        """S for a number of nodes.

        Raises:
            ValueError: If more nodes are asked for than exist, and they must be `distinct`.
        """
        size = self.count
        if size is None:
            size = max(1, round((0.5 if self.share is None else self.share) * nodes))
        if distinct and size > max(nodes, 1):
            raise ValueError(f"count: got {size}, expected at most the {nodes} sources there are")
        return size
