"""Networks for whole graphs by name, in one stack: only what a block aggregates differs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from graphtheory import nn as layers
from graphtheory.graph import TOKEN, GraphTokens, Neighborhood, cliques
from graphtheory.lab.zoo.graph_recipes import STACKS, EdgeGCNConv, PostNetwork, gine
from graphtheory.ops.call import sum_type
from graphtheory.ops.look_up import bias_per_edge

COMPARED = ("gt", "gt-plain", "gine", "gcn", "gatv2", "mlp")
NAMES = (*COMPARED, "gatedgcn")
ATTENDING = ("gt", "gt-plain")
_FARTHEST = 19  # hops; `AddDistances` stores every larger distance as 20
_POOLED = ("mean", "sum", "max")
_POST = (
    "activation", "residual", "ffn", "head_width", "head_layers", "walk_width", "edge_features",
)  # fmt: skip
_PRE = ("norm", "degree", "laplacian")
_NORMS: dict[str, type[nn.Module]] = {"batch": nn.BatchNorm1d, "layer": nn.LayerNorm}
_RESISTANCE_BUCKETS = 40  # of half an ohm each
_MAX_DEGREE = 64  # larger degrees share its embedding
_TOKEN_STD = 0.02
Columns = int | tuple[int, ...]  # number of float features, or values of each integer column


@dataclass(frozen=True)
class GraphConfig:
    """Options of a network for graphs."""

    hidden: int = 64  # width
    layers: int = 4  # number of blocks
    heads: int = 4  # attention heads (gt, gt-plain, gatv2)
    dropout: float = 0.1  # probability, on features
    attention_dropout: float = 0.0  # probability, on attention weights (gt, gt-plain, gatv2)
    norm: str = "batch"  # or "layer", in front of each part of a block
    # "pre": norms in front of each part of a block; of gcn and gine also "post", norms behind them
    # as in GNN+, and "ogb", as in OGB, which alone read the options from `activation` on; gatedgcn
    # has "post" alone
    stack: str = "pre"
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
    activation: str = "gelu"  # or "relu"
    residual: bool = True  # blocks add to their input
    ffn: bool = True  # a feed-forward part in each block
    head_width: str = "constant"  # width of the layers behind the readout, or "halving"
    head_layers: int = 2  # number of them
    walk_width: int = 28  # columns of the random-walk encoding beside the features
    edge_features: bool = True  # whether they are read


def precomputed(name: str, config: GraphConfig) -> dict[str, int]:
    """List the encodings that the transforms of graphs have to store for network `name`."""
    _check(name, config)
    c, encoded = config, name == "gt"
    found = {
        "walk": c.walk, "laplacian": c.laplacian, "distance": int(name in ATTENDING),
        "paths": c.paths * encoded, "resistance": int(c.resistance and encoded),
    }  # fmt: skip
    return {what: count for what, count in found.items() if count}


class GraphNetwork(nn.Module):
    """A network ``model(batch) -> [num_graphs, num_outputs]``, at level "node" of all nodes.

    gt is attention over the graph with distance encoding, gt-plain without, both beside message
    passing unless ``local=None``; gine, gcn and gatv2 read edge features; mlp ignores the edges.
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
        sums = (_aggregations(name, c, edge_in is not None) for _ in range(c.layers))
        blocks = [GraphBlock(each, c.hidden, c.dropout, c.norm) for each in sums]
        head = nn.Sequential(
            nn.Linear(c.hidden, c.hidden), nn.GELU(), nn.Dropout(c.dropout),
            nn.Linear(c.hidden, num_outputs),
        )  # fmt: skip
        kinds = ((layers.WalkEncoding, c.walk), (layers.LaplacianEncoding, c.laplacian))
        encodings: list[Any] = [encoding(size, c.hidden) for encoding, size in kinds if size]
        degree = layers.DegreeEmbedding(_MAX_DEGREE, c.hidden) if c.degree else None
        self.encoder = layers.NodeEncoder(
            node_in, c.hidden, degree=degree, encodings=encodings, normalize=True
        )
        self.edge_encoder = None if edge_in is None else layers.feature_encoder(edge_in, c.hidden)
        pairs = PairBias(c, edge_in, encoded=name == "gt") if name in ATTENDING else None
        # Norms of the nodes in front of the readout, so that a sum still tells how many they are.
        self.blocks, self.norm = nn.ModuleList(blocks), _NORMS[c.norm](c.hidden)
        self.head = head
        exchanges = range(c.layers - 1 if c.virtual_node else 0)
        self.virtual_nodes = nn.ModuleList(VirtualNodes(c.hidden, c.dropout) for _ in exchanges)
        self.readout = layers.GraphReadout(c.readout) if level == "graph" else None
        self.bias = pairs
        token = c.readout == "token"
        self.token = nn.Parameter(torch.randn(c.hidden) * _TOKEN_STD) if token else None

    def forward(self, batch: Any) -> Tensor:
        x, state, ptr, tokens = self.encoder(batch), None, batch.ptr, None
        if self.token is not None:
            tokens = GraphTokens(ptr.diff())
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


def build(name: str, config: GraphConfig, **sizes: Any) -> nn.Module:
    """Make a network of the stack that the options name; `sizes` are those of `GraphNetwork`."""
    _check(name, config)
    if config.stack == "pre":
        return GraphNetwork(name, config, **sizes)
    return PostNetwork(name, config, **{"level": "graph"} | sizes)


