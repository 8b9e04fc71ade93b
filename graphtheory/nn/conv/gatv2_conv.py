"""PyG's GATv2Conv on the core."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor
from torch_geometric.nn import conv as pyg
from torch_geometric.typing import OptTensor, PairTensor

from graphtheory.nn.conv import on_core
from graphtheory.nn.conv.adjacency import Adjacency, adjacency_of
from graphtheory.nn.conv.gat_base import GATBase
from graphtheory.ops import additive_score


class GATv2Conv(GATBase, pyg.GATv2Conv):
    r"""GATv2 attention: a learned vector times the LeakyReLU of the summed features.

    .. math::
        x'_i = \sum_{j \in N(i) \cup \{i\}} \alpha_{ij} \Theta_s x_j, \qquad
        \alpha_{ij} = \operatorname{softmax}_j\, a^\top \operatorname{leaky}\big(
        \Theta_s x_j + \Theta_t x_i + \Theta_e e_{ij} \big)

    Same arguments, parameters, state dict and results as PyG's layer of this name. A node
    without neighbors attends to itself, and gives zeros without self-loops. On a CPU, and on a GPU
    with Triton, no tensor has both an edge axis and a feature axis per head.

    Args:
        in_channels: Input features per node; -1 infers them from the first input; a pair for
            source and target nodes.
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
        bias: Add a bias to the output and to both projections.
        share_weights: Use the same weight matrix for source and target nodes.
        residual: Add a linear map of the target node's features.
        **kwargs: Arguments of PyG's `MessagePassing`; `aggr` must be a sum, and
            `flow="target_to_source"` requires an edge list.

    Shapes:
        - **x:** [N, in_channels], or a pair ([N_src, .], [N_dst, .]).
        - **edge_index:** [2, E], `EdgeIndex`, torch sparse or `SparseTensor` [N_dst, N_src], or a
          `Neighborhood`.
        - **edge_attr:** [E, edge_dim], in the order of the given edges.
        - **output:** [N_dst, heads * out_channels], or [N_dst, out_channels] without `concat`; with
          `return_attention_weights=True` also (edge_index, weights [E, heads] after dropout),
          self-loops last.

    Raises:
        ValueError: If an option or a shape is not supported.
        IndexError: If a node index is out of range.

    Source:
        Brody, Alon and Yahav (2022), eq. (7). Differs from PyG: accepts edge features together
        with self-loops for sparse matrices, too, and with `edge_dim=1` takes the values of a
        `SparseTensor` as features if there is one value per edge.

    Example:
        >>> import torch
        >>> conv = GATv2Conv(16, 8, heads=4)
        >>> conv(torch.randn(3, 16), torch.tensor([[0, 1, 2], [1, 2, 0]])).shape
        torch.Size([3, 32])
    """

    propagate_type: ClassVar[dict[str, Any]] = {"x": PairTensor, "alpha": Tensor}
    edge_updater_type: ClassVar[dict[str, Any]] = {"x": PairTensor, "edge_attr": OptTensor}

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
        share_weights: bool = False,
        residual: bool = False,
        **kwargs: Any,
    ) -> None:
        on_core.check_channels(in_channels)
        on_core.check_counts(out_channels=out_channels, heads=heads)
        super().__init__(
            in_channels, out_channels, heads, concat, negative_slope, dropout, add_self_loops,
            edge_dim, fill_value, bias, share_weights, residual, **kwargs,
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
        adj = adjacency_of(
            edge_index,
            x_src.size(0),
            x_dst.size(0),
            add_self_loops=self.add_self_loops,
            flow=self.flow,
        )
        source, target = self._project(x_src, x_dst)
        logits = self._logits(adj, source, target, edge_attr, edge_index)
        out, weights = self._attend(adj, logits, source)
        out = self._finish(out, x_dst)
        return (out, adj.with_weights(edge_index, weights)) if return_attention_weights else out

    def _project(self, x_src: Tensor, x_dst: Tensor) -> tuple[Tensor, Tensor]:
        """Projected source and target features [N, H, C]."""
        on_core.check_features("x", x_src, self.lin_l.in_channels)
        source = self.lin_l(x_src).view(-1, self.heads, self.out_channels)
        if x_dst is x_src and self.share_weights:
            return source, source
        on_core.check_features("x", x_dst, self.lin_r.in_channels)
        return source, self.lin_r(x_dst).view(-1, self.heads, self.out_channels)

    def _logits(
        self, adj: Adjacency, source: Tensor, target: Tensor, edge_attr: Tensor | None, given: Any
    ) -> Tensor:
        """Attention logits [E, H] in CSR order; -inf for replaced self-loops."""
        if edge_attr is not None and self.lin_edge is None:
            raise ValueError("edge_attr: got some, but the layer has edge_dim=None")
        features = self._edge_features(adj, edge_attr, given)
        matrix = None
        if features is not None:
            matrix = on_core.matrix_of(self.lin_edge, features, self.heads)
        logits = additive_score(
            source,
            target,
            self.att[0],
            adj.neighborhood,
            negative_slope=self.negative_slope,
            edge_features=features,
            edge_matrix=matrix,
        )
        if adj.replaced is None:
            return logits
        return logits.masked_fill(adj.replaced[:, None], -torch.inf)
