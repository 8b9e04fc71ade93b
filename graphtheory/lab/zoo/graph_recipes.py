"""Networks for graphs as GNN+ and OGB build them: norm, activation, dropout behind each layer."""

from itertools import chain, pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.nn import GINConv
from torch_geometric.nn import GINEConv as PyGsGINEConv
from torch_geometric.nn.conv import MessagePassing
from torch_geometric.utils import degree

from graphtheory import nn as layers
from graphtheory.nn.conv.weighted_sums import GINEConv
from graphtheory.ops.call import sum_type

# Stacks of blocks that a model may have, its default first; other models have "pre" alone.
STACKS = {"gcn": ("pre", "post", "ogb"), "gine": ("pre", "post", "ogb"), "gatedgcn": ("post",)}
_ACTIVATIONS: dict[str, type[nn.Module]] = {"gelu": nn.GELU, "relu": nn.ReLU}


def gine(width: int, *, edges: bool) -> nn.Module:
    """GIN with a two-layer network and batch norm; with `edges` PyG's GINEConv."""
    network = nn.Sequential(
        nn.Linear(width, 2 * width), nn.BatchNorm1d(2 * width), nn.ReLU(),
        nn.Linear(2 * width, width),
    )  # fmt: skip
    return (PyGsGINEConv if edges else GINConv)(network, train_eps=True)


class EdgeGCNConv(MessagePassing):
    r"""GCN of `width` features, whose messages hold those of their edge, if any.

    .. math:: x'_i = \frac{\operatorname{ReLU}(W x_i + r)}{d_i} + \sum_{j \in N(i)}
        \frac{\operatorname{ReLU}(W x_j + e_{ij})}{\sqrt{d_i d_j}}, \qquad d_i = 1 + |N(i)|

    Source: Hu et al. (2020), Open Graph Benchmark, the GCN of its molecular baselines.
    """

    def __init__(self, width: int) -> None:
        super().__init__(aggr="add")
        self.linear, self.root = nn.Linear(width, width), nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor | None = None) -> Tensor:
        x = self.linear(x)
        count = degree(edge_index[1], x.size(0), x.dtype) + 1
        scale = count.rsqrt()
        weight = scale[edge_index[0]] * scale[edge_index[1]]
        if edge_attr is None:
            edge_attr = x.new_zeros(1)
        sums = self.propagate(edge_index, x=x, edge_attr=edge_attr, weight=weight)
        return sums + (x + self.root).relu() / count[:, None]

    def message(self, x_j: Tensor, edge_attr: Tensor, weight: Tensor) -> Tensor:
        return weight[:, None] * (x_j + edge_attr).relu()


