"""Networks of PyG's `examples` folder, with the losses, widths and optimizers they have there."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, dropout, elu
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn import (
    MLP,
    BatchNorm,
    FastRGCNConv,
    GATConv,
    GCNConv,
    GINConv,
    GraphSAGE,
    HANConv,
    HGTConv,
    MaskLabel,
    PNAConv,
    RGCNConv,
    SAGEConv,
    Sequential,
    TransformerConv,
    global_add_pool,
    to_hetero,
)
from torch_geometric.utils import degree


class Example(nn.Module):
    """A network whose forward may be compiled, the loss of a batch, and the optimizer."""

    lr, weight_decay = 0.01, 0.0

    def loss(self, batch: Any) -> Tensor:
        raise NotImplementedError

    def optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=self.lr, weight_decay=self.weight_decay)


def on_mask(out: Tensor, graph: Any) -> Tensor:
    return cross_entropy(out[graph.train_mask], graph.y[graph.train_mask])


class GCN(Example):
    """gcn.py: two layers of 16 features, dropout of features."""

    def __init__(self, graph: Data) -> None:
        super().__init__()
        self.conv1 = GCNConv(graph.num_features, 16)
        self.conv2 = GCNConv(16, graph.num_classes)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = self.conv1(dropout(x, 0.5, self.training), edge_index).relu()
        return self.conv2(dropout(x, 0.5, self.training), edge_index)

    def loss(self, batch: Data) -> Tensor:
        return on_mask(self(batch.x, batch.edge_index), batch)

    def optimizer(self) -> torch.optim.Optimizer:
        first = {"params": self.conv1.parameters(), "weight_decay": 5e-4}
        return torch.optim.Adam([first, {"params": self.conv2.parameters()}], lr=0.01)


class GAT(Example):
    """gat.py: 8 heads of 8, then one, dropout of features and of attention weights."""

    lr, weight_decay = 0.005, 5e-4

    def __init__(self, graph: Data) -> None:
        super().__init__()
        self.conv1 = GATConv(graph.num_features, 8, heads=8, dropout=0.6)
        self.conv2 = GATConv(64, graph.num_classes, concat=False, dropout=0.6)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = elu(self.conv1(dropout(x, 0.6, self.training), edge_index))
        return self.conv2(dropout(x, 0.6, self.training), edge_index)

    def loss(self, batch: Data) -> Tensor:
        return on_mask(self(batch.x, batch.edge_index), batch)


class UniMP(Example):
    """unimp_arxiv.py: three gated transformer layers of 2 heads; a part of the labels is given."""

    lr, weight_decay = 0.001, 5e-4

    def __init__(self, graph: Data) -> None:
        super().__init__()
        options = {"heads": 2, "beta": True, "dropout": 0.3}
        self.labels = MaskLabel(graph.num_classes, graph.num_features)
        self.conv1 = TransformerConv(graph.num_features, 32, **options)
        self.norm1 = nn.LayerNorm(64)
        self.conv2 = TransformerConv(64, 32, **options)
        self.norm2 = nn.LayerNorm(64)
        self.conv3 = TransformerConv(64, graph.num_classes, concat=False, **options)

    def forward(self, x: Tensor, y: Tensor, edge_index: Tensor, given: Tensor) -> Tensor:
        x = self.labels(x, y, given)
        x = self.norm1(self.conv1(x, edge_index)).relu()
        x = self.norm2(self.conv2(x, edge_index)).relu()
        return self.conv3(x, edge_index)

    def loss(self, batch: Data) -> Tensor:
        given = MaskLabel.ratio_mask(batch.train_mask, 0.65)
        out = self(batch.x, batch.y, batch.edge_index, given)
        asked = batch.train_mask ^ given
        return cross_entropy(out[asked], batch.y[asked])


class UnsupervisedSAGE(Example):
    """graph_sage_unsup.py: two layers of 64 features; edges and pairs that are none."""

    def __init__(self, graph: Data) -> None:
        super().__init__()
        self.sage = GraphSAGE(graph.num_features, hidden_channels=64, num_layers=2)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.sage(x, edge_index)

    def loss(self, batch: Data) -> Tensor:
        source, target = self(batch.x, batch.edge_index)[batch.edge_label_index]
        return binary_cross_entropy_with_logits((source * target).sum(-1), batch.edge_label)


class SampledSAGE(Example):
    """reddit.py: two layers of 256 features on sampled neighbors, dropout of features."""

    def __init__(self, graph: Data) -> None:
        super().__init__()
        self.conv1 = SAGEConv(graph.num_features, 256)
        self.conv2 = SAGEConv(256, graph.num_classes)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = self.conv1(x, edge_index).relu_()
        return self.conv2(dropout(x, 0.5, self.training), edge_index)

    def loss(self, batch: Data) -> Tensor:
        out = self(batch.x, batch.edge_index)[: batch.batch_size]
        return cross_entropy(out, batch.y[: batch.batch_size])


class GIN(Example):
    """mutag_gin.py: five layers of 32 features with networks of two, a sum over the graph."""

    def __init__(self, graphs: Any) -> None:
        super().__init__()
        widths = [graphs.num_features, 32, 32, 32, 32]
        self.convs = nn.ModuleList(GINConv(MLP([width, 32, 32])) for width in widths)
        self.mlp = MLP([32, 32, graphs.num_classes], norm=None, dropout=0.5)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor, size: int) -> Tensor:
        for conv in self.convs:
            x = conv(x, edge_index).relu()
        return self.mlp(global_add_pool(x, batch, size))

    def loss(self, batch: Any) -> Tensor:
        return cross_entropy(
            self(batch.x, batch.edge_index, batch.batch, batch.num_graphs), batch.y
        )


class PNA(Example):
    """pna.py: four layers of 75 features in 5 towers, 4 aggregators, 3 scalers, kinds of bonds."""

    lr = 0.001

    def __init__(self, graphs: list[Data]) -> None:
        super().__init__()
        degrees = [degree(g.edge_index[1], g.num_nodes, torch.long) for g in graphs]
        options = {
            "aggregators": ["mean", "min", "max", "std"],
            "scalers": ["identity", "amplification", "attenuation"],
            "deg": torch.bincount(torch.cat(degrees)),
            "edge_dim": 50, "towers": 5, "pre_layers": 1, "post_layers": 1, "divide_input": False,
        }  # fmt: skip
        self.atoms, self.bonds = nn.Embedding(21, 75), nn.Embedding(4, 50)
        self.convs = nn.ModuleList(PNAConv(75, 75, **options) for _ in range(4))
        self.norms = nn.ModuleList(BatchNorm(75) for _ in range(4))
        sizes = [nn.Linear(75, 50), nn.ReLU(), nn.Linear(50, 25), nn.ReLU(), nn.Linear(25, 1)]
        self.mlp = nn.Sequential(*sizes)

    def forward(
        self, x: Tensor, edge_index: Tensor, edge_attr: Tensor, batch: Tensor, size: int
    ) -> Tensor:
        x, edge_attr = self.atoms(x), self.bonds(edge_attr)
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = norm(conv(x, edge_index, edge_attr)).relu()
        return self.mlp(global_add_pool(x, batch, size))

    def loss(self, batch: Any) -> Tensor:
        given = batch.x, batch.edge_index, batch.edge_attr, batch.batch, batch.num_graphs
        return (self(*given).squeeze() - batch.y).abs().mean()


class RGCN(Example):
    """rgcn.py: ids of nodes, 16 features, 30 bases; `FastRGCNConv` where memory allows it."""

    kind, weight_decay = RGCNConv, 5e-4

    def __init__(self, graph: Data) -> None:
        super().__init__()
        self.conv1 = self.kind(graph.num_nodes, 16, graph.num_relations, num_bases=30)
        self.conv2 = self.kind(16, graph.num_classes, graph.num_relations, num_bases=30)

    def forward(self, edge_index: Tensor, edge_type: Tensor) -> Tensor:
        x = self.conv1(None, edge_index, edge_type).relu()
        return self.conv2(x, edge_index, edge_type)

    def loss(self, batch: Data) -> Tensor:
        return on_mask(self(batch.edge_index, batch.edge_type), batch)


class FastRGCN(RGCN):
    kind = FastRGCNConv


class HGT(Example):
    """hgt_dblp.py: a linear map by kind of node, then one layer of 64 features in 2 heads."""

    lr, weight_decay = 0.005, 0.001

    def __init__(self, graph: HeteroData) -> None:
        super().__init__()
        self.maps = nn.ModuleDict({t: nn.Linear(x.size(1), 64) for t, x in graph.x_dict.items()})
        self.conv, self.last = HGTConv(64, 64, graph.metadata(), 2), nn.Linear(64, 4)

    def forward(self, x: dict[str, Tensor], edges: dict[tuple[str, str, str], Tensor]) -> Tensor:
        x = {t: self.maps[t](features).relu_() for t, features in x.items()}
        return self.last(self.conv(x, edges)["author"])

    def loss(self, batch: HeteroData) -> Tensor:
        return on_mask(self(batch.x_dict, batch.edge_index_dict), batch["author"])


class HAN(Example):
    """han_imdb.py: 8 heads, 128 features, two kinds of paths, dropout of attention weights."""

    lr, weight_decay = 0.005, 0.001

    def __init__(self, graph: HeteroData) -> None:
        super().__init__()
        self.conv = HANConv(graph.num_features, 128, graph.metadata(), heads=8, dropout=0.6)
        self.last = nn.Linear(128, 3)

    def forward(self, x: dict[str, Tensor], edges: dict[tuple[str, str, str], Tensor]) -> Tensor:
        return self.last(self.conv(x, edges)["movie"])

    def loss(self, batch: HeteroData) -> Tensor:
        return on_mask(self(batch.x_dict, batch.edge_index_dict), batch["movie"])


class HeteroSAGE(Example):
    """to_hetero_mag.py: two layers of 64 features, one of each for every kind of edges."""

    def __init__(self, graph: HeteroData) -> None:
        super().__init__()
        width = graph["paper"].num_features
        layers = [
            (SAGEConv((width, width), 64), "x, edge_index -> x"), nn.ReLU(inplace=True),
            (SAGEConv((64, 64), 64), "x, edge_index -> x"), nn.ReLU(inplace=True),
            (nn.Linear(64, graph.num_classes), "x -> x"),
        ]  # fmt: skip
        self.net = to_hetero(Sequential("x, edge_index", layers), graph.metadata(), aggr="sum")

    def forward(self, x: dict[str, Tensor], edges: dict[tuple[str, str, str], Tensor]) -> Tensor:
        return self.net(x, edges)["paper"]

    def loss(self, batch: HeteroData) -> Tensor:
        size = batch["paper"].batch_size
        out = self(batch.x_dict, batch.edge_index_dict)[:size]
        return cross_entropy(out, batch["paper"].y[:size])
