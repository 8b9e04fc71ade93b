"""PyG's GINEConv on the core."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch_geometric.nn import conv as pyg
from torch_geometric.nn.conv import MessagePassing

from graphtheory import ops
from graphtheory.nn.conv import on_core
from graphtheory.nn.conv.adjacency import read
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
        adj = read(edge_index, x_src.size(0), num_dst, flow=self.flow)
        reduce = REDUCTIONS[type(self.aggr_module)]
        if reduce in ("sum", "mean") and self._fits(x_src, edge_attr):
            nb, given_order = adj.neighborhood, adj.order is not None
            out = ops.relu_sum(x_src[:, None], edge_attr[:, None], nb, given_order=given_order)
            out = out.squeeze(1)
            return out if reduce == "sum" else out / nb.degree().clamp(min=1)[:, None]
        messages = self.message(gather(x_src, adj), edge_attr)[:, None]
        return ops.aggregate(
            None, messages, adj.edges_as_sources(given_order=True), reduce
        ).squeeze(1)

    def _fits(self, x: Tensor, edge_attr: Tensor) -> bool:
        """Whether PyG's own message has nothing to broadcast or to convert."""
        own = type(self).message is pyg.GINEConv.message
        return own and edge_attr.shape[1:] == x.shape[1:] and edge_attr.dtype == x.dtype
