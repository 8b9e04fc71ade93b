"""Patterns that are told the graphs of a batch: windows, virtual nodes, random regular edges."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from graphtheory.graph import TOKEN, Neighborhood
from graphtheory.patterns.base import Pattern, Randomness, require_square
from graphtheory.patterns.draw import draw_device
from graphtheory.structure import UNREACHABLE

Sizes = tuple[int, ...] | None  # nodes of each graph of a batch; None is one graph


def check_sizes(sizes: Sizes) -> None:
    """Raise unless this is None or a tuple of counts."""
    whole = isinstance(sizes, tuple) and all(isinstance(n, int) and n >= 0 for n in sizes)
    if sizes is not None and not whole:
        raise ValueError(f"sizes: got {sizes!r}, expected a tuple of counts of nodes, or None")


def graphs_of(sizes: Sizes, num_nodes: int, device: torch.device) -> Tensor:
    """First node and end of the graph of each node, int64 [2, num_nodes]."""
    count = torch.tensor((num_nodes,) if sizes is None else sizes, dtype=torch.int64, device=device)
    if int(count.sum()) != num_nodes:
        raise ValueError(
            f"sizes: {int(count.sum())} nodes, expected {num_nodes} as the neighborhood has"
        )
    end = count.cumsum(0)
    return torch.stack([end - count, end]).repeat_interleave(count, 1, output_size=num_nodes)


def same_graph(sizes: Sizes, num_nodes: int) -> Tensor:
    """Whether two nodes belong to one graph, Bool [num_nodes, num_nodes]."""
    counts = (num_nodes,) if sizes is None else sizes
    graph = torch.tensor([g for g, count in enumerate(counts) for _ in range(count)])
    return graph[:, None] == graph


def with_edges(graph: Neighborhood, added: Tensor, distance: int) -> Neighborhood:
    """The given edges and those of `added` [2, A] that it lacks, of weight 1 and `distance`."""
    nodes, given = graph.num_dst, graph.edge_index()
    key = (added[0] + added[1] * nodes).unique()
    key = key[~torch.isin(key, given[0] + given[1] * nodes)]
    fresh = torch.stack([key % max(nodes, 1), key // max(nodes, 1)])
    weight = graph.weight
    if weight is not None:
        weight = torch.cat([weight, weight.new_ones(len(key))])
    built = Neighborhood.from_edge_index(torch.cat([given, fresh], 1), nodes, weight=weight)
    if graph.distance is None:
        return built
    hops = torch.cat([graph.distance, graph.distance.new_full((len(key),), distance)])
    return built.replace(distance=hops[built.perm])


@dataclass(frozen=True)
class Window(Pattern):
    r"""Nodes at most `size` positions away: :math:`T^n = \{s : |s - n| \le w\}` of the same graph.

    The given edges do not matter. The node itself belongs to its window.

    Args:
        size: Positions w to either side, 0 or more.
        sizes: Nodes of each graph of a batch, which no window leaves; None is one graph.

    Raises:
        ValueError: If `size` is negative, or `sizes` does not sum to the number of nodes.

    Source: Beltagy et al. (2020), Longformer, section 3.1, sliding window.

    Example:
        >>> none = Neighborhood.from_edge_index(torch.zeros(2, 0, dtype=torch.int64), num_nodes=3)
        >>> Window(1)(none).edge_index().tolist()
        [[0, 1, 0, 1, 2, 1, 2], [0, 0, 1, 1, 1, 2, 2]]
    """

    size: int = 1
    sizes: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.size, int) or self.size < 0:
            raise ValueError(f"size: got {self.size!r}, expected a number of positions, 0 or more")
        check_sizes(self.sizes)

    def apply(self, neighborhood: Neighborhood, *, generator: Randomness = None) -> Neighborhood:
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
        node = torch.arange(len(base))
        near = (node[:, None] - node).abs() <= self.size
        return near & same_graph(self.sizes, len(base))


@dataclass(frozen=True)
class VirtualNode(Pattern):
    """The last node of each graph exchanges with all nodes of its graph, itself included.

    Other edges stay. Added edges have weight 1 and the distance `graph.TOKEN`, where the
    neighborhood has weights or distances. `graph.GraphTokens` appends such a node to each graph.

    Args:
        sizes: Nodes of each graph of a batch, the virtual node included; None is one graph.

    Raises:
        ValueError: If `sizes` is no tuple of counts or does not sum to the number of nodes.

    Source: Gilmer et al. (2017), section 5.2; Shirzad et al. (2023), Exphormer, section 3.2.

    Example:
        >>> pair = Neighborhood.from_edge_index(torch.tensor([[0], [1]]), num_nodes=3)
        >>> VirtualNode()(pair).edge_index().tolist()
        [[2, 0, 2, 0, 1, 2], [0, 1, 1, 2, 2, 2]]
    """

    sizes: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        check_sizes(self.sizes)

    def apply(self, neighborhood: Neighborhood, *, generator: Randomness = None) -> Neighborhood:
        nodes = require_square(neighborhood, "VirtualNode")
        node = torch.arange(nodes, device=neighborhood.device)
        last = graphs_of(self.sizes, nodes, neighborhood.device)[1] - 1
        into, out = torch.stack([node, last]), torch.stack([last, node])
        return with_edges(neighborhood, torch.cat([into, out], 1), TOKEN)

    def mask(self, base: Tensor) -> Tensor:
        same = same_graph(self.sizes, len(base))
        last = ~same.triu(1).any(1)  # no later node is in the same graph
        return base | ((last[:, None] | last) & same)


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

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def apply(self, neighborhood: Neighborhood, *, generator: Randomness = None) -> Neighborhood:
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
        return base | (same_graph(self.sizes, len(base)) & ~torch.eye(len(base), dtype=torch.bool))
