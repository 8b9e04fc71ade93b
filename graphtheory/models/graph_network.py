"""Networks for whole graphs: encode nodes and edges, L residual blocks, read out, a head."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from graphtheory.graph import Neighborhood, cliques


@dataclass(frozen=True)
class GraphView:
    """What the blocks read of a batch of graphs, beside the features of its nodes.

    Attributes:
        graph: The edges of all graphs.
        edge_index: The same edges in the same order, [2, E].
        edge_attr: Encoded features of these edges, [E, hidden]; or None.
        attended: T^n of every node with its distances, for global attention; or None.
        graph_of: The graph of each node, int64 [N].
        num_graphs: How many there are.
    """

    graph: Neighborhood
    edge_index: Tensor
    edge_attr: Tensor | None
    attended: Neighborhood | None
    graph_of: Tensor
    num_graphs: int


Aggregation = Callable[[Tensor, GraphView], Tensor]
"""(x [N, hidden], view) -> [N, hidden]: one of the terms that a block adds to its nodes."""


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
        """Same shape as x."""
        edges = view.graph if self.on_core else view.edge_index
        return self.conv(x, edges, *(() if view.edge_attr is None else (view.edge_attr,)))


class GraphAttention(nn.Module):
    """A layer of attention over T^n, such as `SPDTransformerConv` over all nodes of the graph."""

    def __init__(self, conv: nn.Module) -> None:
        super().__init__()
        self.conv = conv

    def forward(self, x: Tensor, view: GraphView) -> Tensor:
        """Same shape as x."""
        assert view.attended is not None
        return self.conv(x, view.attended)


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
        self,
        aggregations: Sequence[nn.Module],
        width: int,
        dropout: float,
        norm: str,
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
        """Same shape as x."""
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
        neighbors: What attention sees: "all" nodes of the graph, "2" those at most two hops away;
            None for a network without attention. Needs ``batch.distance``.
        virtual_nodes: Between two blocks each, or none.

    Shapes:
        A `Batch` with x, edge_index, batch, ptr, and edge_attr and distance uint8 [sum of n^2]
        where they are read -> [num_graphs, outputs], without `readout` [num_nodes, outputs].

    Raises:
        ValueError: If `batch` has no distances, or not one for every pair of nodes.
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
        neighbors: str | None = None,
        virtual_nodes: Sequence[nn.Module] = (),
    ) -> None:
        super().__init__()
        self.encoder, self.edge_encoder = encoder, edge_encoder
        self.blocks, self.norm, self.head = nn.ModuleList(blocks), norm, head
        self.virtual_nodes = nn.ModuleList(virtual_nodes)
        self.readout, self.neighbors = readout, neighbors

    def forward(self, batch: Any) -> Tensor:
        """Outputs; see the class."""
        x, view, state = self.encoder(batch), self.view(batch), None
        for i, block in enumerate(self.blocks):
            x = block(x, view)
            if i < len(self.virtual_nodes):
                x, state = self.virtual_nodes[i](x, state, view)
        x = self.norm(x)
        if self.readout is not None:
            x = self.readout(x, ptr=batch.ptr)
        return self.head(x)

    def view(self, batch: Any) -> GraphView:
        """The edges of a batch, and what each node attends to."""
        graph = Neighborhood.from_edge_index(batch.edge_index, batch.num_nodes)
        index, edges = batch.edge_index, None
        if graph.perm is not None:  # one order of edges for both, that of the rows
            index = index[:, graph.perm]
        if self.edge_encoder is not None:
            edges = batch.edge_attr if graph.perm is None else batch.edge_attr[graph.perm]
            edges = self.edge_encoder(edges)
        attended = self._attended(batch)
        return GraphView(graph, index, edges, attended, batch.batch, batch.num_graphs)

    def _attended(self, batch: Any) -> Neighborhood | None:
        if self.neighbors is None:
            return None
        distance = batch.get("distance")
        pairs = int(batch.ptr.diff().square().sum())
        if distance is None or len(distance) != pairs:
            found = "none" if distance is None else f"{len(distance)}"
            raise ValueError(
                f"batch.distance: got {found}, expected {pairs} hops, one for each pair of nodes "
                "of a graph; apply data.transforms.AddDistances to the graphs"
            )
        everyone = cliques(batch.ptr.diff()).replace(distance=distance)
        if self.neighbors == "all":
            return everyone
        return everyone.keep(distance <= int(self.neighbors))
