"""Base class of GATConv and GATv2Conv: from attention logits to the output."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from graphtheory import ops
from graphtheory.nn.conv import on_core
from graphtheory.nn.conv.adjacency import Adjacency
from graphtheory.nn.conv.given_edges import in_rows


class GATBase(on_core.OnCore):
    """Mixin of the layers whose attention logits go through a LeakyReLU."""

    def _edge_features(
        self, adj: Adjacency, edge_attr: Tensor | None, edge_index: Any
    ) -> Tensor | None:
        """[E, edge_dim] in CSR order, self-loops included; None without `edge_dim`."""
        edge_attr = on_core.given_features(edge_attr, edge_index, self.edge_dim)
        if edge_attr is None or self.lin_edge is None:
            return None
        edge_attr = on_core.edge_features(edge_attr, adj.num_given, self.lin_edge.in_channels)
        return in_rows(adj, adj.with_loops(edge_attr, self.fill_value))

    def _attend(self, adj: Adjacency, logits: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Weighted sums [N_dst, H, C], and attention weights [E, H] after dropout."""
        weights = ops.edge_softmax(logits, adj.neighborhood)
        weights = nn.functional.dropout(weights, self.dropout, self.training)
        return ops.aggregate(weights, value, adj.neighborhood), weights

    def _finish(self, out: Tensor, x_dst: Tensor | None) -> Tensor:
        """Concatenate or average the heads, then add residual and bias."""
        out = out.flatten(1) if self.concat else out.mean(1)
        if self.res is not None and x_dst is not None:
            out = out + self.res(x_dst)
        return out if self.bias is None else out + self.bias
