"""Graphs and sets of graphs that need no files: digits, the karate club, and synthetic ones."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Literal

import networkx as nx
import numpy as np
import torch
from torch import Generator, Tensor
from torch_geometric.data import Data
from torch_geometric.datasets import InfectionDataset
from torch_geometric.datasets.graph_generator import ERGraph
from torch_geometric.utils import to_undirected

from graphtheory.graph import Neighborhood
from graphtheory.lab.datasets.graph_sets import Stored, packed
from graphtheory.structure import count_by_distance


class Parameters:
    """Base of the numbers that a graph is drawn by, which are checked."""

    def _require(self, name: str, holds: bool, expected: str) -> None:
        if not holds:
            raise ValueError(f"{name}: got {getattr(self, name)!r}, expected {expected}")


@dataclass(frozen=True)
class CoreNeighborhoodGraph(Parameters):
    r"""Nodes that carry noisy patterns; a few patterns decide the labels of their neighbors.

    x_n ~ N(mu_j, c_0^2 I) with orthonormal mu_1..mu_M. Nodes of mu_1 have label +1, of mu_2
    label -1. Every other node draws its label +-1 evenly and is linked to degree (1 - eps_s) nodes
    of its own class's pattern and degree eps_s of the other's. No edge joins mu_1 and mu_2.

    "printed" adds edges among mu_1 nodes, and among mu_2 nodes, only where a degree is below
    `degree`; for gamma_d below about one half there is nothing to add. "regular", ours, gives
    every discriminative node `degree` neighbors of its own pattern whatever its other links.

    Source: Li, thesis, 2024, section 3.5.1, with (3.7) for eps_s and Assumption 3.4.2 for eps_0.
    """

    num_nodes: int = 1000  # N
    gamma_d: float = 0.4  # fraction of nodes with a discriminative pattern, half of them each
    eps_s: float = 0.05  # fraction of confusion links of a non-discriminative node, 0 to 1/2
    eps_0: float = 0.0  # fraction of all nodes whose label is flipped after the graph is drawn
    num_patterns: int = 10  # M; the non-discriminative nodes spread over M - 2 of them evenly
    dim: int = 20  # features d, at least M
    c_0: float = 0.01  # standard deviation of the feature noise
    degree: int = 120  # links of a non-discriminative node, least degree of a discriminative one
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

    @property
    def carriers(self) -> int:
        """Nodes of mu_1, and as many of mu_2."""
        return round(self.num_nodes * self.gamma_d / 2)

    @property
    def max_degree(self) -> int:
        """The largest `degree` for which each node finds enough nodes of its own class."""
        limit = int(self.carriers / (1 - self.eps_s) + 1e-9)  # 0.95 and the like are not exact
        return min(limit, self.carriers - 1) if self.variant == "regular" else limit

    def sample(self, generator: Generator) -> Data:
        """Draw one graph, nodes of mu_1 first, then of mu_2; y is 1 for the label +1, 0 for -1."""
        others = torch.arange(self.num_nodes - 2 * self.carriers)
        decisive = torch.arange(2).repeat_interleave(self.carriers)
        pattern = torch.cat([decisive, 2 + others % (self.num_patterns - 2)])  # [N]
        coin = torch.randint(2, (self.num_nodes,), generator=generator)
        y = torch.where(pattern < 2, 1 - pattern, coin)  # mu_1 is +1, stored as 1
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
        """Links in one pattern, none below `degree`: partners are those that lack most."""
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
class MajorityAtDistance(Parameters):
    r"""Every node carries a noisy pattern; its label is the commonest one among nodes z hops away.

    .. math::
        x_n \sim N(e_{p_n}, \sigma^2 I), \qquad
        y_n = \arg\max_j |\{ s : \mathrm{hops}(s \to n) = z,\ p_s = j \}|

    with p_n drawn uniformly from the M patterns. The label is -1 where two patterns are equally
    common, and where no node lies at distance z. For the core distance of Li (2024), section 3.4.2.
    """

    z: int = 2  # hops
    num_patterns: int = 6  # patterns and classes, M
    noise: float = 0.1  # standard deviation of the feature noise

    def __post_init__(self) -> None:
        for name, least in (("z", 1), ("num_patterns", 2)):
            value = getattr(self, name)
            whole = isinstance(value, int) and not isinstance(value, bool)
            self._require(name, whole and value >= least, f"a whole number, at least {least}")
        self._require("z", self.z <= 253, "1..253 hops")
        self._require("noise", 0 <= self.noise < float("inf"), "0 or more")

    def sample(self, edge_index: Tensor, num_nodes: int, generator: Generator) -> Data:
        """Draw patterns and noise on a graph; `tie` and `empty` say why a node has no label."""
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

    def _edges(self, community: Tensor, generator: Generator) -> Tensor:
        """Both directions of all links, int64 [2, 2 num_links]."""
        nodes = community.argsort(stable=True)  # communities side by side
        level = (torch.arange(self.num_nodes, dtype=torch.float64) + 0.5) / self.num_nodes
        weight = level ** (-1 / (self.exponent - 1))  # expected degrees
        for _ in range(50):  # cutting hubs lifts the others: a fixed point, near after a few steps
            weight *= 2 * self.num_links / weight.sum()
            weight.clamp_(max=self.max_degree)
        reach = weight[torch.randperm(self.num_nodes, generator=generator)].cumsum(0)
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


_NEIGHBORS = 8
_SKIPS = (2, 3, 4, 5, 6, 9, 11, 12, 13, 16)  # of the classes of csl
_COPIES, _CSL_NODES = 15, 41
_SEED = 0  # of the sets of graphs, which are the same for every split


def digits() -> Data:
    """scikit-learn's 1,797 images of digits, each linked to its 8 nearest, in both directions."""
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    images, y = torch.from_numpy(pixels), torch.from_numpy(labels).long()
    square = images.square().sum(1)
    distance = (square[:, None] + square - 2 * images @ images.t()).long()  # squared, [N, N]
    rank = distance * len(y) + torch.arange(len(y))  # no two alike in a row
    rank.fill_diagonal_(torch.iinfo(torch.int64).max)
    nearest = rank.topk(_NEIGHBORS, largest=False).indices  # [N, 8]
    pairs = torch.stack([torch.arange(len(y)).repeat_interleave(_NEIGHBORS), nearest.flatten()])
    return Data(x=(images / 16).float(), edge_index=to_undirected(pairs, num_nodes=len(y)), y=y)


