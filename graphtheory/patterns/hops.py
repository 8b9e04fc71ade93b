"""Neighborhoods by distance: all nodes within k hops, exactly z hops away, or at every d-th hop."""

from abc import abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from graphtheory.graph import Neighborhood
from graphtheory.patterns.base import Pattern, Randomness, RowPattern
from graphtheory.patterns.draw import Sample, draw_device
from graphtheory.structure import draw_from_ball, hop_ball
from graphtheory.structure._search import as_hops


def check_hops(name: str, value: int, low: int, high: int = 254) -> None:
    """Raise ValueError unless `value` is a whole number of hops in low..high."""
    whole = hasattr(value, "__index__") and not isinstance(value, bool)
    if not whole or not low <= value <= high:
        raise ValueError(f"{name}: got {value!r}, expected {low}..{high} hops")


class ByDistance(RowPattern):
    """The nodes at some distances from each node; a subclass says at which."""

    max_degree: int | None = None

    @property
    @abstractmethod
    def distances(self) -> range:
        """The distances in hops, ascending."""

    def on_rows(
        self, graph: Neighborhood, targets: Tensor | None, *, generator: Randomness = None
    ) -> Neighborhood:
        hops = self.distances
        ball, distance = hop_ball(
            graph, hops[-1], inner=hops[0], targets=targets, max_degree=self.max_degree
        )
        return ball if hops.step == 1 else ball.keep(distance % hops.step == 0)

    def drawn_rows(
        self, sampler: Pattern, graph: Neighborhood, targets: Tensor, generator: Randomness
    ) -> Neighborhood | None:
        hops = self.distances
        if not isinstance(sampler, Sample) or sampler.whole_graph or hops.step > 1:
            return None
        draw_device(generator, graph)
        return draw_from_ball(
            graph, hops[-1], min(sampler.n, graph.num_src), inner=hops[0],
            max_degree=self.max_degree, targets=targets, generator=generator,
        )  # fmt: skip

    def mask(self, base: Tensor) -> Tensor:
        fresh = seen = torch.eye(base.size(0), dtype=torch.bool)
        mask = torch.zeros_like(base)
        hubs = base.sum(1) > (base.size(1) if self.max_degree is None else self.max_degree)
        for hops in range(self.distances[-1] + 1):
            if hops in self.distances:
                mask |= fresh
            if hops > 0:
                fresh = fresh & ~hubs[:, None]
            fresh = ((base.double() @ fresh.double()) > 0) & ~seen
            seen = seen | fresh
        return mask


@dataclass(frozen=True)
class KHop(ByDistance):
    r"""Nodes at 1 to `radius` hops: :math:`T^n = \{s : 1 \le \mathrm{hops}(s \to n) \le k\}`.

    The node itself is left out (add it with `AddSelf`); duplicate edges become one, and weights are
    dropped. A node that no path leads to has an empty row. The result carries distances.

    `max_degree` bounds the work at hubs, and biases what is found: balls contain nodes with more
    in-edges, but do not go on through them, except from the center itself. What only such nodes
    lead to is left out, and distances are those of the paths that remain.

    Args:
        radius: Hops, 1..254.
        max_degree: In-edges, duplicates counted, up to which the search goes on through a node; at
            least 1. None is any number.

    Example:
        >>> path = Neighborhood.from_edge_index(torch.tensor([[0, 1], [1, 2]]), num_nodes=3)
        >>> KHop(2)(path).edge_index().tolist()
        [[0, 0, 1], [1, 2, 2]]
    """

    radius: int = 1
    max_degree: int | None = None

    def __post_init__(self) -> None:
        check_hops("radius", self.radius, 1)
        if self.max_degree is not None:
            as_hops("max_degree", self.max_degree, 1, None, "edges")

    @property
    def distances(self) -> range:
        return range(1, self.radius + 1)


@dataclass(frozen=True)
class AtDistance(ByDistance):
    r"""Nodes exactly z hops away: :math:`\mathcal N_z(n)` of Li (2024), eq. (3.5).

    `Compose(AtDistance(z), Sample(20))` is the distance-z model of figure 3.8. Rows may be empty.

    Args:
        z: Hops, 0..254; 0 is the node itself.
    """

    z: int = 1

    def __post_init__(self) -> None:
        check_hops("z", self.z, 0)

    @property
    def distances(self) -> range:
        return range(self.z, self.z + 1)


@dataclass(frozen=True)
class DilatedHops(ByDistance):
    r"""Nodes at d, 2d, ... hops, up to k: a ball with gaps, as a dilated convolution has them.

    .. math:: T^n = \{s : \mathrm{hops}(s \to n) \in \{d, 2d, \dots, \lfloor k / d \rfloor d\}\}

    Otherwise as `KHop`. ``DilatedHops(k, 1)`` is `KHop(k)`, ``DilatedHops(k, k)`` is
    `AtDistance(k)`.

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

    Source: Ours: what a dilated convolution is over positions, over hops.

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

    @property
    def distances(self) -> range:
        return range(self.step, self.hops + 1, self.step)
