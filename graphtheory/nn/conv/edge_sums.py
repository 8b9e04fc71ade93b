"""Baselines for graphs with edge features: sums over neighbors of source node plus edge."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch_geometric.nn import GINConv, GINEConv
from torch_geometric.nn.conv import MessagePassing
from torch_geometric.utils import degree


def gine(width: int, *, edges: bool) -> nn.Module:
    """GIN with a two-layer network and batch norm; with `edges` PyG's GINEConv."""
    network = nn.Sequential(
        nn.Linear(width, 2 * width), nn.BatchNorm1d(2 * width), nn.ReLU(),
        nn.Linear(2 * width, width),
    )  # fmt: skip
    return (GINEConv if edges else GINConv)(network, train_eps=True)


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
