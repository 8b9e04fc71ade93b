"""Neighborhoods by distance: all nodes within k hops, or exactly z hops away."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from graphtheory.graph import Neighborhood
from graphtheory.patterns.base import Pattern
from graphtheory.structure import at_distance, hop_ball


def check_hops(name: str, value: int, low: int, high: int = 254) -> None:
    """Raise ValueError unless `value` is a whole number of hops in low..high."""
    whole = hasattr(value, "__index__") and not isinstance(value, bool)
    if not whole or not low <= value <= high:
        raise ValueError(f"{name}: got {value!r}, expected {low}..{high} hops")


def _reach(base: Tensor, hops: int) -> Tensor:
    """Bool [n, n]: whether a walk of at most `hops` edges leads from column to row."""
    reach = torch.eye(base.size(0), dtype=torch.bool)
    for _ in range(hops):
        reach = reach | ((base.double() @ reach.double()) > 0)
    return reach


@dataclass(frozen=True)
class KHop(Pattern):
    r"""Nodes at 1 to `radius` hops: :math:`T^n = \{s : 1 \le \mathrm{hops}(s \to n) \le k\}`.

    The node itself is left out (add it with `AddSelf`); duplicate edges become one, and weights are
    dropped. A node that no path leads to has an empty row. The result carries distances.

    Args:
        radius: Hops, 1..254.

    Example:
        >>> path = Neighborhood.from_edge_index(torch.tensor([[0, 1], [1, 2]]), num_nodes=3)
        >>> KHop(2)(path).edge_index().tolist()
        [[0, 0, 1], [1, 2, 2]]
    """

    radius: int = 1

    def __post_init__(self) -> None:
        check_hops("radius", self.radius, 1)

    def __call__(
        self, neighborhood: Neighborhood, *, generator: torch.Generator | None = None
    ) -> Neighborhood:
        """The k-hop ball without its center."""
        return hop_ball(neighborhood, self.radius, inner=1)[0]

    def on_rows(
        self, graph: Neighborhood, targets: Tensor, *, generator: torch.Generator | None = None
    ) -> Neighborhood:
        """The balls around those nodes."""
        return hop_ball(graph, self.radius, inner=1, targets=targets)[0]

    def mask(self, base: Tensor) -> Tensor:
        """A walk of at most `radius` edges, without the diagonal."""
        return _reach(base, self.radius) & ~torch.eye(base.size(0), dtype=torch.bool)


@dataclass(frozen=True)
class AtDistance(Pattern):
    r"""Nodes exactly z hops away: :math:`\mathcal N_z(n)` of Li (2024), eq. (3.5).

    `Compose(AtDistance(z), Sample(20))` is the distance-z model of figure 3.8. Rows may be empty.

    Args:
        z: Hops, 0..254; 0 is the node itself.
    """

    z: int = 1

    def __post_init__(self) -> None:
        check_hops("z", self.z, 0)

    def __call__(
        self, neighborhood: Neighborhood, *, generator: torch.Generator | None = None
    ) -> Neighborhood:
        """The nodes at distance z."""
        return at_distance(neighborhood, self.z)

    def on_rows(
        self, graph: Neighborhood, targets: Tensor, *, generator: torch.Generator | None = None
    ) -> Neighborhood:
        """The nodes at distance z from those nodes."""
        return hop_ball(graph, self.z, inner=self.z, targets=targets)[0]

    def mask(self, base: Tensor) -> Tensor:
        """Reached within z hops, but not within z - 1."""
        within = _reach(base, self.z)
        return within & ~_reach(base, self.z - 1) if self.z > 0 else within
