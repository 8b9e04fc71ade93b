"""Synthetic nodes with noisy patterns, whose labels other nodes decide: neighbors, or far ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Generator, Tensor
from torch_geometric.data import Data

from graphtheory.graph import Neighborhood
from graphtheory.structure import count_by_distance


@dataclass(frozen=True)
class CoreNeighborhoodGraph:
    r"""Nodes that carry noisy patterns; a few patterns decide the labels of their neighbors.

    x_n ~ N(mu_j, c_0^2 I) with orthonormal mu_1..mu_M. Nodes of mu_1 have label +1, of mu_2
    label -1. Every other node draws its label +-1 evenly and is linked to degree (1 - eps_s) nodes
    of its own class's pattern and degree eps_s of the other's. No edge joins mu_1 and mu_2.

    Variants: "printed" adds edges among mu_1 nodes, and among mu_2 nodes, only where a degree is
    below `degree`; for gamma_d below about one half there is nothing to add. "regular" gives
    every discriminative node `degree` neighbors of its own pattern whatever its other links, so
    that both patterns have a core neighborhood of their own at distance 1.

    The printed parameters with gamma_d = 0.2 cannot be drawn: a node would need degree (1 - eps_s)
    = 114 distinct neighbors among 100 nodes. The error names the largest degree that fits.

    Args:
        num_nodes: Nodes, N.
        gamma_d: Fraction of nodes with a discriminative pattern, half of them each.
        eps_s: Fraction of confusion links of a non-discriminative node, 0 to 1/2.
        eps_0: Fraction of all nodes whose label is flipped after the graph is drawn.
        num_patterns: Patterns, M; the non-discriminative nodes spread over M - 2 of them evenly.
        dim: Feature dimension d, at least M.
        c_0: Standard deviation of the feature noise.
        degree: Links of a non-discriminative node, and least degree of a discriminative one.
        variant: "printed" or "regular".

    Raises:
        ValueError: A parameter out of its range, or a degree that the pattern sizes cannot give.

    Source:
        Li, thesis, 2024, section 3.5.1, with (3.7) for eps_s and Assumption 3.4.2 for eps_0.
        Counts are rounded to the nearest whole number; "regular" is not in the source.

    Example:
        >>> graph = CoreNeighborhoodGraph(num_nodes=100, degree=10)
        >>> graph.sample(Generator().manual_seed(0)).x.shape
        torch.Size([100, 20])
    """

    num_nodes: int = 1000
    gamma_d: float = 0.4
    eps_s: float = 0.05
    eps_0: float = 0.0
    num_patterns: int = 10
    dim: int = 20
    c_0: float = 0.01
    degree: int = 120
    variant: Literal["printed", "regular"] = "printed"

    def __post_init__(self) -> None:
        self._require("gamma_d", 0 < self.gamma_d <= 1, "above 0, at most 1")
        self._require("eps_s", 0 <= self.eps_s <= 0.5, "between 0 and 0.5")
        self._require("eps_0", 0 <= self.eps_0 <= 1, "between 0 and 1")
        self._require("num_patterns", self.num_patterns >= 3, "at least 3")
        self._require("dim", self.dim >= self.num_patterns, f"at least M = {self.num_patterns}")
        self._require("c_0", self.c_0 >= 0, "at least 0")
        self._require("variant", self.variant in ("printed", "regular"), "'printed' or 'regular'")
        limit = self.max_degree
        room = f"{self.carriers} nodes of each discriminative pattern (gamma_d = {self.gamma_d})"
        self._require("degree", 0 <= self.degree <= limit, f"0 to {limit}, for {room}")

    def _require(self, name: str, holds: bool, expected: str) -> None:
        if not holds:
            raise ValueError(f"{name}: got {getattr(self, name)!r}, expected {expected}")

    @property
    def carriers(self) -> int:
        """Nodes of mu_1, and as many of mu_2."""
        return round(self.num_nodes * self.gamma_d / 2)

    @property
    def max_degree(self) -> int:
        """The largest `degree` for which a non-discriminative node finds enough own-class nodes.

        "regular" also asks a node for that many others of its own pattern.
        """
        limit = int(self.carriers / (1 - self.eps_s) + 1e-9)  # 0.95 and the like are not exact
        return min(limit, self.carriers - 1) if self.variant == "regular" else limit

    def sample(self, generator: Generator) -> Data:
        """Draw one graph; the same generator state gives the same graph.

        Args:
            generator: Source of randomness.

        Shapes:
            x [N, d]; edge_index [2, E], both directions; y [N], 1 for the label +1 and 0 for -1;
            pattern [N], 0-based, so that mu_1 is 0; mu [M, d]; flipped [N] bool.

        Returns:
            The graph, nodes of mu_1 first, then of mu_2, then the others.
        """
        pattern = self._patterns()
        y = self._labels(pattern, generator)
        links = self._votes(y, generator)
        for first in (0, self.carriers):
            links |= self._within(links, first, generator)
        mu = torch.linalg.qr(torch.randn(self.dim, self.num_patterns, generator=generator))[0].t()
        noise = torch.randn(self.num_nodes, self.dim, generator=generator)
        flipped = torch.zeros(self.num_nodes, dtype=torch.bool)
        order = torch.randperm(self.num_nodes, generator=generator)
        flipped[order[: round(self.eps_0 * self.num_nodes)]] = True
        return Data(
            x=mu[pattern] + self.c_0 * noise,
            edge_index=links.nonzero().t().contiguous(),
            y=torch.where(flipped, 1 - y, y),
            pattern=pattern,
            mu=mu.contiguous(),
            flipped=flipped,
        )

    def _patterns(self) -> Tensor:
        others = self.num_nodes - 2 * self.carriers
        spread = 2 + torch.arange(others) % (self.num_patterns - 2)
        decisive = torch.arange(2).repeat_interleave(self.carriers)
        return torch.cat([decisive, spread])  # [N]

    def _labels(self, pattern: Tensor, generator: Generator) -> Tensor:
        coin = torch.randint(2, (self.num_nodes,), generator=generator)
        return torch.where(pattern < 2, 1 - pattern, coin)  # mu_1 is +1, stored as 1

    def _votes(self, y: Tensor, generator: Generator) -> Tensor:
        """Links of non-discriminative nodes to both patterns, as a symmetric matrix [N, N]."""
        size, confusion = self.carriers, round(self.degree * self.eps_s)
        links = torch.zeros(self.num_nodes, self.num_nodes, dtype=torch.bool)
        for first, own in ((0, 1), (size, 0)):
            wanted = torch.where(y[2 * size :] == own, self.degree - confusion, confusion)
            key = torch.rand(len(wanted), size, generator=generator)
            order = torch.from_numpy(np.argsort(key.numpy(), axis=1, kind="stable"))
            chosen = torch.arange(size) < wanted[:, None]
            links[2 * size :, first : first + size].scatter_(1, order, chosen)
        return links | links.t()

    def _within(self, links: Tensor, first: int, generator: Generator) -> Tensor:
        """Links among the nodes of one pattern, so that none has fewer than `degree`.

        Nodes in random order take the partners that lack most, ties broken at random; this gives
        exactly regular graphs where they exist.
        """
        members = slice(first, first + self.carriers)
        counted = 0 if self.variant == "regular" else links[members].sum(1)
        lacking = (self.degree - counted) * torch.ones(self.carriers, dtype=torch.long)
        if self.carriers and int(lacking.max()) >= self.carriers:
            raise ValueError(
                f"degree: got {self.degree}, but a discriminative node lacks {int(lacking.max())} "
                f"links and has {self.carriers - 1} others of its pattern"
            )
        inner = torch.eye(self.carriers, dtype=torch.bool)  # no self-loops
        for node in torch.randperm(self.carriers, generator=generator).tolist():
            rank = lacking + torch.rand(self.carriers, generator=generator)
            rank[inner[node]] = -torch.inf
            partners = rank.topk(max(int(lacking[node]), 0)).indices
            inner[node, partners] = inner[partners, node] = True
            lacking[partners] -= 1
            lacking[node] -= len(partners)
        out = torch.zeros_like(links)
        out[members, members] = inner & ~torch.eye(self.carriers, dtype=torch.bool)
        return out


@dataclass(frozen=True)
class MajorityAtDistance:
    r"""Every node carries a noisy pattern; its label is the commonest one among nodes z hops away.

    .. math::
        x_n \sim N(e_{p_n}, \sigma^2 I), \qquad
        y_n = \arg\max_j |\{ s : \mathrm{hops}(s \to n) = z,\ p_s = j \}|

    with p_n drawn uniformly from the M patterns. A node's own pattern, and those at every other
    distance, say nothing about its label. The label is -1 where two patterns are equally common,
    and where no node lies at distance z; such nodes are in no split.

    Args:
        z: Distance, hops, 1..253.
        num_patterns: Patterns and classes, M, 2 or more.
        noise: Standard deviation of the feature noise.

    Raises:
        ValueError: If an argument is out of its range.

    Source:
        Ours, for the core distance of Li (2024), section 3.4.2: the distance whose nodes decide.

    Example:
        >>> path = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> data = MajorityAtDistance(z=2).sample(path, 3, Generator().manual_seed(0))
        >>> bool(data.y[0] == data.pattern[2]), data.y[1].item(), data.empty.tolist()
        (True, -1, [False, True, False])
    """

    z: int = 2
    num_patterns: int = 6
    noise: float = 0.1

    def __post_init__(self) -> None:
        for name, least in (("z", 1), ("num_patterns", 2)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ValueError(
                    f"{name}: got {value!r}, expected a whole number, at least {least}"
                )
        if self.z > 253:
            raise ValueError(f"z: got {self.z}, expected 1..253 hops")
        if not 0 <= self.noise < float("inf"):
            raise ValueError(f"noise: got {self.noise!r}, expected 0 or more")

    def sample(self, edge_index: Tensor, num_nodes: int, generator: Generator) -> Data:
        """Draw patterns and noise on a graph; the same generator state gives the same data.

        Args:
            edge_index: The graph, which does not change; a path follows edges in their direction.
            num_nodes: Nodes, N.
            generator: Source of randomness.

        Shapes:
            edge_index [2, E]; x [N, M]; y [N] in -1..M-1; pattern [N] in 0..M-1; tie and empty [N]
            bool, why a node has no label.
        """
        pattern = torch.randint(self.num_patterns, (num_nodes,), generator=generator)
        noise = torch.randn(num_nodes, self.num_patterns, generator=generator)
        graph = Neighborhood.from_edge_index(edge_index, num_nodes)
        counts = count_by_distance(graph, pattern, self.num_patterns, max_distance=self.z)
        votes = counts.pattern[:, self.z]  # [N, M]
        most, y = votes.max(1)
        empty = most == 0
        tie = ((votes == most[:, None]).sum(1) > 1) & ~empty
        return Data(
            x=torch.nn.functional.one_hot(pattern, self.num_patterns) + self.noise * noise,
            edge_index=edge_index,
            y=y.masked_fill(tie | empty, -1),
            pattern=pattern,
            tie=tie,
            empty=empty,
        )
