"""Networks for whole graphs by name, in one stack: only what a block aggregates differs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from graphtheory import nn as layers
from graphtheory.graph import TOKEN, GraphTokens, Neighborhood, cliques
from graphtheory.nn.conv.edge_sums import EdgeGCNConv, gine
from graphtheory.ops.look_up import bias_per_edge

NAMES = ("gt", "gt-plain", "gine", "gcn", "gatv2", "mlp")
COMPARED = NAMES
ATTENDING = ("gt", "gt-plain")
_FARTHEST = 19  # hops; `AddDistances` stores every larger distance as 20
_POOLED = ("mean", "sum", "max")
_RESISTANCE_BUCKETS = 40  # of half an ohm each
_MAX_DEGREE = 64  # larger degrees share its embedding
_TOKEN_STD = 0.02
Columns = int | tuple[int, ...]
"""Number of float features, or the number of values of each column of integers."""


@dataclass(frozen=True)
class GraphConfig:
    """Options of a network for graphs."""

    hidden: int = 64  # width
    layers: int = 4  # number of blocks
    heads: int = 4  # attention heads (gt, gt-plain, gatv2)
    dropout: float = 0.1  # probability, on features
    attention_dropout: float = 0.0  # probability, on attention weights (gt, gt-plain, gatv2)
    norm: str = "batch"  # or "layer", in front of each part of a block
    # "mean", "sum" or "max" over the nodes of a graph; "token" is a graph token that attends with
    # them (gt, gt-plain)
    readout: str = "mean"
    # what a node of gt and gt-plain attends to: "all" nodes of its graph, or those at most "1",
    # "2", ... "19" hops away
    neighbors: str = "all"
    local: str | None = "gine"  # message passing beside attention (gt, gt-plain), or None
    num_buckets: int = 20  # Z (gt)
    value_encoding: bool = False  # distances enter the values, too (gt)
    paths: int = 0  # steps of the encoding of edges along the shortest path, 0 is none (gt)
    resistance: bool = False  # a bias of the resistance distance, too (gt)
    degree: bool = False  # an embedding of each node's degree
    walk: int = 0  # steps of the random-walk encoding, 0 is none
    laplacian: int = 0  # eigenvectors of the Laplacian encoding, 0 is none
    virtual_node: bool = False  # a virtual node between blocks


def precomputed(name: str, config: GraphConfig) -> dict[str, int]:
    """List what the graphs have to hold beside their features for network `name`.

    "distance" for `AddDistances`, steps of "paths" for `AddPaths`, "resistance" for
    `AddResistance`; steps of "walk" and vectors of "laplacian" for PyG's `AddRandomWalkPE` and
    `AddLaplacianEigenvectorPE`.
    """
    _check(name, config)
    found = {"walk": config.walk, "laplacian": config.laplacian}
    if name in ATTENDING:
        found["distance"] = 1
    if name == "gt":
        found |= {"paths": config.paths, "resistance": int(config.resistance)}
    return {what: count for what, count in found.items() if count}


class GraphNetwork(nn.Module):
    """A network ``model(batch) -> [num_graphs, num_outputs]``, at level "node" of all nodes.

    gt is attention over the graph with distance encoding, gt-plain without, both beside message
    passing unless ``local=None``; gine, gcn and gatv2 read edge features; mlp ignores the edges.
    Without edge features `edge_in` is None. The batch of PyG's has x, edge_index, batch, ptr and,
    where they are read, edge_attr, distance uint8 [sum of n^2], paths and resistance as
    `data.transforms` computes them.
    """

    def __init__(
        self,
        name: str,
        config: GraphConfig,
        *,
        node_in: Columns,
        edge_in: Columns | None,
        num_outputs: int,
        level: str = "graph",
    ) -> None:
        _check(name, config)
        super().__init__()
        c = config
        # The parts draw their weights in this order.
        blocks = [
            GraphBlock(_aggregations(name, c, edge_in is not None), c.hidden, c.dropout, c.norm)
            for _ in range(c.layers)
        ]
        head = nn.Sequential(
            nn.Linear(c.hidden, c.hidden), nn.GELU(), nn.Dropout(c.dropout),
            nn.Linear(c.hidden, num_outputs),
        )  # fmt: skip
        encodings: list[Any] = []
        if c.walk:
            encodings.append(layers.WalkEncoding(c.walk, c.hidden))
        if c.laplacian:
            encodings.append(layers.LaplacianEncoding(c.laplacian, c.hidden))
        degree = layers.DegreeEmbedding(_MAX_DEGREE, c.hidden) if c.degree else None
        self.encoder = layers.NodeEncoder(
            node_in, c.hidden, degree=degree, encodings=encodings, normalize=True
        )
        self.edge_encoder = None if edge_in is None else layers.feature_encoder(edge_in, c.hidden)
        pairs = PairBias(c, edge_in, encoded=name == "gt") if name in ATTENDING else None
        # Norms of the nodes in front of the readout, so that a sum still tells how many they are.
        self.blocks, self.norm = nn.ModuleList(blocks), make_norm(c.norm, c.hidden)
        self.head = head
        exchanges = range(c.layers - 1 if c.virtual_node else 0)
        self.virtual_nodes = nn.ModuleList(VirtualNodes(c.hidden, c.dropout) for _ in exchanges)
        self.readout = layers.GraphReadout(c.readout) if level == "graph" else None
        self.bias = pairs
        token = torch.randn(c.hidden) * _TOKEN_STD if c.readout == "token" else None
        self.token = None if token is None else nn.Parameter(token)

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
        """Read the edges of a batch, and what each node attends to."""
        index, nodes, graph_of = batch.edge_index, batch.num_nodes, batch.batch
        if tokens is not None:
            index, nodes, graph_of = tokens.edge_index(index), len(tokens.batch), tokens.batch
        graph, edges = Neighborhood.from_edge_index(index, nodes), batch.edge_attr
        if graph.perm is not None:  # one order of edges for both, that of the rows
            index, edges = index[:, graph.perm], None if edges is None else edges[graph.perm]
        edges = None if self.edge_encoder is None else self.edge_encoder(edges)
        attended, bias = (None, None) if self.bias is None else self.bias(batch, tokens)
        return GraphView(graph, index, edges, attended, bias, graph_of, batch.num_graphs)


build = GraphNetwork


def _aggregations(name: str, c: GraphConfig, edges: bool) -> list[nn.Module]:
    """List what a block of network `name` adds to its nodes."""
    found: list[nn.Module] = []
    sizes = (c.hidden, c.hidden // c.heads, c.heads)
    if name in ATTENDING:
        attention = layers.SPDTransformerConv(
            *sizes, dropout=c.attention_dropout, root_weight=False, own_token=c.readout == "token",
            num_buckets=c.num_buckets if name == "gt" else None,
            value_encoding=c.value_encoding and name == "gt",
        )  # fmt: skip
        found.append(GraphAttention(attention))
    if name == "gine" or (name in ATTENDING and c.local):
        found.append(Convolution(gine(c.hidden, edges=edges), on_core=False))
    if name == "gcn":
        found.append(Convolution(EdgeGCNConv(c.hidden), on_core=False))
    if name == "gatv2":
        options: Any = {"dropout": c.attention_dropout, "edge_dim": c.hidden if edges else None}
        found.append(Convolution(layers.GATv2Conv(*sizes, **options)))
    return found


def _check(name: str, config: GraphConfig) -> None:
    for option, got, known in (
        ("model", name, NAMES),
        ("norm", config.norm, ("batch", "layer")),
        ("readout", config.readout, (*_POOLED, "token") if name in ATTENDING else _POOLED),
        ("local", config.local, ("gine", None)),
    ):
        if got not in known:
            raise ValueError(f"{option}: got {got!r}, expected one of {', '.join(map(str, known))}")
    hops = config.neighbors.isdecimal() and int(config.neighbors) <= _FARTHEST
    if config.neighbors != "all" and not hops:
        raise ValueError(
            f"neighbors: got {config.neighbors!r}, expected 'all' or hops up to {_FARTHEST} such "
            "as '2'"
        )
    if config.heads < 1 or config.hidden % config.heads:
        raise ValueError(f"heads: got {config.heads}, expected a divisor of hidden={config.hidden}")


@dataclass(frozen=True)
class GraphView:
    """What the blocks read of a batch of graphs, beside the features of its nodes."""

    graph: Neighborhood  # the edges of all graphs
    edge_index: Tensor  # the same edges in the same order, [2, E]
    edge_attr: Tensor | None  # encoded features of these edges, [E, hidden]
    attended: Neighborhood | None  # T^n of every node with its distances, for global attention
    attn_bias: Tensor | None  # bias of its edges from other encodings, [edges of it, heads]
    graph_of: Tensor  # the graph of each node, int64 [N]
    num_graphs: int


class Convolution(nn.Module):
    """A layer of PyG's, or with `on_core` of ours, over the edges of a batch and their features."""

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
    """Make a norm over the nodes of a batch, "batch", or over the features of a node, "layer"."""
    return nn.BatchNorm1d(width) if kind == "batch" else nn.LayerNorm(width)


