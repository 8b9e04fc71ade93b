"""Nodes at every step-th distance."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from graphtheory.graph import Neighborhood
from graphtheory.patterns.base import Pattern
from graphtheory.patterns.hops import AtDistance, check_hops
from graphtheory.structure import hop_ball


@dataclass(frozen=True)
class DilatedHops(Pattern):
    r"""Nodes at d, 2d, ... hops, up to k: a ball with gaps, as a dilated convolution has them.

    .. math:: T^n = \{s : \mathrm{hops}(s \to n) \in \{d, 2d, \dots, \lfloor k / d \rfloor d\}\}

    The node itself is left out (add it with `AddSelf`); duplicate edges become one, and weights are
    dropped. A node that has none at these distances has an empty row. The result carries distances.
    ``DilatedHops(k, 1)`` is `KHop(k)`, ``DilatedHops(k, k)`` is `AtDistance(k)`.

    Args:
        hops: Largest distance k, 1..254 hops; where it is no multiple of `step`, the next smaller
            multiple is the largest distance.
        step: Hops d from one distance to the next, 1..hops.

    Shapes:
        From a neighborhood [N, N] the call makes one [N, N], whose `.distance` is uint8 [E].

    Raises:
        ValueError: If `hops` or `step` is not an integer in its range; in the call, if sources and
            targets are different nodes.
        MemoryError: In the call, if the ball of `hops` does not fit into the available memory.

    Source:
        Ours: what a dilated convolution is over positions, over hops.

    Example:
        >>> edge_index = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 4]])
        >>> path = Neighborhood.from_edge_index(edge_index, num_nodes=5)
        >>> even = DilatedHops(4, 2)(path)
        >>> even.edge_index().tolist(), even.distance.tolist()
        ([[0, 1, 0, 2], [2, 3, 4, 4]], [2, 2, 4, 2])
    """

    hops: int = 4
    step: int = 2

    def __post_init__(self) -> None:
        check_hops("hops", self.hops, 1)
        check_hops("step", self.step, 1, self.hops)

    def __call__(
        self, neighborhood: Neighborhood, *, generator: torch.Generator | None = None
    ) -> Neighborhood:
        """The nodes at these distances."""
        return self._around(neighborhood)

    def on_rows(
        self, graph: Neighborhood, targets: Tensor, *, generator: torch.Generator | None = None
    ) -> Neighborhood:
        """The nodes at these distances from those nodes."""
        return self._around(graph, targets)

    def _around(self, graph: Neighborhood, targets: Tensor | None = None) -> Neighborhood:
        last = self.hops - self.hops % self.step  # no search beyond the last distance
        ball, distance = hop_ball(graph, last, inner=self.step, targets=targets)
        return ball.keep(distance % self.step == 0)

    def mask(self, base: Tensor) -> Tensor:
        """The rings at these distances together."""
        mask = torch.zeros_like(base)
        for z in range(self.step, self.hops + 1, self.step):
            mask |= AtDistance(z).mask(base)
        return mask
