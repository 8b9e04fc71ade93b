"""Three networks of PyG's `examples` folder, with the losses and optimizers they have there."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, dropout, elu
from torch_geometric.data import Data
from torch_geometric.nn import GATConv, GCNConv, MaskLabel, TransformerConv


class GCN(nn.Module):
    """gcn.py: two layers of 16 features, dropout of features."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.conv1 = GCNConv(features, 16)
        self.conv2 = GCNConv(16, classes)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = self.conv1(dropout(x, 0.5, self.training), edge_index).relu()
        return self.conv2(dropout(x, 0.5, self.training), edge_index)

    def loss(self, graph: Data) -> Tensor:
        out = self(graph.x, graph.edge_index)
        return cross_entropy(out[graph.train_mask], graph.y[graph.train_mask])

    def optimizer(self) -> torch.optim.Optimizer:
        first = {"params": self.conv1.parameters(), "weight_decay": 5e-4}
        return torch.optim.Adam([first, {"params": self.conv2.parameters()}], lr=0.01)


class GAT(nn.Module):
    """gat.py: 8 heads of 8, then one, dropout of features and of attention weights."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.conv1 = GATConv(features, 8, heads=8, dropout=0.6)
        self.conv2 = GATConv(64, classes, concat=False, dropout=0.6)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = elu(self.conv1(dropout(x, 0.6, self.training), edge_index))
        return self.conv2(dropout(x, 0.6, self.training), edge_index)

    def loss(self, graph: Data) -> Tensor:
        out = self(graph.x, graph.edge_index)
        return cross_entropy(out[graph.train_mask], graph.y[graph.train_mask])

    def optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=0.005, weight_decay=5e-4)


class UniMP(nn.Module):
    """unimp_arxiv.py: three gated transformer layers of 2 heads; a part of the labels is given."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        options = {"heads": 2, "beta": True, "dropout": 0.3}
        self.labels = MaskLabel(classes, features)
        self.conv1 = TransformerConv(features, 32, **options)
        self.norm1 = nn.LayerNorm(64)
        self.conv2 = TransformerConv(64, 32, **options)
        self.norm2 = nn.LayerNorm(64)
        self.conv3 = TransformerConv(64, classes, concat=False, **options)

    def loss(self, graph: Data) -> Tensor:
        given = MaskLabel.ratio_mask(graph.train_mask, 0.65)
        x = self.labels(graph.x, graph.y, given)
        x = self.norm1(self.conv1(x, graph.edge_index)).relu()
        x = self.norm2(self.conv2(x, graph.edge_index)).relu()
        out = self.conv3(x, graph.edge_index)
        asked = graph.train_mask ^ given
        return cross_entropy(out[asked], graph.y[asked])

    def optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=0.001, weight_decay=5e-4)


EXAMPLES = {"gcn.py": GCN, "gat.py": GAT, "unimp_arxiv.py": UniMP}
