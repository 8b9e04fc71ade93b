"""PyG's GATConv on the core."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor
from torch_geometric.nn import conv as pyg
from torch_geometric.typing import OptPairTensor, OptTensor, Size

from graphtheory.nn.conv import on_core
from graphtheory.nn.conv.adjacency import Adjacency, adjacency_of
from graphtheory.nn.conv.gat_base import GATBase
from graphtheory.ops import additive_attention
from graphtheory.ops.reference import additive_logits


class GATConv(GATBase, pyg.GATConv):
    r"""GAT attention: LeakyReLU of source, target and edge scores.

    .. math::
        x'_i = \sum_{j \in N(i) \cup \{i\}} \alpha_{ij} \Theta x_j, \qquad
        \alpha_{ij} = \operatorname{softmax}_j\, \operatorname{leaky}\big(
        a_s^\top \Theta x_j + a_t^\top \Theta x_i + a_e^\top \Theta_e e_{ij} \big)

    Same arguments, parameters, state dict and results as PyG's layer of this name. A node
    without neighbors attends to itself, and gives zeros without self-loops. No
    tensor has both an edge axis and a feature axis per head: edge features are multiplied by the
    vector :math:`\Theta_e^\top a_e`.

    Args:
        in_channels: Input features per node; -1 infers them from the first input; a pair for
            source and target nodes, which then have one weight matrix each.
        out_channels: Output features per head.
        heads: Number of attention heads.
        concat: Concatenate the heads; otherwise average them.
        negative_slope: Slope of the LeakyReLU.
        dropout: Probability of dropping an attention weight in training.
        add_self_loops: Replace existing self-loops by one per node that is both source and target,
            the first min(N_src, N_dst).
        edge_dim: Features per edge, if any.
        fill_value: Edge features of self-loops: a number, a tensor, or how to reduce the features
            of a node's incoming edges.
        bias: Add a bias to the output.
        residual: Add a linear map of the target node's features.
        **kwargs: Arguments of PyG's `MessagePassing`; `aggr` must be a sum, and
            `flow="target_to_source"` requires an edge list.

    Shapes:
        - **x:** [N, in_channels], or a pair ([N_src, .], [N_dst, .] or None).
        - **edge_index:** [2, E], `EdgeIndex`, torch sparse or `SparseTensor` [N_dst, N_src], or a
          `Neighborhood`.
        - **edge_attr:** [E, edge_dim], in the order of the given edges.
        - **size:** (N_src, N_dst), needed if x_dst is None.
        - **output:** [N_dst, heads * out_channels], or [N_dst, out_channels] without `concat`; with
          `return_attention_weights=True` also (edge_index, weights [E, heads] after dropout),
          self-loops last.

    Raises:
        ValueError: If an option or a shape is not supported.
        IndexError: If a node index is out of range.

    Source:
        Velickovic et al. (2018), eq. (3) to (6). Differs from PyG: accepts edge features together
        with self-loops for sparse matrices, too, and with `edge_dim=1` takes the values of a
        `SparseTensor` as features if there is one value per edge.

    Example:
        >>> import torch
        >>> conv = GATConv(16, 8, heads=4)
        >>> conv(torch.randn(3, 16), torch.tensor([[0, 1, 2], [1, 2, 0]])).shape
        torch.Size([3, 32])
    """

    propagate_type: ClassVar[dict[str, Any]] = {"x": OptPairTensor, "alpha": Tensor}
    edge_updater_type: ClassVar[dict[str, Any]] = {"alpha": OptPairTensor, "edge_attr": OptTensor}

    def __init__(
        self,
        in_channels: int | tuple[int, int],
        out_channels: int,
        heads: int = 1,
        concat: bool = True,
        negative_slope: float = 0.2,
        dropout: float = 0.0,
        add_self_loops: bool = True,
        edge_dim: int | None = None,
        fill_value: float | Tensor | str = "mean",
        bias: bool = True,
        residual: bool = False,
        **kwargs: Any,
    ) -> None:
        on_core.check_channels(in_channels)
        on_core.check_counts(out_channels=out_channels, heads=heads)
        super().__init__(
            in_channels, out_channels, heads, concat, negative_slope, dropout, add_self_loops,
            edge_dim, fill_value, bias, residual, **kwargs,
        )  # fmt: skip
        self.check_options(self)

    def forward(
        self,
        x: Tensor | tuple[Tensor, Tensor | None],
        edge_index: Any,
        edge_attr: Tensor | None = None,
        size: Size = None,
        return_attention_weights: bool | None = None,
    ) -> Any:
        """Attend; see the class for shapes."""
        if self.needs_messages():
            edge_index = self.for_messages(edge_index)
            return super().forward(x, edge_index, edge_attr, size, return_attention_weights or None)
        x_src, x_dst = on_core.pair(x, self.flow)
        num_dst = on_core.num_targets(x_src, x_dst, size)
        adj = adjacency_of(
            edge_index, x_src.size(0), num_dst, add_self_loops=self.add_self_loops, flow=self.flow
        )
        source, target = self._project(x_src, x_dst)
        of_source, of_target = self._node_scores(source, target)
        edge = self._edge_scores(adj, edge_attr, edge_index)
        if not return_attention_weights:
            out = additive_attention(
                source, of_source, of_target, adj.neighborhood, edge=edge,
                negative_slope=self.negative_slope, dropout=self.dropout if self.training else 0.0,
            )  # fmt: skip
            return self._finish(out, x_dst)
        logits = additive_logits(of_source, of_target, edge, adj.neighborhood, self.negative_slope)
        out, weights = self._attend(adj, logits, source)
        return self._finish(out, x_dst), adj.with_weights(edge_index, weights)

    def _project(self, x_src: Tensor, x_dst: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Projected source and target features [N, H, C], by one shared matrix or one each."""
        pair = (self.lin, self.lin) if self.lin is not None else (self.lin_src, self.lin_dst)
        on_core.check_features("x", x_src, pair[0].in_channels)
        source = pair[0](x_src).view(-1, self.heads, self.out_channels)
        if x_dst is None:
            return source, None
        if x_dst is x_src and self.lin is not None:
            return source, source
        on_core.check_features("x", x_dst, pair[1].in_channels)
        return source, pair[1](x_dst).view(-1, self.heads, self.out_channels)

    def _node_scores(self, source: Tensor, target: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Source and target scores [N, H], as a product with a block-diagonal matrix."""
        if target is source:
            att = torch.cat([self.att_src, self.att_dst])
            of_source, of_target = (source.flatten(1) @ _block_diagonal(att)).split(self.heads, 1)
            return of_source, of_target
        of_target = None if target is None else target.flatten(1) @ _block_diagonal(self.att_dst)
        return source.flatten(1) @ _block_diagonal(self.att_src), of_target

    def _edge_scores(self, adj: Adjacency, edge_attr: Tensor | None, given: Any) -> Tensor | None:
        """Edge scores [E, H] in CSR order; -inf for replaced self-loops."""
        features = self._edge_features(adj, edge_attr, given)
        out = None
        if features is not None:
            matrix = on_core.matrix_of(self.lin_edge, features, self.heads)  # [H, D, C]
            vectors = (matrix * self.att_edge.view(self.heads, 1, -1)).sum(-1)
            out = features @ vectors.t()
        if adj.replaced is None:
            return out
        if out is None:
            out = self.att_src.new_zeros(adj.replaced.size(0), self.heads)
        return out.masked_fill(adj.replaced[:, None], -torch.inf)


def _block_diagonal(att: Tensor) -> Tensor:
    """[K, H, C] -> [H * C, K * H], the matrix that maps a head's features to its K scores."""
    return torch.diag_embed(att.transpose(1, 2)).permute(2, 1, 0, 3).flatten(2).flatten(0, 1)
