"""PyG's GATConv and GATv2Conv on the core."""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch_geometric.nn import conv as pyg
from torch_geometric.typing import OptPairTensor, OptTensor, PairTensor, Size

from graphtheory import ops
from graphtheory.nn.conv import again, on_core
from graphtheory.nn.conv.adjacency import Adjacency, adjacency_of
from graphtheory.nn.conv.direct import direct
from graphtheory.nn.conv.edge_features import edge_features, given_features, in_rows, matrix_of
from graphtheory.ops import gat_layers
from graphtheory.ops.reference import additive_logits


class GATBase(on_core.OnCore):
    """Mixin of the layers whose attention logits go through a LeakyReLU."""

    @property
    def is_whole(self) -> bool:
        return bool(self.concat and self._modules.get("res") is None)

    def _edge_features(
        self, adj: Adjacency, edge_attr: Tensor | None, edge_index: Any
    ) -> tuple[Tensor, Tensor] | tuple[None, None]:
        """Features [E, edge_dim] in CSR order, self-loops included, and their matrix [H, D, C]."""
        if self.lin_edge is None:
            return None, None
        edge_attr = given_features(edge_attr, edge_index, self.edge_dim)
        if edge_attr is None:
            return None, None
        features = self._rows(adj, edge_attr)
        return features, matrix_of(self.lin_edge, features, self.heads)

    def _rows(self, adj: Adjacency, edge_attr: Tensor) -> Tensor:
        """Features [E, edge_dim] in the order of rows, self-loops included."""
        fill = self.fill_value
        if adj.loops and fill == "mean" and edge_attr.dtype in (torch.int64, torch.int):
            edge_attr = edge_attr * 1.0  # as PyG's means are
        edge_attr = edge_features(edge_attr, adj.num_given, self.lin_edge.in_channels)
        if not adj.loops:
            return in_rows(adj, edge_attr)

        def with_loops(features: Tensor) -> Tensor:
            if adj.replaced is not None and adj.edges is not None:  # whose features nobody reads
                src, dst = adj.edges[:, : adj.num_given]
                features = features.masked_fill((src == dst)[:, None], 0)
            return adj.to_csr_order(adj.with_loops(features, fill))

        if isinstance(fill, Tensor):  # which may change
            return with_loops(edge_attr)
        return in_rows(adj, edge_attr, ("features", fill), with_loops)

    def _project(
        self, x_src: Tensor, x_dst: Tensor | None, of_source: Any, of_target: Any
    ) -> tuple[Tensor, Tensor | None]:
        on_core.check_features("x", x_src, getattr(of_source, "in_channels", -1))
        source = of_source(x_src).view(-1, self.heads, self.out_channels)
        if x_dst is None or (x_dst is x_src and of_target is of_source):
            return source, None if x_dst is None else source
        on_core.check_features("x", x_dst, getattr(of_target, "in_channels", -1))
        return source, of_target(x_dst).view(-1, self.heads, self.out_channels)

    def _attend(self, adj: Adjacency, logits: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        weights = ops.edge_softmax(logits, adj.neighborhood)
        weights = nn.functional.dropout(weights, self.dropout, self.training)
        return ops.aggregate(weights, value, adj.neighborhood), weights

    def _finish(self, out: Tensor, x_dst: Tensor | None) -> Tensor:
        att = self.att_src if hasattr(self, "att_src") else self.att
        if out.dtype is not att.dtype:  # under autocast
            out = on_core.widened(out, att)
        out = out.flatten(1) if self.concat else out.mean(1)
        if self.res is not None and x_dst is not None:
            out = out + self.res(x_dst)
        return out if self.bias is None else out + self.bias


@on_core.checked
class GATConv(GATBase, pyg.GATConv):
    r"""GAT attention: LeakyReLU of source, target and edge scores.

    .. math::
        x'_i = \sum_{j \in N(i) \cup \{i\}} \alpha_{ij} \Theta x_j, \qquad
        \alpha_{ij} = \operatorname{softmax}_j\, \operatorname{leaky}\big(
        a_s^\top \Theta x_j + a_t^\top \Theta x_i + a_e^\top \Theta_e e_{ij} \big)

    Same arguments, parameters, state dict and results as PyG's layer of this name, whose
    documentation explains the arguments; `aggr` must be a sum, and `flow="target_to_source"`
    requires an edge list. A node without neighbors attends to itself, and gives zeros without
    self-loops. No tensor has both an edge axis and a feature axis per head: edge features are
    multiplied by the vector :math:`\Theta_e^\top a_e`.

    Shapes:
        - **x:** [N, in_channels], or a pair ([N_src, .], [N_dst, .] or None).
        - **edge_index:** [2, E], `EdgeIndex`, torch sparse or `SparseTensor` [N_dst, N_src], or a
          `Neighborhood`.
        - **edge_attr:** [E, edge_dim], in the order of the given edges.
        - **size:** (N_src, N_dst), needed if x_dst is None.
        - **output:** [N_dst, heads * out_channels], or [N_dst, out_channels] without `concat`; with
          `return_attention_weights=True` also (edge_index, weights [E, heads] after dropout),
          self-loops last: one for each of the first min(N_src, N_dst) nodes.

    Raises:
        ValueError: If an option or a shape is not supported.
        IndexError: If a node index is out of range.

    Source:
        Velickovic et al. (2018), eq. (3) to (6). Differs from PyG: accepts edge features together
        with self-loops for sparse matrices, too, and with `edge_dim=1` takes the values of a
        `SparseTensor` as features if there is one value per edge.

    Example:
        >>> conv = GATConv(16, 8, heads=4)
        >>> conv(torch.randn(3, 16), torch.tensor([[0, 1, 2], [1, 2, 0]])).shape
        torch.Size([3, 32])
    """

    propagate_type: ClassVar[dict[str, Any]] = {"x": OptPairTensor, "alpha": Tensor}
    edge_updater_type: ClassVar[dict[str, Any]] = {"alpha": OptPairTensor, "edge_attr": OptTensor}
    arguments = "x", "edge_index", "edge_attr", "size", "return_attention_weights"

    @property
    def is_whole(self) -> bool:
        parts = self._modules
        return super().is_whole and parts.get("lin_edge") is None and parts.get("lin") is not None

    def forward(
        self,
        x: Tensor | tuple[Tensor, Tensor | None],
        edge_index: Any,
        edge_attr: Tensor | None = None,
        size: Size = None,
        return_attention_weights: bool | None = None,
    ) -> Any:
        args = (x, edge_index, edge_attr, size, return_attention_weights)
        if self._again is not None and not torch.compiler.is_compiling():
            found = self._again(self, *args)
            if found is not None:
                return found
        if self.needs_messages():
            edge_index = self.for_messages(edge_index)
            return super().forward(x, edge_index, edge_attr, size, return_attention_weights or None)
        x_src, x_dst = on_core.pair(x, self.flow)
        num_dst = on_core.num_targets(x_src, x_dst, size, edge_index)
        adj = adjacency_of(
            edge_index, x_src.size(0), num_dst, add_self_loops=self.add_self_loops, flow=self.flow
        )
        dropout = self.dropout if self.training else 0.0
        on_gpu = not adj.neighborhood.indptr.is_cpu
        if on_gpu and x_dst is x_src and not return_attention_weights:
            whole = self._whole(args, adj, dropout)
            if whole is not None:
                return whole
        maps = (self.lin_src, self.lin_dst) if self.lin is None else (self.lin, self.lin)
        source, target = self._project(x_src, x_dst, *maps)
        of_source, of_target = self._node_scores(source, target)
        edge = self._edge_scores(adj, edge_attr, edge_index)
        if not return_attention_weights:
            out = ops.additive_attention(
                source, of_source, of_target, adj.neighborhood, edge=edge,
                negative_slope=self.negative_slope, dropout=dropout,
            )  # fmt: skip
            return self._finish(out, x_dst)
        logits = additive_logits(of_source, of_target, edge, adj.neighborhood, self.negative_slope)
        out, weights = self._attend(adj, logits, source)
        return self._finish(out, x_dst), adj.with_weights(edge_index, weights)

    def _node_scores(self, source: Tensor, target: Tensor | None) -> tuple[Tensor, Tensor | None]:
        if target is source:
            att = torch.cat([self.att_src, self.att_dst])
            of_source, of_target = (source.flatten(1) @ _block_diagonal(att)).split(self.heads, 1)
            return of_source, of_target
        of_target = None if target is None else target.flatten(1) @ _block_diagonal(self.att_dst)
        return source.flatten(1) @ _block_diagonal(self.att_src), of_target

    def _edge_scores(self, adj: Adjacency, edge_attr: Tensor | None, given: Any) -> Tensor | None:
        """Edge scores [E, H] in CSR order; -inf for replaced self-loops."""
        features, matrix = self._edge_features(adj, edge_attr, given)
        out = None
        if features is not None and matrix is not None:
            vectors = (matrix * self.att_edge.view(self.heads, 1, -1)).sum(-1)
            out = features @ vectors.t()
        if adj.replaced is None:
            return out
        if out is None:
            out = self.att_src.new_zeros(adj.replaced.size(0), self.heads)
        return out.masked_fill(adj.replaced[:, None], -torch.inf)

    def _whole(self, args: Any, adj: Adjacency, dropout: float) -> Tensor | None:
        """The output as one function; None where its parts have to run."""
        x = args[0]
        if self.lin is None or self.lin_edge is not None or self.res is not None:
            return None
        on_core.check_features("x", x, getattr(self.lin, "in_channels", -1))
        if not self.concat or not on_core.run_inside(x, self.lin):
            return None
        edge = None
        if adj.replaced is not None:
            key = ("replaced", self.heads, self.att_src.dtype)
            edge = adj.cached(key, lambda: self._edge_scores(adj, None, None).detach())  # type: ignore[union-attr]
        given = x, self.lin.weight, self.att_src, self.att_dst, self.bias, edge
        slope = float(self.negative_slope)
        nb, kind = adj.neighborhood, gat_layers.MappedGAT
        return again.compute(self, args, kind, nb, given, self.heads, slope, dropout=float(dropout))


def _block_diagonal(att: Tensor) -> Tensor:
    """[K, H, C] -> [H * C, K * H], the matrix that maps a head's features to its K scores."""
    scores, heads, channels = att.shape
    by_head = torch.diag_embed(att.permute(2, 0, 1), dim1=0, dim2=3)  # [H, C, K, H]
    return by_head.reshape(heads * channels, scores * heads)


@on_core.checked
class GATv2Conv(GATBase, pyg.GATv2Conv):
    r"""GATv2 attention: a learned vector times the LeakyReLU of the summed features.

    .. math::
        x'_i = \sum_{j \in N(i) \cup \{i\}} \alpha_{ij} \Theta_s x_j, \qquad
        \alpha_{ij} = \operatorname{softmax}_j\, a^\top \operatorname{leaky}\big(
        \Theta_s x_j + \Theta_t x_i + \Theta_e e_{ij} \big)

    Same arguments, parameters, state dict and results as PyG's layer of this name; what `GATConv`
    says of arguments, shapes, self-loops, edge features and errors holds here, but that a pair x
    needs the features of the target nodes and there is no `size`. On a CPU, and on a GPU with
    Triton, no tensor has both an edge axis and a feature axis per head.

    Source: Brody, Alon and Yahav (2022), eq. (7). Differs from PyG as `GATConv` does.

    Example:
        >>> conv = GATv2Conv(16, 8, heads=4)
        >>> conv(torch.randn(3, 16), torch.tensor([[0, 1, 2], [1, 2, 0]])).shape
        torch.Size([3, 32])
    """

    propagate_type: ClassVar[dict[str, Any]] = {"x": PairTensor, "alpha": Tensor}
    edge_updater_type: ClassVar[dict[str, Any]] = {"x": PairTensor, "edge_attr": OptTensor}
    arguments = "x", "edge_index", "edge_attr", "return_attention_weights"
    at_new_edges = staticmethod(direct)

    def forward(
        self,
        x: Tensor | tuple[Tensor, Tensor],
        edge_index: Any,
        edge_attr: Tensor | None = None,
        return_attention_weights: bool | None = None,
    ) -> Any:
        args = (x, edge_index, edge_attr, return_attention_weights)
        if self._again is not None and not torch.compiler.is_compiling():
            found = self._again(self, *args)
            if found is not None:
                return found
        if self.needs_messages():
            edge_index = self.for_messages(edge_index)
            return super().forward(x, edge_index, edge_attr, return_attention_weights or None)
        x_src, x_dst = on_core.two_features(x, self.lin_l, self.lin_r, self.flow)
        num_dst = x_dst.size(0)
        adj = adjacency_of(
            edge_index, x_src.size(0), num_dst, add_self_loops=self.add_self_loops, flow=self.flow
        )
        if not adj.neighborhood.indptr.is_cpu and x_dst is x and not return_attention_weights:
            whole = self._whole(args, adj)
            if whole is not None:
                return whole
        shared = self.share_weights and isinstance(x, Tensor)
        source, target = self._project(
            x_src, x_dst, self.lin_l, self.lin_l if shared else self.lin_r
        )
        logits = self._logits(adj, source, target, edge_attr, edge_index)
        out, weights = self._attend(adj, logits, source)
        out = self._finish(out, x_dst)
        return (out, adj.with_weights(edge_index, weights)) if return_attention_weights else out

    def _whole(self, args: Any, adj: Adjacency) -> Tensor | None:
        """The output as one function; None where its parts have to run."""
        (x, edge_index, edge_attr, _), maps = args, [self.lin_l]
        maps += [] if self.share_weights else [self.lin_r]
        if not self.concat or self.res is not None or not on_core.run_inside(x, *maps):
            return None
        given_attr = given_features(edge_attr, edge_index, self.edge_dim)
        rows = matrix = barred = None
        if given_attr is not None:
            if self.lin_edge is None or given_attr is not edge_attr or edge_attr.requires_grad:
                return None
            rows = self._rows(adj, edge_attr)
            if not on_core.run_inside(x, self.lin_edge) or rows.dtype != x.dtype:
                return None
            matrix = self.lin_edge.weight
        if adj.replaced is not None:
            barred = adj.cached("barred", lambda: adj.replaced[:, None])  # type: ignore[index]
        both = [(maps[k] if k < len(maps) else None) for k in range(2)]
        given = (
            x, *(one and one.weight for one in both), *(one and one.bias for one in both),
            self.att, self.bias, matrix, rows, barred,
        )  # fmt: skip
        slope, dropout = float(self.negative_slope), float(self.dropout if self.training else 0)
        nb, kind = adj.neighborhood, gat_layers.MappedGATv2
        return again.compute(self, args, kind, nb, given, self.heads, slope, dropout=dropout)

    def _logits(
        self, adj: Adjacency, source: Tensor, target: Tensor | None, edge_attr: Any, given: Any
    ) -> Tensor:
        """Attention logits [E, H] in CSR order; -inf for replaced self-loops."""
        if edge_attr is not None and self.lin_edge is None:
            raise ValueError("edge_attr: got some, but the layer has edge_dim=None")
        features, matrix = self._edge_features(adj, edge_attr, given)
        assert target is not None
        logits = ops.additive_score(
            source, target, self.att[0], adj.neighborhood, negative_slope=self.negative_slope,
            edge_features=features, edge_matrix=matrix,
        )  # fmt: skip
        if adj.replaced is None:
            return logits
        return logits.masked_fill(adj.replaced[:, None], -torch.inf)
