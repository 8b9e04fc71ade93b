"""Networks of PyG's that benchmarks set beside ours, called as ours are."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch_geometric.nn import SGFormer

from graphtheory.graph import Neighborhood
from graphtheory.nn import GCNConv


class OnNeighborhood(nn.Module):
    """PyG's ``network(x, edge_index, batch)`` of one graph as ``network(x, neighborhood)``."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor, neighborhood: Neighborhood) -> Tensor:
        """Outputs of every node; sparse features are made dense."""
        dense = x.to_dense() if x.layout == torch.sparse_csr else x
        one_graph = torch.zeros(len(dense), dtype=torch.int64, device=dense.device)
        return self.network(dense, neighborhood.edge_index(), one_graph)


def sgformer(
    in_channels: int, hidden_channels: int, out_channels: int, *, layers: int, dropout: float
) -> OnNeighborhood:
    """PyG's SGFormer: graph convolutions, here on our core, beside one layer of linear attention.

    Args:
        in_channels: Features of a node.
        hidden_channels: Width.
        out_channels: Classes; the outputs are their log-probabilities.
        layers: Graph convolutions.
        dropout: Probability, on features of both parts.

    Raises:
        ValueError: If there is no layer.

    Source: Wu et al. (2023), SGFormer, as `torch_geometric.nn.SGFormer`.
    """
    if layers < 1:
        raise ValueError(f"num_layers: got {layers}, expected at least 1")
    network = SGFormer(
        in_channels, hidden_channels, out_channels, trans_num_layers=1, trans_dropout=dropout,
        gnn_num_layers=layers, gnn_dropout=dropout,
    )  # fmt: skip
    convs = network.graph_conv.convs
    for i in range(len(convs)):
        convs[i] = GCNConv(hidden_channels, hidden_channels)
    return OnNeighborhood(network)
