"""PyG's RGCNConv and FastRGCNConv on the core."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor
from torch_geometric.nn import conv as pyg
from torch_geometric.nn.conv import MessagePassing
from torch_geometric.typing import OptTensor

from graphtheory import ops
from graphtheory.nn.conv import on_core
from graphtheory.nn.conv.adjacency import adjacency_of, stored_values
from graphtheory.nn.conv.own_propagate import REDUCTIONS, check_layout, check_reduction
from graphtheory.nn.conv.relations import Relations, relations_of
from graphtheory.ops.edge import Reduction


class Relational(on_core.OnCore):
    r"""Mixin of the relational graph convolutions; list it before PyG's layer.

    .. math:: x'_i = \Theta_0^\top x_i + \sum_r \Theta_r^\top
        \operatorname{reduce}_{j \in N_r(i)} x_j

    Features are reduced once for each pair of relation and target node that has edges, multiplied
    by the relation's weight, and summed. Ids of nodes in the place of features take rows of the
    weights, with a basis decomposition those of the bases, so that no [relations, nodes, features]
    is built. The sorted pairs are kept while edges and `edge_type` are the same tensors.

    Same arguments, parameters, state dict and results as PyG's layer of this name. With ids and a
    largest value PyG's own path runs.

    Shapes:
        - **x:** [N, in_channels], ids [N] or None for all ids; or a pair of these.
        - **edge_index:** [2, E], `EdgeIndex`, a `SparseTensor` of relations, or a `Neighborhood`.
        - **edge_type:** relation of each edge [E], in the order of the given edges.
        - **output:** [N_dst, out_channels].

    Raises:
        ValueError: If there is not one relation per edge.
        IndexError: If a relation or a node is out of range.

    Source: Schlichtkrull et al. (2018), eq. (2) to (4).
    """

    propagate_type: ClassVar[dict[str, Any]] = {"x": Tensor, "edge_type_ptr": OptTensor}
    parts = tuple(REDUCTIONS)
    inlined = ("aggr_module",)
    smallest = (1, 1, 1)
    takes_ids: ClassVar[bool] = True

    @classmethod
    def check_options(cls, layer: MessagePassing) -> None:
        """Raise if `layer`, PyG's or this one, has options that `ops` does not compute."""
        check_reduction(layer)
        check_layout(layer, 0)

    def forward(self, x: Any, edge_index: Any, edge_type: Tensor | None = None) -> Tensor:
        """Reduce by relation and target node, multiply and sum; see the class for shapes."""
        x_src, x_dst = x if isinstance(x, tuple) else (x, x)
        ids = x_src is None or not x_src.is_floating_point()
        reduce = REDUCTIONS[type(self.aggr_module)]
        odd = ids and (reduce not in ("sum", "mean") or self.num_blocks is not None)
        odd = odd or (ids and x_src is not None and not self.takes_ids)
        if self.needs_messages() or odd or torch.compiler.is_exporting():
            return super().forward(x, self.for_messages(edge_index), edge_type)
        num_src = self.in_channels_l if x_src is None else x_src.size(0)
        num_dst = num_src if x_dst is None else x_dst.size(0)
        adj = adjacency_of(edge_index, num_src, num_dst, flow=self.flow)
        kinds = stored_values(edge_index) if edge_type is None else edge_type
        if kinds is None or kinds.shape != (adj.num_given,):
            got = None if kinds is None else tuple(kinds.shape)
            raise ValueError(f"edge_type: shape {got}, expected one per edge [{adj.num_given}]")
        found = relations_of(adj, kinds, self.num_relations)
        sums = self._of_ids if ids else self._of_features
        out = self._with_root(sums(x_src, found, reduce), x_dst)
        return out if self.bias is None else out + self.bias

    def _of_features(self, x: Tensor, found: Relations, reduce: Reduction) -> Tensor:
        sums = ops.aggregate(None, x[:, None], found.sources, reduce).squeeze(1)  # [P, F_in]
        weight = self.weight
        if self.num_bases is not None:
            weight = torch.einsum("rb,bio->rio", self.comp, weight)
        matrices = weight.unbind(0)
        parts = [
            _times(part, matrix)
            for part, matrix in zip(sums.split(found.counts), matrices, strict=True)
            if part.size(0)
        ]
        of_pairs = torch.cat(parts or [_times(sums, matrices[0])])  # without edges, of no row
        return ops.aggregate(None, of_pairs[:, None], found.targets).squeeze(1)

    def _of_ids(self, ids: Tensor | None, found: Relations, reduce: Reduction) -> Tensor:
        factor = self.weight.new_ones(len(found.kinds), 1)
        if reduce == "mean":
            factor = found.share.to(factor.dtype)[:, None]
        weight = self.weight if ids is None else self.weight.index_select(1, ids)
        if self.num_bases is None:  # [R * N_src, 1, F_out]
            return ops.aggregate(factor, weight.flatten(0, 1)[:, None], found.by_kind).squeeze(1)
        of_edges = factor * self.comp.index_select(0, found.kinds)  # [E, bases]
        nb = found.adjacency.neighborhood
        return ops.aggregate(of_edges, weight.transpose(0, 1), nb).sum(1)

    def _with_root(self, out: Tensor, x_dst: Tensor | None) -> Tensor:
        if self.root is None:
            return out
        if x_dst is None:
            return out + self.root
        return out + (x_dst @ self.root if x_dst.is_floating_point() else self.root[x_dst])


def _times(x: Tensor, weight: Tensor) -> Tensor:
    """The product with `weight`, a matrix or a block-diagonal one [blocks, rows, columns]."""
    if weight.dim() == 2:
        return x @ weight
    return torch.einsum("nbi,bio->nbo", x.view(-1, *weight.shape[:2]), weight).flatten(1)


class RGCNConv(Relational, pyg.RGCNConv):
    """PyG's `RGCNConv` with its sums by `ops`; see `Relational`."""

    def __prepare_scriptable__(self) -> MessagePassing:
        """PyG's layer, with an attribute that TorchScript needs and only its forward sets."""
        twin: Any = super().__prepare_scriptable__()
        vars(twin).setdefault("_use_segment_matmul_heuristic_output", False)
        return twin


class FastRGCNConv(Relational, pyg.FastRGCNConv):
    """`RGCNConv`, for which PyG has a second path; given ids, that one runs.

    It takes the weights of node j, not those of the id that node j is given.
    """

    propagate_type: ClassVar[dict[str, Any]] = {"x": Tensor, "edge_type": OptTensor}
    takes_ids = False

    @classmethod
    def check_options(cls, layer: MessagePassing) -> None:
        """Raise if `layer`, PyG's or this one, has options that `ops` does not compute."""
        super().check_options(layer)
        if layer.aggr not in ("add", "sum", "mean"):
            raise ValueError(f"aggr: got {layer.aggr!r}, expected 'add', 'sum' or 'mean'")
