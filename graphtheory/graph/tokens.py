"""One more node per graph of a batch, which stands for the graph."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from graphtheory.graph.build import _as_sizes, cliques
from graphtheory.graph.neighborhood import Neighborhood

TOKEN = 254
"""Distance of a pair with a graph token, which `nn.BucketBias(own_token=True)` has a bucket for."""


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
        """Distances of all pairs with tokens, in the order of `cliques(self.sizes)`.

        Args:
            distance: uint8 [P] hops of all pairs of nodes of each graph, in the order of `cliques`.
                254 ("254 or more") becomes 253, since 254 means a token here.

        Returns:
            uint8 of all pairs of nodes and tokens; `TOKEN` for those with a token.

        Raises:
            ValueError: If there is not one distance per pair of nodes.
        """
        inside = self._inside()
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
