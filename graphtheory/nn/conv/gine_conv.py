"""PyG's GINEConv on the core."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy
from torch_geometric.nn import conv as pyg
from torch_geometric.nn.conv import MessagePassing

from graphtheory import ops
from graphtheory.nn.conv import on_core
from graphtheory.nn.conv.adjacency import Adjacency, adjacency_of
from graphtheory.nn.conv.given_edges import gather
from graphtheory.nn.conv.own_propagate import (
    REDUCTIONS,
    OwnPropagate,
    check_layout,
    check_reduction,
)


class GINEConv(OwnPropagate, pyg.GINEConv):
    r"""PyG's `GINEConv` with gathering and reducing by `ops`.

    .. math:: x'_i = h\Big((1 + \epsilon) x_i
        + \sum_{j \in N(i)} \operatorname{ReLU}(x_j + e_{ij})\Big)

    Messages are built, as PyG builds them, only for the largest and the smallest; where the values
    of a `SparseTensor` are the features, PyG's own path runs.

    Source: Hu et al. (2020), Strategies for pre-training GNNs.
    """

    @classmethod
    def check_options(cls, layer: MessagePassing) -> None:
        """Raise if `layer`, PyG's or this one, has options that `ops` does not compute."""
        check_reduction(layer)
        check_layout(layer, -2)

    def _run(self, edge_index: Any, size: Any, given: dict[str, Any]) -> Tensor | None:
        (x_src, x_dst), edge_attr = given["x"], given["edge_attr"]
        if x_dst is not None and x_dst is not x_src and self.flow != "source_to_target":
            raise ValueError(f"flow: got {self.flow!r} with a pair, expected the default")
        if edge_attr is None or x_src.dim() != 2:
            return None
        num_dst = on_core.num_targets(x_src, x_dst, size)
        adj = adjacency_of(edge_index, x_src.size(0), num_dst, flow=self.flow)
        reduce = REDUCTIONS[type(self.aggr_module)]
        is_own = type(self).message is not pyg.GINEConv.message or "message" in vars(self)
        if reduce in ("sum", "mean") and not is_own and isinstance(edge_attr, Tensor):
            if edge_attr.shape[:1] != (adj.neighborhood.num_edges,):
                raise ValueError(
                    f"edge_attr: shape {tuple(edge_attr.shape)}, expected a row for each of the "
                    f"{adj.neighborhood.num_edges} edges"
                )
            x, of_edges, matrix = _terms(x_src, edge_attr, self.lin)
            if matrix is not None or of_edges.shape[1:] == x_src.shape[1:]:
                out = _relu_sum(x, of_edges, matrix, adj)
                if reduce == "mean":
                    out = out / adj.neighborhood.degree().clamp(min=1)[:, None]
                return out
        messages = self.message(gather(x_src, adj), edge_attr)[:, None]
        return ops.aggregate(
            None, messages, adj.edges_as_sources(given_order=True), reduce
        ).squeeze(1)


def _terms(
    x: Tensor, edge_attr: Tensor, lin: torch.nn.Module | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Nodes, features of edges, and on a CPU the matrix [1, edge_dim, D] by which `ops` maps these.

    The bias of the map is added to the nodes then, which are fewer.
    """
    if lin is None:
        return x, edge_attr, None
    if not x.is_cpu or not on_core.is_plain(lin) or torch.is_autocast_enabled("cpu"):
        return x, lin(edge_attr), None
    weight, bias = cast(Tensor, lin.weight), cast("Tensor | None", lin.bias)
    fits = not is_lazy(weight) and weight.shape == (x.size(1), *edge_attr.shape[1:])
    if not fits or not x.dtype == edge_attr.dtype == weight.dtype:
        return x, lin(edge_attr), None
    return x if bias is None else x + bias, edge_attr, weight.T[None]


def _relu_sum(x: Tensor, of_edges: Tensor, matrix: Tensor | None, adj: Adjacency) -> Tensor:
    if matrix is None:
        dtype = torch.promote_types(x.dtype, of_edges.dtype)  # they differ under autocast
        x, of_edges = x.to(dtype), of_edges.to(dtype)[:, None]
    nb, given_order = adj.neighborhood, adj.order is not None
    out = ops.relu_sum(x[:, None], of_edges, nb, edge_matrix=matrix, given_order=given_order)
    return out.squeeze(1)
