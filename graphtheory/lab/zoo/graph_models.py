"""Networks for whole graphs by name, in one stack: only what a block aggregates differs."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from graphtheory.lab.zoo.graph_network import (
    Convolution,
    GraphAttention,
    GraphBlock,
    GraphNetwork,
    PairBias,
    VirtualNodes,
    make_norm,
)
from graphtheory.nn import (
    BucketBias,
    DegreeEmbedding,
    GATv2Conv,
    GraphReadout,
    LaplacianEncoding,
    NodeEncoder,
    PathEncoding,
    SPDTransformerConv,
    WalkEncoding,
    feature_encoder,
)
from graphtheory.nn.conv.edge_sums import EdgeGCNConv, gine

NAMES = ("gt", "gt-plain", "gine", "gcn", "gatv2", "mlp")
COMPARED = NAMES
ATTENDING = ("gt", "gt-plain")
_FARTHEST = 19  # hops; `AddDistances` stores every larger distance as 20
_POOLED = ("mean", "sum", "max")
RESISTANCE_BUCKETS = 40  # of half an ohm each
_MAX_DEGREE = 64  # larger degrees share its embedding
Columns = int | tuple[int, ...]
"""Number of float features, or the number of values of each column of integers."""


@dataclass(frozen=True)
class GraphConfig:
    """Options of a network for graphs.

    Attributes:
        hidden: Width.
        layers: Number of blocks.
        heads: Attention heads (gt, gt-plain, gatv2).
        dropout: Probability, on features.
        attention_dropout: Probability, on attention weights (gt, gt-plain, gatv2).
        norm: "batch" or "layer", in front of each part of a block.
        readout: "mean", "sum" or "max" over the nodes of a graph; "token" is a graph token that
            attends with them (gt, gt-plain).
        neighbors: What a node of gt and gt-plain attends to: "all" nodes of its graph, or those at
            most "1", "2", ... "19" hops away.
        local: Message passing beside attention (gt, gt-plain): "gine" or None.
        num_buckets: Z (gt).
        value_encoding: Distances enter the values, too (gt).
        paths: Steps of the encoding of edges along the shortest path, 0 is none (gt).
        resistance: A bias of the resistance distance, too (gt).
        degree: An embedding of each node's degree (all networks).
        walk: Steps of the random-walk encoding, 0 is none (all networks).
        laplacian: Eigenvectors of the Laplacian encoding, 0 is none (all networks).
        virtual_node: A virtual node between blocks (all networks).
    """

    hidden: int = 64
    layers: int = 4
    heads: int = 4
    dropout: float = 0.1
    attention_dropout: float = 0.0
    norm: str = "batch"
    readout: str = "mean"
    neighbors: str = "all"
    local: str | None = "gine"
    num_buckets: int = 20
    value_encoding: bool = False
    paths: int = 0
    resistance: bool = False
    degree: bool = False
    walk: int = 0
    laplacian: int = 0
    virtual_node: bool = False


def node_encoder(features: Columns, config: GraphConfig) -> NodeEncoder:
    """Features of the nodes and the encodings of a config, added up to `hidden` features."""
    encodings: list[LaplacianEncoding | WalkEncoding] = []
    if config.walk:
        encodings.append(WalkEncoding(config.walk, config.hidden))
    if config.laplacian:
        encodings.append(LaplacianEncoding(config.laplacian, config.hidden))
    degree = DegreeEmbedding(_MAX_DEGREE, config.hidden) if config.degree else None
    return NodeEncoder(features, config.hidden, degree=degree, encodings=encodings, normalize=True)


def precomputed(name: str, config: GraphConfig) -> dict[str, int]:
    """What the graphs have to hold beside their features for network `name`.

    Returns:
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


def build(
    name: str,
    config: GraphConfig,
    *,
    node_in: Columns,
    edge_in: Columns | None,
    num_outputs: int,
    level: str = "graph",
) -> GraphNetwork:
    """A network ``model(batch) -> [num_graphs, num_outputs]``.

    Args:
        name: gt (attention over the graph with distance encoding), gt-plain (without), both beside
            message passing unless ``local=None``; gine, gcn and gatv2 with edge features; mlp,
            which ignores the edges.
        config: Options.
        node_in: Number of float features of a node, or the number of values of each column.
        edge_in: The same of edges, or None where they have no features.
        num_outputs: Outputs.
        level: "graph", or "node" for outputs of every node.

    Raises:
        ValueError: An unknown name or option, or `heads` does not divide `hidden`.
    """
    _check(name, config)
    c = config
    blocks = [
        GraphBlock(_aggregations(name, c, edge_in is not None), c.hidden, c.dropout, c.norm)
        for _ in range(c.layers)
    ]
    head = nn.Sequential(
        nn.Linear(c.hidden, c.hidden), nn.GELU(), nn.Dropout(c.dropout),
        nn.Linear(c.hidden, num_outputs),
    )  # fmt: skip
    between = c.layers - 1 if c.virtual_node else 0
    return GraphNetwork(
        node_encoder(node_in, c),
        None if edge_in is None else feature_encoder(edge_in, c.hidden),
        blocks, make_norm(c.norm, c.hidden), head,
        readout=GraphReadout(c.readout) if level == "graph" else None,
        pairs=_pairs(c, edge_in, name == "gt") if name in ATTENDING else None,
        token=c.readout == "token",
        virtual_nodes=[VirtualNodes(c.hidden, c.dropout) for _ in range(between)],
    )  # fmt: skip


def _aggregations(name: str, c: GraphConfig, edges: bool) -> list[nn.Module]:
    """What a block of network `name` adds to its nodes."""
    found: list[nn.Module] = []
    sizes = (c.hidden, c.hidden // c.heads, c.heads)
    if name in ATTENDING:
        attention = SPDTransformerConv(
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
        edge_dim = c.hidden if edges else None
        conv = GATv2Conv(*sizes, dropout=c.attention_dropout, edge_dim=edge_dim)
        found.append(Convolution(conv))
    return found


def _pairs(config: GraphConfig, edge_in: Columns | None, encoded: bool) -> PairBias:
    paths = resistance = None
    if encoded and config.paths:
        if edge_in is None:
            raise ValueError(f"paths: got {config.paths}, expected 0: the edges have no features")
        paths = PathEncoding(edge_in, config.heads, config.paths)
    if encoded and config.resistance:
        resistance = BucketBias(RESISTANCE_BUCKETS, config.heads)
    return PairBias(config.neighbors, paths, resistance)


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