def _aggregations(name: str, c: GraphConfig, edges: bool) -> list[nn.Module]:
    found: list[nn.Module] = []
    sizes = (c.hidden, c.hidden // c.heads, c.heads)
    if name in ATTENDING:
        encoded = name == "gt"
        found.append(GraphAttention(layers.SPDTransformerConv(
            *sizes, dropout=c.attention_dropout, root_weight=False, own_token=c.readout == "token",
            num_buckets=c.num_buckets if encoded else None,
            value_encoding=c.value_encoding and encoded,
        )))  # fmt: skip
    if name == "gine" or (name in ATTENDING and c.local):
        found.append(Convolution(gine(c.hidden, edges=edges)))
    if name == "gcn":
        found.append(Convolution(EdgeGCNConv(c.hidden)))
    if name == "gatv2":
        options: Any = {"dropout": c.attention_dropout, "edge_dim": c.hidden if edges else None}
        found.append(Convolution(layers.GATv2Conv(*sizes, **options)))
    return found


def _check(name: str, config: GraphConfig) -> None:
    for option, got, known in (
        ("model", name, NAMES),
        ("norm", config.norm, tuple(_NORMS)),
        ("readout", config.readout, (*_POOLED, "token") if name in ATTENDING else _POOLED),
        ("local", config.local, ("gine", None)),
        ("stack", config.stack, STACKS.get(name, ("pre",))),
        ("activation", config.activation, ("gelu", "relu")),
        ("head_width", config.head_width, ("constant", "halving")),
    ):
        if got not in known:
            raise ValueError(f"{option}: got {got!r}, expected one of {', '.join(map(str, known))}")
    plain = GraphConfig()
    for option in _POST if config.stack == "pre" else _PRE:
        if (got := getattr(config, option)) != (least := getattr(plain, option)):
            reason = f"expected {least!r} with stack={config.stack!r}"
            raise ValueError(f"{option}: got {got!r}, {reason}")
    near = config.neighbors
    if near != "all" and not (near.isdecimal() and int(near) <= _FARTHEST):
        expected = f"'all' or hops up to {_FARTHEST} such as '2'"
        raise ValueError(f"neighbors: got {near!r}, expected {expected}")
    if config.stack == "pre" and (config.heads < 1 or config.hidden % config.heads):
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
    """A layer of PyG's or ours over the edges of a batch and their features."""

    def __init__(self, conv: nn.Module) -> None:
        super().__init__()
        self.conv = conv

    def forward(self, x: Tensor, view: GraphView) -> Tensor:
        edges = view.graph if isinstance(self.conv, layers.GATv2Conv) else view.edge_index
        return self.conv(x, edges, *(() if view.edge_attr is None else (view.edge_attr,)))


class GraphAttention(Convolution):
    """A layer of attention over T^n, such as `SPDTransformerConv` over all nodes of the graph."""

    def forward(self, x: Tensor, view: GraphView) -> Tensor:
        assert view.attended is not None
        return self.conv(x, view.attended, attn_bias=view.attn_bias)


class GraphBlock(nn.Module):
    """Residual block: the sum of some aggregations, then a feed-forward network."""

    def __init__(
        self, aggregations: Sequence[nn.Module], width: int, dropout: float, norm: str
    ) -> None:
        super().__init__()
        self.aggregations = nn.ModuleList(aggregations)
        self.norm = _NORMS[norm](width) if aggregations else nn.Identity()
        self.ffn_norm = _NORMS[norm](width)
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
    """A node of each graph that its nodes exchange features with (Gilmer et al., 2017, 5.2)."""

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
        wide = x.to(sum_type(x))  # sums of 16 bits stop growing
        pooled = wide.new_zeros(view.num_graphs, x.size(1)).index_add(0, view.graph_of, wide)
        state = state + self.update(pooled.to(x.dtype) + state)
        return x + state[view.graph_of], state


class PairBias(nn.Module):
    """What attention sees of the pairs of nodes of a graph, and their bias, which blocks share."""

    def __init__(self, c: GraphConfig, edge_in: Columns | None, *, encoded: bool) -> None:
        super().__init__()
        steps = c.paths if encoded else 0
        if steps and edge_in is None:
            raise ValueError(f"paths: got {steps}, expected 0: the edges have no features")
        self.neighbors, near = c.neighbors, (_RESISTANCE_BUCKETS, c.heads)
        self.paths = layers.PathEncoding(edge_in, c.heads, steps) if steps and edge_in else None
        self.resistance = layers.BucketBias(*near) if encoded and c.resistance else None

    def forward(self, batch: Any, tokens: GraphTokens | None) -> tuple[Neighborhood, Tensor | None]:
        # T^n of every node with its distances, and a bias [pairs, heads] beside theirs.
        distance, found = _stored(batch, "distance"), []
        if self.paths is not None:
            paths = _stored(batch, "paths")
            found.append(self.paths(batch.edge_attr, paths, batch.edge_index, batch.batch))
        if self.resistance is not None:
            found.append(bias_per_edge(self.resistance(_stored(batch, "resistance"))))
        bias = sum(found[1:], found[0]) if found else None
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


def _stored(batch: Any, name: str) -> Tensor:
    """An attribute with a row for each pair of nodes of a graph."""
    value, pairs = batch.get(name), int(batch.ptr.diff().square().sum())
    if value is None or len(value) != pairs:
        found = "none" if value is None else f"{len(value)} rows"
        each = "one for each pair of nodes of a graph; data.transforms computes them"
        raise ValueError(f"batch.{name}: got {found}, expected {pairs}, {each}")
    return value
