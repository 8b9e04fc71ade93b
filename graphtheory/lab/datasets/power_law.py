"""A graph of communities whose degrees follow a power law, of ogbn-arxiv's size."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Generator, Tensor
from torch_geometric.data import Data

from graphtheory.lab.datasets.core_graphs import Parameters


@dataclass(frozen=True)
class PowerLawGraph(Parameters):
    r"""Nodes that link within communities; labels mostly follow communities, features labels.

    Node n belongs to community z_n = k with a probability in proportion to 1 / (k + 2), so that the
    largest of 40 has 15 % of the nodes. One end of a link is drawn in proportion to weights w, the
    other likewise, with probability `homophily` in the same community and otherwise outside it. The
    weights are the quantiles of a power law with density :math:`w^{-\mathrm{exponent}}`, cut where
    the expected degree is `max_degree`. The label is :math:`y_n = z_n` with probability `agreement`
    and otherwise a community drawn as above; :math:`x_n = \mu_{y_n} + c\,\epsilon_n` with
    :math:`\mu_k` uniform on the unit sphere, :math:`\epsilon_n \sim N(0, I)`, c = `noise`.

    Source: The degree-corrected block model of Karrer and Newman, Physical Review E 83, 2011. Sizes
        are ogbn-arxiv's (Hu et al., 2020), where 2/3 of the links join equal labels; here 0.65.
    """

    num_nodes: int = 169_343  # N
    num_links: int = 1_166_243  # undirected, at most a quarter of all pairs
    num_classes: int = 40  # communities and classes
    dim: int = 128  # features of a node
    exponent: float = 2.4  # of the degree distribution
    max_degree: int = 13_161  # cut of the expected degree; drawn degrees scatter about it
    homophily: float = 0.8  # share of links within a community
    agreement: float = 0.9  # probability that a label is its community
    noise: float = 0.5  # c, standard deviation of a feature

    def __post_init__(self) -> None:
        pairs, mean = self.num_nodes * (self.num_nodes - 1) // 2, 2 * self.num_links
        self._require("num_nodes", self.num_nodes >= 2, "at least 2")
        self._require("num_links", 1 <= self.num_links <= pairs // 4, f"1 to {pairs // 4}")
        self._require("num_classes", self.num_classes >= 2, "at least 2")
        self._require("dim", self.dim >= 1, "at least 1")
        self._require("exponent", self.exponent > 2, "above 2, where the mean degree is finite")
        above_mean = self.max_degree * self.num_nodes > mean
        self._require("max_degree", above_mean, f"above the mean, {mean / self.num_nodes:g}")
        self._require("homophily", 0 <= self.homophily <= 1, "between 0 and 1")
        self._require("agreement", 0 <= self.agreement <= 1, "between 0 and 1")
        self._require("noise", self.noise >= 0, "at least 0")

    def sample(self, generator: Generator) -> Data:
        """Draw one graph, its edges in both directions, by target and then by source."""
        community = self._communities(self.num_nodes, generator)
        astray = torch.rand(self.num_nodes, generator=generator) >= self.agreement
        y = community.clone()
        y[astray] = self._communities(int(astray.sum()), generator)
        mu = torch.randn(self.num_classes, self.dim, generator=generator)
        mu /= mu.norm(dim=1, keepdim=True)
        x = torch.randn(self.num_nodes, self.dim, generator=generator).mul_(self.noise)
        for some in torch.arange(self.num_nodes).split(2**16):  # mu[y] would be as large as x
            x[some] += mu[y[some]]
        return Data(x=x, edge_index=self._edges(community, generator), y=y, community=community)

    def _communities(self, count: int, generator: Generator) -> Tensor:
        share = 1 / torch.arange(2.0, self.num_classes + 2, dtype=torch.float64)
        draws = torch.rand(count, generator=generator, dtype=torch.float64) * share.sum()
        return torch.searchsorted(share.cumsum(0), draws).clamp(max=self.num_classes - 1)

    def _weights(self, generator: Generator) -> Tensor:
        """Expected degrees in random order, float64 [N]."""
        level = (torch.arange(self.num_nodes, dtype=torch.float64) + 0.5) / self.num_nodes
        weight = level ** (-1 / (self.exponent - 1))
        for _ in range(50):  # cutting hubs lifts the others: a fixed point, near after a few steps
            weight *= 2 * self.num_links / weight.sum()
            weight.clamp_(max=self.max_degree)
        return weight[torch.randperm(self.num_nodes, generator=generator)]

    def _edges(self, community: Tensor, generator: Generator) -> Tensor:
        """Both directions of all links, int64 [2, 2 num_links]."""
        nodes = community.argsort(stable=True)  # communities side by side
        reach = self._weights(generator).cumsum(0)
        code = torch.empty(0, dtype=torch.int64)
        while len(code) < self.num_links:
            count = int(1.1 * (self.num_links - len(code))) + 64
            drawn = self._draw(count, nodes, reach, community, generator)
            code = _sorted(torch.cat([code, drawn])).unique_consecutive()
        chosen = torch.randperm(len(code), generator=generator)[: self.num_links]
        code = code[chosen]
        low, high = code // self.num_nodes, code % self.num_nodes
        both = _sorted(torch.cat([code, high * self.num_nodes + low]))
        return torch.stack([both % self.num_nodes, both // self.num_nodes])

    def _draw(
        self, count: int, nodes: Tensor, reach: Tensor, community: Tensor, generator: Generator
    ) -> Tensor:
        """Links that are no loops, as lower end times N plus higher end."""
        size = torch.bincount(community, minlength=self.num_classes)
        after = torch.cat([reach.new_zeros(1), reach])[size.cumsum(0)]
        before = torch.cat([reach.new_zeros(1), after[:-1]])
        place, coin, at = torch.rand(3, count, generator=generator, dtype=torch.float64)
        one = nodes[torch.searchsorted(reach, place * reach[-1]).clamp_(max=len(reach) - 1)]
        own = community[one]
        low, width = before[own], (after - before)[own]
        outside = at * (reach[-1] - width)
        outside += width * (outside >= low)
        spot = torch.where(coin < self.homophily, low + at * width, outside)
        other = nodes[torch.searchsorted(reach, spot).clamp_(max=len(reach) - 1)]
        code = torch.minimum(one, other) * self.num_nodes + torch.maximum(one, other)
        return code[one != other]


def _sorted(code: Tensor) -> Tensor:
    return torch.from_numpy(np.sort(code.numpy()))  # several times as fast as torch's on one thread