class GraphBlock(nn.Module):
    """Residual block: the sum of some aggregations, then a feed-forward network."""

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

    Source: Gilmer et al. (2017), Neural Message Passing for Quantum Chemistry, section 5.2, with
    two linear maps as in OGB's networks.
    """

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.zeros(width))
        self.update = nn.Sequential(
            nn.Linear(width, 2 * width), nn.LayerNorm(2 * width), nn.GELU(),
            nn.Linear(2 * width, width), nn.Dropout(dropout),
        )  # fmt: skip

    def forward(self, x: Tensor, state: Tensor | None, view: GraphView) -> tuple[Tensor, Tensor]:
        if state is None:
            state = self.first.expand(view.num_graphs, -1)
        pooled = x.new_zeros(view.num_graphs, x.size(1)).index_add(0, view.graph_of, x)
        state = state + self.update(pooled + state)
        return x + state[view.graph_of], state


class PairBias(nn.Module):
    """What attention sees of the pairs of nodes of a graph, and their bias, which blocks share."""

    paths: layers.PathEncoding | None
    resistance: layers.BucketBias | None

    def __init__(self, config: GraphConfig, edge_in: Columns | None, *, encoded: bool) -> None:
        super().__init__()
        self.neighbors, self.paths, self.resistance = config.neighbors, None, None
        if encoded and (steps := config.paths):
            if edge_in is None:
                raise ValueError(f"paths: got {steps}, expected 0: the edges have no features")
            self.paths = layers.PathEncoding(edge_in, config.heads, steps)
        if encoded and config.resistance:
            self.resistance = layers.BucketBias(_RESISTANCE_BUCKETS, config.heads)

    def forward(self, batch: Any, tokens: GraphTokens | None) -> tuple[Neighborhood, Tensor | None]:
        # T^n of every node with its distances, and a bias [pairs, heads] beside theirs.
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
