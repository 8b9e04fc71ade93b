"""Networks for whole graphs: encode nodes and edges, L residual blocks, read out, a head."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from graphtheory.graph import TOKEN, GraphTokens, Neighborhood, cliques
from graphtheory.nn import BucketBias, PathEncoding
from graphtheory.ops.look_up import bias_per_edge

_TOKEN_STD = 0.02


@dataclass(frozen=True)
class GraphView:
    """What the blocks read of a batch of graphs, beside the features of its nodes.

    Attributes:
        graph: The edges of all graphs.
        edge_index: The same edges in the same order, [2, E].
        edge_attr: Encoded features of these edges, [E, hidden]; or None.
        attended: T^n of every node with its distances, for global attention; or None.
        attn_bias: Bias of its edges from other encodings, [edges of `attended`, heads]; or None.
        graph_of: The graph of each node, int64 [N].
        num_graphs: How many there are.
    """

    graph: Neighborhood
    edge_index: Tensor
    edge_attr: Tensor | None
    attended: Neighborhood | None
    attn_bias: Tensor | None
    graph_of: Tensor
    num_graphs: int


class Convolution(nn.Module):
    """A layer of PyG's or of ours over the edges of a batch.

    Args:
        conv: ``conv(x, edge_index)``; of a batch with edge features it gets them as well.
        on_core: Give it the edges as a `Neighborhood`, which only our layers take.
    """

    def __init__(self, conv: nn.Module, *, on_core: bool = True) -> None:
        super().__init__()
        self.conv, self.on_core = conv, on_core

    def forward(self, x: Tensor, view: GraphView) -> Tensor:
        edges = view.graph if self.on_core else view.edge_index
        return self.conv(x, edges, *(() if view.edge_attr is None else (view.edge_attr,)))


class GraphAttention(nn.Module):
    """A layer of attention over T^n, such as `SPDTransformerConv` over all nodes of the graph."""

    def __init__(self, conv: nn.Module) -> None:
        super().__init__()
        self.conv = conv

    def forward(self, x: Tensor, view: GraphView) -> Tensor:
        assert view.attended is not None
        return self.conv(x, view.attended, attn_bias=view.attn_bias)


def make_norm(kind: str, width: int) -> nn.Module:
    """A norm over the nodes of a batch, "batch", or over the features of each node, "layer"."""
    return nn.BatchNorm1d(width) if kind == "batch" else nn.LayerNorm(width)


class GraphBlock(nn.Module):
    r"""Residual block: the sum of some aggregations, then a feed-forward network.

    .. math::
        h = x + \operatorname{drop}\sum_a \operatorname{agg}_a(\operatorname{norm}(x)), \qquad
        x' = h + \operatorname{ffn}(\operatorname{norm}(h))

    Args:
        aggregations: Modules (x, view) -> [N, width]; none of a network that ignores the edges.
        width: Features of a node.
        dropout: Probability, on features.
        norm: "batch" over the nodes of a batch, or "layer".
    """

    def __init__(
        self, aggregations: Sequence[nn.Module], width: int, dropout: float, norm: str
    ) -> None:
        super().__init__()
        self.aggregations = nn.ModuleList(aggregations)
        self.norm = make_norm(norm, width) if aggregations else nn.Identity()
        self.ffn_norm = make_norm(norm, width)
        self.drop = nn.Dropout(dropout)
        self.ffn = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width), nn.Dropout(dropout)
        )

    def forward(self, x: Tensor, view: GraphView) -> Tensor:
        if len(self.aggregations):
            normed = self.norm(x)
            first, *others = (aggregation(normed, view) for aggregation in self.aggregations)
            x = x + self.drop(sum(others, first))
        return x + self.ffn(self.ffn_norm(x))


class VirtualNodes(nn.Module):
    """One node a graph that all its nodes send to and receive from, between two blocks.

    Source: Gilmer et al. (2017), Neural Message Passing for Quantum Chemistry, section 5.2, as in
    OGB's networks: the sum of the nodes and the virtual node's own state through two linear maps,
    added to every node.
    """

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.zeros(width))
        self.update = nn.Sequential(
            nn.Linear(width, 2 * width), nn.LayerNorm(2 * width), nn.GELU(),
            nn.Linear(2 * width, width), nn.Dropout(dropout),
        )  # fmt: skip

    def forward(self, x: Tensor, state: Tensor | None, view: GraphView) -> tuple[Tensor, Tensor]:
        """Nodes and states [num_graphs, width] after the exchange."""
        if state is None:
            state = self.first.expand(view.num_graphs, -1)
        pooled = x.new_zeros(view.num_graphs, x.size(1)).index_add(0, view.graph_of, x)
        state = state + self.update(pooled + state)
        return x + state[view.graph_of], state


class PairBias(nn.Module):
    """What attention sees of the pairs of nodes of a graph, and their bias, which blocks share.

    Args:
        neighbors: "all" nodes of the graph, or those at most "1", "2", ... hops away.
        paths: Reads ``batch.paths``, or None.
        resistance: Reads the buckets ``batch.resistance``, or None.
    """

    def __init__(
        self, neighbors: str, paths: PathEncoding | None, resistance: BucketBias | None
    ) -> None:
        super().__init__()
        self.neighbors, self.paths, self.resistance = neighbors, paths, resistance

    def forward(self, batch: Any, tokens: GraphTokens | None) -> tuple[Neighborhood, Tensor | None]:
        """T^n of every node with its distances, and a bias [pairs, heads] beside theirs."""
        distance, bias = _stored(batch, "distance"), self._bias(batch)
        if tokens is None:
            everyone = cliques(batch.ptr.diff()).to(distance.device)
        else:
            distance, everyone = tokens.distance(distance), tokens.cliques()
            bias = None if bias is None else tokens.bias(bias)
        everyone = everyone.replace(distance=distance)
        if self.neighbors == "all":
            return everyone, bias
        near = distance <= int(self.neighbors)
        if tokens is not None:
            near |= distance == TOKEN
        return everyone.keep(near), None if bias is None else bias[near]

    def _bias(self, batch: Any) -> Tensor | None:
        found = []
        if self.paths is not None:
            paths = _stored(batch, "paths")
            found.append(self.paths(batch.edge_attr, paths, batch.edge_index, batch.batch))
        if self.resistance is not None:
            found.append(bias_per_edge(self.resistance(_stored(batch, "resistance"))))
        return sum(found[1:], found[0]) if found else None


def _stored(batch: Any, name: str) -> Tensor:
    """An attribute with a row for each pair of nodes of a graph."""
    value, pairs = batch.get(name), int(batch.ptr.diff().square().sum())
    if value is None or len(value) != pairs:
        found = "none" if value is None else f"{len(value)} rows"
        raise ValueError(
            f"batch.{name}: got {found}, expected {pairs}, one for each pair of nodes of a graph; "
            "data.transforms computes them"
        )
    return value


class GraphNetwork(nn.Module):
    """One vector for each graph of a PyG `Batch`, or for each node of its graphs.

    Args:
        encoder: ``encoder(batch) -> [N, hidden]``.
        edge_encoder: ``edge_encoder(edge_attr) -> [E, hidden]``, or None to ignore them.
        blocks: Such as `GraphBlock`.
        norm: Of the nodes in front of the readout, so that a sum still tells how many they are.
        head: From `hidden` to the outputs.
        readout: ``readout(x, ptr=ptr) -> [num_graphs, hidden]``, such as `nn.GraphReadout`; None
            leaves a vector for each node.
        pairs: What attention sees; None for a network without attention.
        token: Add a node to each graph that attends to all its nodes and they to it.
        virtual_nodes: Between two blocks each, or none.

    Shapes:
        A `Batch` with x, edge_index, batch, ptr and, where they are read, edge_attr, distance
        uint8 [sum of n^2], paths and resistance as `data.transforms` computes them -> [num_graphs,
        outputs], without `readout` [num_nodes, outputs].

    Raises:
        ValueError: If `batch` lacks an attribute, or that has not one row for every pair of nodes.
    """

    def __init__(
        self,
        encoder: nn.Module,
        edge_encoder: nn.Module | None,
        blocks: Sequence[nn.Module],
        norm: nn.Module,
        head: nn.Module,
        *,
        readout: nn.Module | None,
        pairs: PairBias | None = None,
        token: bool = False,
        virtual_nodes: Sequence[nn.Module] = (),
    ) -> None:
        super().__init__()
        self.encoder, self.edge_encoder = encoder, edge_encoder
        self.blocks, self.norm, self.head = nn.ModuleList(blocks), norm, head
        self.virtual_nodes = nn.ModuleList(virtual_nodes)
        self.readout, self.bias, self.token = readout, pairs, None
        if token:
            self.token = nn.Parameter(torch.randn(next(norm.parameters()).numel()) * _TOKEN_STD)

    def forward(self, batch: Any) -> Tensor:
        x, state, ptr = self.encoder(batch), None, batch.ptr
        tokens = None if self.token is None else GraphTokens(ptr.diff())
        if tokens is not None and self.token is not None:
            x = tokens.features(x, self.token)
            ptr = ptr + torch.arange(len(ptr), device=ptr.device)
        view = self.view(batch, tokens)
        for i, block in enumerate(self.blocks):
            x = block(x, view)
            if i < len(self.virtual_nodes):
                x, state = self.virtual_nodes[i](x, state, view)
        x = self.norm(x)
        if self.readout is not None:
            x = self.readout(x, ptr=ptr)
        elif tokens is not None:
            x = x[tokens.nodes]
        return self.head(x)

    def view(self, batch: Any, tokens: GraphTokens | None = None) -> GraphView:
        """The edges of a batch, and what each node attends to."""
        index, nodes, graph_of = batch.edge_index, batch.num_nodes, batch.batch
        if tokens is not None:
            index, nodes, graph_of = tokens.edge_index(index), len(tokens.batch), tokens.batch
        graph, edges = Neighborhood.from_edge_index(index, nodes), batch.edge_attr
        if graph.perm is not None:  # one order of edges for both, that of the rows
            index, edges = index[:, graph.perm], None if edges is None else edges[graph.perm]
        edges = None if self.edge_encoder is None else self.edge_encoder(edges)
        attended, bias = (None, None) if self.bias is None else self.bias(batch, tokens)
        return GraphView(graph, index, edges, attended, bias, graph_of, batch.num_graphs)
