"""Constructors that need no sorting: from sizes, from lists of equal length, or side by side."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from graphtheory.graph.check import fit_int32
from graphtheory.graph.csr import check_index
from graphtheory.graph.neighborhood import Neighborhood
from graphtheory.graph.sets import Sets, rows

TOKEN = 254
"""Distance of a pair with a graph token, which `nn.BucketBias(own_token=True)` has a bucket for."""


def _as_sizes(name: str, sizes: Sequence[int] | Tensor) -> list[int]:
    counts = sizes.tolist() if isinstance(sizes, Tensor) else list(sizes)
    if not all(isinstance(n, int | np.integer) and n >= 0 for n in counts):
        raise ValueError(f"{name}: got {sizes}, expected a list of counts, each 0 or more")
    return [int(n) for n in counts]


def cliques(sizes: Sequence[int] | Tensor) -> Neighborhood:
    """Complete graphs side by side, with self-loops: token sets, batches, global attention.

    Args:
        sizes: Number of nodes of each clique.

    Raises:
        ValueError: If an entry is not a count.
        MemoryError: If the edges do not fit into the available memory.

    Example:
        >>> cliques([2, 1]).to_dense().tolist()
        [[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """
    counts = _as_sizes("sizes", sizes)
    return _of_sets(counts, counts)


def bipartite(sizes_dst: Sequence[int] | Tensor, sizes_src: Sequence[int] | Tensor) -> Neighborhood:
    """Complete bipartite blocks: targets of block b aggregate from all sources of block b.

    Args:
        sizes_dst: Number of targets of each block.
        sizes_src: Number of sources of each block; 0 leaves the block's rows empty.

    Raises:
        ValueError: If a count is negative, or if the lists differ in length.
        MemoryError: If the edges do not fit into the available memory.
    """
    dst, src = _as_sizes("sizes_dst", sizes_dst), _as_sizes("sizes_src", sizes_src)
    if len(dst) != len(src):
        raise ValueError(
            f"sizes_src: {len(src)} blocks, expected {len(dst)} as many as sizes_dst has"
        )
    return _of_sets(dst, src)


def _of_sets(dst: list[int], src: list[int], *, causal: bool = False) -> Neighborhood:
    sets = Sets(tuple(dst), tuple(src), causal=causal)
    return Neighborhood(*rows(sets), sets.num_src, sets=sets, validate=False)


def star(sizes: Sequence[int] | Tensor) -> Neighborhood:
    """Prompts as stars: target b, the query, aggregates from the contexts of prompt b.

    Args:
        sizes: Number of contexts of each prompt. Targets are the prompts, sources all contexts.

    Example:
        >>> star([2, 1]).edge_index().tolist()
        [[0, 1, 2], [0, 0, 1]]
    """
    counts = _as_sizes("sizes", sizes)
    return bipartite([1] * len(counts), counts)


def query_stars(count: int, length: int) -> Neighborhood:
    """Prompts of equal length as stars whose query is a node next to its contexts.

    Prompt p has the nodes p (length + 1) to p (length + 1) + length. The last is its query, which
    aggregates from the others; nothing aggregates from it. In `star` only contexts are nodes.

    Args:
        count: Number of prompts.
        length: Number of contexts of each.

    Returns:
        Neighborhood [count, count (length + 1)].

    Raises:
        ValueError: If a number is below 0.

    Source: Li (2024), eqs. (6.1) and (6.2): the sum is over the contexts, without the query.

    Example:
        >>> query_stars(2, 2).edge_index().tolist()
        [[0, 1, 3, 4], [0, 0, 1, 1]]
    """
    for name, value in (("count", count), ("length", length)):
        if value < 0:
            raise ValueError(f"{name}: got {value}, expected 0 or more")
    nodes = torch.arange(count * (length + 1)).view(count, length + 1)
    return neighbor_lists(nodes[:, :length], num_src=nodes.numel())


def causal(sizes: Sequence[int] | Tensor) -> Neighborhood:
    """Sequences side by side: each token aggregates from itself and earlier ones of its sequence.

    Args:
        sizes: Number of tokens of each sequence.

    Raises:
        ValueError: If an entry is not a count.
        MemoryError: If the edges do not fit into the available memory.

    Example:
        >>> causal([3, 1]).edge_index().tolist()
        [[0, 0, 1, 0, 1, 2, 3], [0, 1, 1, 2, 2, 2, 3]]
    """
    counts = _as_sizes("sizes", sizes)
    return _of_sets(counts, counts, causal=True)


def neighbor_lists(sources: Tensor, num_src: int | None = None) -> Neighborhood:
    """K sources for every target, as searches for the k nearest neighbors return them.

    Args:
        sources: int64 or int32 [num_dst, k]; row i lists the sources of target i, in any order.
            They are copied.
        num_src: Number of nodes that may send; default num_dst.

    Raises:
        TypeError: If `sources` is not an integer tensor.
        ValueError: If it does not have two axes.
        IndexError: If a source lies outside 0..num_src-1, such as the -1 of a search that found
            fewer than k.

    Example:
        >>> neighbor_lists(torch.tensor([[2, 1], [0, 2], [1, 0]])).indptr.tolist()
        [0, 2, 4, 6]
    """
    if not isinstance(sources, Tensor) or sources.dtype not in (torch.int64, torch.int32):
        kind = sources.dtype if isinstance(sources, Tensor) else type(sources).__name__
        raise TypeError(f"sources: got {kind}, expected int64 or int32 ids of nodes [num_dst, k]")
    if sources.dim() != 2:
        raise ValueError(f"sources: shape {tuple(sources.shape)}, expected [num_dst, k]")
    count, k = sources.shape
    indices = sources.flatten().long().clone()
    check_index("sources", indices, count if num_src is None else num_src)
    indptr = torch.arange(count + 1, device=sources.device) * k
    return Neighborhood(indptr, indices, num_src, validate=False)


def union(graphs: Sequence[Neighborhood]) -> Neighborhood:
    """The disjoint union: nodes and edges of the first neighborhood first.

    Weights are kept if any has them (edges of the others get 1), distances if all have them.

    Raises:
        ValueError: If there is no graph.

    Example:
        >>> pair = Neighborhood.from_edge_index(torch.tensor([[0], [1]]), num_nodes=2)
        >>> union([pair, pair]).edge_index().tolist()
        [[0, 2], [1, 3]]
    """
    if not graphs:
        raise ValueError("graphs: none, expected at least one")
    sources = torch.tensor([0, *(g.num_src for g in graphs)]).cumsum(0).tolist()
    edges = torch.tensor([0, *(g.num_edges for g in graphs)]).cumsum(0).tolist()
    indptr = [g.indptr[1:] + first for g, first in zip(graphs, edges, strict=False)]
    fits = fit_int32(sources[-1], edges[-1], sum(g.num_dst for g in graphs))
    ids = (g.indices if fits else g.indices.long() for g in graphs)
    indices = [one + first for one, first in zip(ids, sources, strict=False)]
    weight = distance = None
    if any(g.weight is not None for g in graphs):
        ones = (torch.ones(g.num_edges, device=g.device) for g in graphs)
        weights = (o if g.weight is None else g.weight for g, o in zip(graphs, ones, strict=True))
        weight = torch.cat(list(weights))
    known = [g.distance for g in graphs if g.distance is not None]
    if len(known) == len(graphs):
        distance = torch.cat(known)
    return Neighborhood(
        torch.cat([graphs[0].indptr[:1], *indptr]), torch.cat(indices), sources[-1],
        weight=weight, distance=distance, validate=False,
    )  # fmt: skip


class GraphTokens:
    """A token behind the nodes of each graph: where nodes and tokens are, and what links them.

    A graph of n nodes becomes n + 1 nodes, the token last, so that the graphs stay the sets of
    `cliques`. A graph without nodes consists of its token.

    Args:
        sizes: Nodes of each graph, without tokens.

    Attributes:
        sizes: Nodes of each graph with its token.
        nodes: New id of each of the N nodes, int64 [N].
        tokens: Id of each token, int64 [num_graphs].
        batch: Graph of each node and token, int64 [N + num_graphs].

    Raises:
        ValueError: If an entry of `sizes` is not a count.

    Source:
        Ying et al. (2021), section 3.2, special node: a virtual distance of its own to all nodes.

    Example:
        >>> tokens = GraphTokens([2, 1])
        >>> tokens.nodes.tolist(), tokens.tokens.tolist(), tokens.sizes
        ([0, 1, 3], [2, 4], (3, 2))
    """

    def __init__(self, sizes: Sequence[int] | Tensor) -> None:
        device = sizes.device if isinstance(sizes, Tensor) else torch.device("cpu")
        counts = _as_sizes("sizes", sizes)
        self.sizes = tuple(n + 1 for n in counts)
        count = torch.tensor(counts, dtype=torch.int64, device=device)
        graphs = torch.arange(len(counts), device=device)
        of_node = graphs.repeat_interleave(count)
        self.nodes = torch.arange(len(of_node), device=device) + of_node
        self.tokens = count.cumsum(0) + graphs
        self.batch = graphs.repeat_interleave(count + 1)

    def features(self, x: Tensor, token: Tensor) -> Tensor:
        """Features [N + num_graphs, F] from those of nodes [N, F] and tokens [F] or [B, F]."""
        if len(x) != len(self.nodes):
            raise ValueError(f"x: {len(x)} rows, expected {len(self.nodes)}: one per node")
        out = x.new_empty(len(self.batch), x.size(1)).index_copy(0, self.nodes, x)
        return out.index_copy(0, self.tokens, token.to(x).expand(len(self.tokens), -1))

    def edge_index(self, edge_index: Tensor) -> Tensor:
        """The same edges by new ids; tokens have none."""
        return self.nodes[edge_index]

    def distance(self, distance: Tensor) -> Tensor:
        """Distances of all pairs with tokens, in the order of `cliques(self.sizes)`, uint8.

        Given uint8 [P] hops of all pairs of nodes of each graph, in the order of `cliques`. 254
        ("254 or more") becomes 253, since 254, `TOKEN`, is that of a pair with a token.
        """
        inside = self._inside()
        if distance.dtype is not torch.uint8:
            raise TypeError(f"distance: dtype {distance.dtype}, expected torch.uint8")
        if distance.shape != (int(inside.sum()),):
            raise ValueError(
                f"distance: shape {tuple(distance.shape)}, expected [{int(inside.sum())}]: one per "
                "pair of nodes of a graph"
            )
        out = torch.full(inside.shape, TOKEN, dtype=torch.uint8, device=distance.device)
        out[inside] = torch.where(distance == TOKEN, TOKEN - 1, distance).to(torch.uint8)
        return out

    def bias(self, bias: Tensor) -> Tensor:
        """A bias [P, heads] of all pairs of nodes as one of nodes and tokens, 0 for tokens."""
        places = self._inside().nonzero().flatten()
        if len(bias) != len(places):
            raise ValueError(f"bias: {len(bias)} rows, expected {len(places)}: one per pair")
        out = bias.new_zeros(sum(n * n for n in self.sizes), bias.size(1))
        return out.index_copy(0, places, bias)

    def cliques(self) -> Neighborhood:
        """All pairs of nodes and token of each graph."""
        return cliques(self.sizes).to(self.batch.device)

    def _inside(self) -> Tensor:
        """Bool, for all pairs in the order of `cliques`: neither is a token."""
        nb, is_node = self.cliques(), torch.ones_like(self.batch, dtype=torch.bool)
        is_node[self.tokens] = False
        return is_node[nb.indices] & is_node[nb.targets()]