class EdgeSum(nn.Module):
    r"""Sum of messages without the node itself, :math:`\sum_j \operatorname{ReLU}(W x_j + e_{ij})`.

    The code of GNN+ (Luo et al., 2025) calls it a GCN with edge features; nothing is normalized.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width, bias=False)  # the norm behind it has a bias
        self.sums = GINEConv(nn.Identity(), eps=-1.0)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        return self.sums(self.linear(x), edge_index, edge_attr)


class PostBlock(nn.Module):
    """One layer with what follows it; a feed-forward part has norms in front and behind.

    It maps nodes and edges to nodes and edges; gatedgcn alone changes the edges.
    """

    def __init__(self, name: str, c: Any, edge_in: Any, *, last: bool) -> None:
        super().__init__()
        width, act = c.hidden, _ACTIVATIONS[c.activation]
        edges, self.edge_encoder, self.ffn = edge_in is not None, None, None
        self.norm: nn.Module = nn.BatchNorm1d(width)
        self.act: nn.Module = nn.Identity() if last else act()
        if c.stack == "ogb":
            self.edge_encoder = layers.feature_encoder(edge_in, width) if edges else None
            self.conv = gine(width, edges=edges) if name == "gine" else EdgeGCNConv(width)
        elif name == "gatedgcn":
            self.conv, self.edge_norm = layers.GatedGCNConv(*[width] * 3), nn.BatchNorm1d(width)
        elif name == "gine":
            inner = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))
            self.conv, self.norm, self.act = GINEConv(inner), nn.Identity(), nn.ReLU()
        else:
            self.conv = EdgeSum(width) if edges else layers.GCNConv(width, width)
        self.drop, self.residual = nn.Dropout(c.dropout), c.residual
        if c.ffn:
            self.ffn_norm, self.last_norm = nn.BatchNorm1d(width), nn.BatchNorm1d(width)
            self.ffn = nn.Sequential(
                nn.Linear(width, 2 * width), act(), nn.Dropout(c.dropout),
                nn.Linear(2 * width, width), nn.Dropout(c.dropout),
            )  # fmt: skip

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor | None) -> tuple[Any, Any]:
        encoded = edge_attr if self.edge_encoder is None else self.edge_encoder(edge_attr)
        out = self.conv(x, edge_index, *(() if encoded is None else (encoded,)))
        if isinstance(out, tuple):
            out, states = out
            states = self.drop(self.act(self.edge_norm(states)))
            edge_attr = edge_attr + states if self.residual else states
        out = self.drop(self.act(self.norm(out)))
        x = x + out if self.residual else out
        if self.ffn is not None:
            x = self.ffn_norm(x)
            x = self.last_norm(x + self.ffn(x))
        return x, edge_attr


class PostNetwork(nn.Module):
    """A network ``model(batch) -> [num_graphs, num_outputs]`` of such blocks.

    With stack="ogb" each block encodes the edges, the last has no activation, and virtual nodes are
    replaced, not added to, by what OGB's network makes of them and of the nodes.
    """

    def __init__(
        self, name: str, config: Any, *, node_in: Any, edge_in: Any, num_outputs: int, level: str
    ) -> None:
        super().__init__()
        c, edge_in = config, edge_in if config.edge_features else None
        if edge_in is None and name != "gcn" and c.stack == "post":
            raise ValueError("edge_features: got none, expected some of edges with stack='post'")
        if c.walk and not 0 < c.walk_width < c.hidden:
            expected = f"1 or more, and less than hidden={c.hidden}"
            raise ValueError(f"walk_width: got {c.walk_width}, expected {expected}")
        width = c.hidden - (c.walk_width if c.walk else 0)
        self.encoder = layers.NodeEncoder(node_in, width)
        self.walk = layers.WalkEncoding(c.walk, c.walk_width) if c.walk else None
        self.reads_edges, ogb = edge_in is not None, c.stack == "ogb"
        once = self.reads_edges and not ogb
        self.edge_encoder = layers.feature_encoder(edge_in, c.hidden) if once else None
        lasts = (ogb and i == c.layers for i in range(1, c.layers + 1))
        self.blocks = nn.ModuleList(PostBlock(name, c, edge_in, last=last) for last in lasts)
        self.readout = layers.GraphReadout(c.readout) if level == "graph" else None
        self.head, self.drop = _head(c, num_outputs), nn.Dropout(c.dropout)
        self.virtual = nn.ModuleList(
            nn.Sequential(
                nn.Linear(c.hidden, 2 * c.hidden), nn.BatchNorm1d(2 * c.hidden), nn.ReLU(),
                nn.Linear(2 * c.hidden, c.hidden), nn.BatchNorm1d(c.hidden), nn.ReLU(), self.drop,
            )
            for _ in range(c.layers - 1 if c.virtual_node else 0)
        )  # fmt: skip
        self.first = nn.Parameter(torch.zeros(c.hidden)) if c.virtual_node else None

    def forward(self, batch: Any) -> Tensor:
        x, edges = self.encoder(batch), batch.edge_attr if self.reads_edges else None
        if self.walk is not None:
            x = torch.cat([x, self.walk(batch.random_walk_pe)], 1)
        if self.edge_encoder is not None:
            edges = self.edge_encoder(edges)
        state = None if self.first is None else self.first.expand(batch.num_graphs, -1)
        for i, block in enumerate(self.blocks):
            if state is not None:
                x = x + state[batch.batch]
                if i < len(self.virtual):
                    wide = sum_type(state)
                    pooled = state.to(wide).index_add(0, batch.batch, x.to(wide))
                    state = self.virtual[i](pooled.to(state.dtype))
            x, edges = block(x, batch.edge_index, edges)
        return self.head(x if self.readout is None else self.readout(x, ptr=batch.ptr))


def _head(c: Any, outputs: int) -> nn.Sequential:
    """Linear maps of constant width, with dropout in front, or of halved widths without."""
    halve, act = c.head_width == "halving", _ACTIVATIONS[c.activation]
    widths = [c.hidden // 2**i if halve else c.hidden for i in range(c.head_layers)]
    drop = [] if halve or c.stack == "ogb" else [nn.Dropout(c.dropout)]
    inner = ((*drop, nn.Linear(*ends), act()) for ends in pairwise(widths))
    return nn.Sequential(*chain(*inner), *drop, nn.Linear(widths[-1], outputs))