def karate() -> Data:
    """Zachary's karate club, x one-hot; y is 0 for the instructor's club, 1 for the officer's."""
    graph = nx.karate_club_graph()
    y = torch.tensor([int(graph.nodes[node]["club"] == "Officer") for node in graph])
    edges = to_undirected(torch.tensor(list(graph.edges)).t(), num_nodes=len(y))
    return Data(x=torch.eye(len(y)), edge_index=edges, y=y)


def core_distance(generator: Generator) -> Data:
    """The graph of `digits` with labels that the nodes at two hops decide, of six patterns."""
    graph = digits()
    return MajorityAtDistance(z=2).sample(graph.edge_index, len(graph.y), generator)


def infection() -> Stored:
    """100 random graphs with 50 of 500 nodes infected; a class is the hops to them, at most 4."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(_SEED)  # PyG draws from the global state
        made = InfectionDataset(ERGraph(500, 0.004), 50, 3, num_graphs=100)
    return packed([Data(x=one.x, edge_index=one.edge_index, y=one.y) for one in made])


def ring_transfer() -> Stored:
    """Rings on which the target must tell the class of the node opposite: Di Giovanni, ICML 2023.

    x of node 0, the source, is one-hot, that of the target zero, that of the others one.
    """
    nodes, classes, graphs = 10, 5, 2000
    ring = to_undirected(torch.stack([torch.arange(nodes), (torch.arange(nodes) + 1) % nodes]))
    drawn = torch.randint(classes, (graphs,), generator=Generator().manual_seed(_SEED))
    made = []
    for label in drawn.tolist():
        x = torch.ones(nodes, classes)
        x[0], x[nodes // 2] = torch.eye(classes)[label], 0
        made.append(_with_one_label(x, ring, nodes // 2, label))
    return packed(made)


def _with_one_label(x: Tensor, edge_index: Tensor, node: int, label: int) -> Data:
    y = torch.full((len(x),), -1)
    y[node] = label
    return Data(x=x, edge_index=edge_index, y=y)


def neighbors_match(depth: int, graphs: int = 6000) -> Stored:
    """Binary trees whose root must find the leaf of its own key and tell that leaf's value.

    x has two categories, a key and a value, 0 where there is none: Alon and Yahav, ICLR 2021, 4.1.
    """
    leaves, generator = 2**depth, Generator().manual_seed(_SEED)
    child = torch.arange(1, 2 * leaves - 1)
    tree = to_undirected(torch.stack([child, (child - 1) // 2]))
    made = []
    for _ in range(graphs):
        keys, values = (torch.randperm(leaves, generator=generator) + 1 for _ in range(2))
        wanted = int(torch.randint(leaves, (1,), generator=generator))
        x = torch.zeros(2 * leaves - 1, 2, dtype=torch.int64)
        x[leaves - 1 :] = torch.stack([keys, values], dim=1)
        x[0, 0] = keys[wanted]
        made.append(_with_one_label(x, tree, 0, int(values[wanted]) - 1))
    return packed(made, categories={"x": [leaves + 1, leaves + 1]})


def skip_rings(copies: int = _COPIES) -> Iterator[Data]:
    """The graphs of CSL, rings with skip links: renumbered copies of each of 10 lengths of skip."""
    generator = Generator().manual_seed(_SEED)
    for label, skip in enumerate(_SKIPS):
        edges = torch.tensor(list(nx.circulant_graph(_CSL_NODES, [1, skip]).edges)).t()
        for copy in range(_COPIES):
            order = torch.randperm(_CSL_NODES, generator=generator)
            if copy < copies:
                index = to_undirected(order[edges], num_nodes=_CSL_NODES)
                x, y = torch.ones(_CSL_NODES, 1), torch.tensor([label])
                yield Data(x=x, edge_index=index, y=y)


# What makes each embedded graph and each set of graphs, by its name in the catalogue.
GRAPHS: dict[str, Callable[[Generator], Data]] = {
    "digits": lambda _: digits(),
    "karate": lambda _: karate(),
    "core-neighborhood": lambda generator: CoreNeighborhoodGraph().sample(generator),
    "core-distance": core_distance,
    "power-law": lambda generator: PowerLawGraph().sample(generator),
}
SETS: dict[str, Callable[[], Stored]] = {
    "infection": infection,
    "ring-transfer": ring_transfer,
    **{f"neighbors-match-{depth}": partial(neighbors_match, depth) for depth in (2, 3, 4, 5)},
    "csl": lambda: packed(list(skip_rings())),
}
