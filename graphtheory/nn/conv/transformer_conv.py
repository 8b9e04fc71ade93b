"""PyG's TransformerConv on the core."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor
from torch_geometric.nn import conv as pyg
from torch_geometric.typing import OptTensor

from graphtheory import ops
from graphtheory.graph import Neighborhood
from graphtheory.nn.attention import Bias
from graphtheory.nn.conv import edge_features, on_core
from graphtheory.nn.conv.adjacency import Adjacency, adjacency_of
from graphtheory.nn.conv.dot_product import DotProduct


class TransformerConv(DotProduct, pyg.TransformerConv):
    r"""Multi-head dot-product attention over the neighbors, with edge features and a gate.

    .. math::
        x'_i = W_1 x_i + \sum_{j \in N(i)} \alpha_{ij} (W_2 x_j + W_6 e_{ij}), \qquad
        \alpha_{ij} = \operatorname{softmax}_j
        \frac{(W_3 x_i)^\top (W_4 x_j + W_6 e_{ij})}{\sqrt{d}}

    Same arguments, parameters, state dict and results as PyG's layer of this name, whose
    documentation explains the arguments; `aggr` must be a sum, and `flow="target_to_source"`
    requires an edge list. A node without neighbors gives W_1 x_i. No tensor has both an edge axis
    and a feature axis but e itself: edge features enter `ops.attention` as
    :math:`(W_6^\top W_3 x_i)^\top e_{ij}` and :math:`W_6 \sum_j \alpha_{ij} e_{ij}`, or, where that
    is smaller, as :math:`W_6 e` of all edges.

    Attributes:
        recompute: Keep x in place of queries, keys and values, which the backward pass makes
            again: less memory for more time. With edge features on a CPU it also computes one
            gradient after another and reads e without a copy. False at the start.

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
    value_table = None
    __init__ = on_core.checked(pyg.TransformerConv.__init__)

    def forward(
        self,
        x: Tensor | tuple[Tensor, Tensor],
        edge_index: Any,
        edge_attr: Tensor | None = None,
        return_attention_weights: bool | None = None,
    ) -> Any:
        if self.needs_messages():
            edge_index = self.for_messages(edge_index)
            return super().forward(x, edge_index, edge_attr, return_attention_weights or None)
        channels = self.lin_key.in_channels, self.lin_query.in_channels
        x_src, x_dst = on_core.two_features(x, *channels, self.flow)
        adj = adjacency_of(edge_index, x_src.size(0), x_dst.size(0), flow=self.flow)
        edge_attr = edge_features.given_features(edge_attr, edge_index, self.edge_dim)
        features = None
        if edge_attr is not None or self.lin_edge is not None:
            features = edge_features.checked_features(edge_attr, adj.num_given, self.lin_edge)
        out, weights = self._attend(
            x_src, x_dst, adj, features, None, None, want=bool(return_attention_weights)
        )
        out = self._with_root(out.flatten(1) if self.concat else out.mean(1), x_dst)
        if weights is None:
            return out
        return out, adj.with_weights(edge_index, weights, stored=False)

    def _softmax(
        self, query: Tensor, key: Tensor, adj: Adjacency, nb: Neighborhood, bias: Bias,
        edges: tuple[ops.EdgeFeatures, ...],
    ) -> Tensor:  # fmt: skip
        logits = ops.edge_dot(query, key, nb)
        for one in edges:
            if one.query is not None:
                logits = logits + edge_features.edge_logits(one.query, one.features, adj)
        return ops.edge_softmax(logits * self.out_channels**-0.5, adj.neighborhood)

    def _with_root(self, out: Tensor, x_dst: Tensor) -> Tensor:
        if not self.root_weight:
            return out
        root = self.lin_skip(x_dst)
        if self.lin_beta is None:
            return out + root
        gate = self.lin_beta(torch.cat([out, root, out - root], -1)).sigmoid()
        return gate * root + (1 - gate) * out
