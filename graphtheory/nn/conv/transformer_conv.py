"""PyG's TransformerConv on the core."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch_geometric.nn import conv as pyg
from torch_geometric.typing import OptTensor

from graphtheory import ops
from graphtheory.graph import Neighborhood
from graphtheory.nn.conv import on_core, recomputed
from graphtheory.nn.conv.adjacency import Adjacency, adjacency_of
from graphtheory.nn.conv.given_edges import in_rows, project_per_edge, with_edges


class TransformerConv(on_core.OnCore, pyg.TransformerConv):
    r"""Multi-head dot-product attention over the neighbors, with edge features and a gate.

    .. math::
        x'_i = W_1 x_i + \sum_{j \in N(i)} \alpha_{ij} (W_2 x_j + W_6 e_{ij}), \qquad
        \alpha_{ij} = \operatorname{softmax}_j
        \frac{(W_3 x_i)^\top (W_4 x_j + W_6 e_{ij})}{\sqrt{d}}

    Same arguments, parameters, state dict and results as PyG's layer of this name. A node
    without neighbors gives W_1 x_i. No tensor has both an edge axis and a feature axis but e
    itself: inside the fused `ops.attention` edge features enter as
    :math:`(W_6^\top W_3 x_i)^\top e_{ij}` and :math:`W_6 \sum_j \alpha_{ij} e_{ij}`. Where these,
    one vector of the size of e per node and head, are larger than :math:`W_6 e` of all edges, that
    is computed instead.

    Args:
        in_channels: Input features per node; -1 infers them from the first input; a pair for
            source and target nodes.
        out_channels: d, output features per head.
        heads: Number of attention heads.
        concat: Concatenate the heads; otherwise average them.
        beta: Combine W_1 x_i and the sum with a learned gate, eq. (5).
        dropout: Probability of dropping an attention weight in training.
        edge_dim: Features per edge, if any.
        bias: Add a bias to W_1 to W_4.
        root_weight: Add W_1 x_i; without it there is no gate.
        **kwargs: Arguments of PyG's `MessagePassing`; `aggr` must be a sum, and
            `flow="target_to_source"` requires an edge list.

    Attributes:
        recompute: Keep x in place of queries, keys and values, which the backward pass makes
            again: less memory for more time. With edge features on a CPU it also computes one
            gradient after another and reads e where it lies, without a copy. False at the start.

    Shapes:
        - **x:** [N, in_channels], or a pair ([N_src, .], [N_dst, .]).
        - **edge_index:** [2, E], `EdgeIndex`, torch sparse or `SparseTensor` [N_dst, N_src], or a
          `Neighborhood`.
        - **edge_attr:** [E, edge_dim], in the order of the given edges.
        - **output:** [N_dst, heads * out_channels], or [N_dst, out_channels] without `concat`; with
          `return_attention_weights=True` also (edge_index, weights [E, heads]) before dropout.

    Raises:
        ValueError: If an option or a shape is not supported.
        IndexError: If a node index is out of range.

    Source:
        Shi et al. (2021), eq. (3) to (5). Differs from PyG: `return_attention_weights=False`
        returns no weights; edge features without `edge_dim` are an error; with `edge_dim=1` the
        values of a `SparseTensor` are features if there is one value per edge.

    Example:
        >>> conv = TransformerConv(16, 8, heads=4)
        >>> conv(torch.randn(3, 16), torch.tensor([[0, 1, 2], [1, 2, 0]])).shape
        torch.Size([3, 32])
    """

    propagate_type: ClassVar[dict[str, Any]] = {
        "query": Tensor, "key": Tensor, "value": Tensor, "edge_attr": OptTensor,
    }  # fmt: skip
    recompute = False

    def __init__(
        self,
        in_channels: int | tuple[int, int],
        out_channels: int,
        heads: int = 1,
        concat: bool = True,
        beta: bool = False,
        dropout: float = 0.0,
        edge_dim: int | None = None,
        bias: bool = True,
        root_weight: bool = True,
        **kwargs: Any,
    ) -> None:
        on_core.check_channels(in_channels)
        on_core.check_counts(out_channels=out_channels, heads=heads)
        super().__init__(
            in_channels, out_channels, heads, concat, beta, dropout, edge_dim, bias, root_weight,
            **kwargs,
        )  # fmt: skip
        self.check_options(self)

    def forward(
        self,
        x: Tensor | tuple[Tensor, Tensor],
        edge_index: Any,
        edge_attr: Tensor | None = None,
        return_attention_weights: bool | None = None,
    ) -> Any:
        """Attend; see the class for shapes."""
        if self.needs_messages():
            edge_index = self.for_messages(edge_index)
            return super().forward(x, edge_index, edge_attr, return_attention_weights or None)
        x_src, x_dst = on_core.two_features(x, self.flow)
        on_core.check_features("x", x_src, self.lin_key.in_channels)
        on_core.check_features("x", x_dst, self.lin_query.in_channels)
        adj = adjacency_of(edge_index, x_src.size(0), x_dst.size(0), flow=self.flow)
        edge_attr = on_core.given_features(edge_attr, edge_index, self.edge_dim)
        features = on_core.checked_features(edge_attr, adj, self.lin_edge)
        want = bool(return_attention_weights)
        if not want and recomputed.can_stream_backward(self, x_src, x_dst, features, adj):
            out = recomputed.attend(self, x_src, x_dst, adj, features, None, None)
            weights = None
        else:
            made = recomputed.Projections(self.recompute)
            with made.saving():
                out, weights = self._attend(made, x_src, x_dst, adj, features, want_weights=want)
        out = self._with_root(out.flatten(1) if self.concat else out.mean(1), x_dst)
        if weights is None:
            return out
        return out, adj.with_weights(edge_index, weights, stored=False)

    def _attend(
        self, made: recomputed.Projections, x_src: Tensor, x_dst: Tensor, adj: Adjacency,
        features: Tensor | None, *, want_weights: bool,
    ) -> tuple[Tensor, Tensor | None]:  # fmt: skip
        """Sums [N_dst, heads, out_channels], and the weights [E, heads] if they are wanted."""
        shape = (-1, self.heads, self.out_channels)
        query, key = made(self.lin_query, x_dst).view(shape), made(self.lin_key, x_src).view(shape)
        value = made(self.lin_value, x_src).view(shape)
        nb, p = adj.neighborhood, self.dropout if self.training else 0.0
        edges = weights = None
        if features is not None and project_per_edge(features, self.out_channels, nb.num_dst):
            key, value, nb = with_edges(key, value, self.lin_edge(features), adj)
        elif features is not None:
            features = in_rows(adj, features)
            matrix = on_core.matrix_of(self.lin_edge, features, self.heads)  # [H, D, C]
            edges = ops.EdgeFeatures(features, torch.einsum("nhc,hdc->nhd", query, matrix))
        if want_weights:
            weights = self._weights(query, key, adj, nb, edges)
        if edges is not None:
            out, sums = ops.attention(query, key, value, nb, dropout=p, edges=edges)
            return out + torch.einsum("nhd,hdc->nhc", sums, matrix), weights
        if weights is not None:
            return ops.aggregate(nn.functional.dropout(weights, p), value, nb), weights
        return ops.attention(query, key, value, nb, dropout=p), None

    def _weights(
        self, query: Tensor, key: Tensor, adj: Adjacency, nb: Neighborhood,
        edges: ops.EdgeFeatures | None,
    ) -> Tensor:  # fmt: skip
        """Attention weights [E, H] before dropout."""
        logits = ops.edge_dot(query, key, nb)
        if edges is not None and edges.query is not None:
            logits = logits + on_core.edge_logits(edges.query, edges.features, adj)
        return ops.edge_softmax(logits * self.out_channels**-0.5, adj.neighborhood)

    def _with_root(self, out: Tensor, x_dst: Tensor) -> Tensor:
        if not self.root_weight:
            return out
        root = self.lin_skip(x_dst)
        if self.lin_beta is None:
            return out + root
        gate = self.lin_beta(torch.cat([out, root, out - root], -1)).sigmoid()
        return gate * root + (1 - gate) * out
