"""PyG's `SAGEConv` on the core; in batches of sampled neighbors, few rows are multiplied."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch_geometric.nn import conv as pyg
from torch_geometric.nn.conv import MessagePassing

from graphtheory.graph import Neighborhood
from graphtheory.graph.inference import innermost_transform
from graphtheory.nn.conv import on_core
from graphtheory.nn.conv.adjacency import adjacency_of
from graphtheory.nn.conv.own_propagate import REDUCTIONS
from graphtheory.nn.conv.weighted_sums import WeightedSums

_MOST = 0.75  # share of the target nodes up to which the others are worth leaving out


class SAGEConv(WeightedSums, pyg.SAGEConv):
    r"""PyG's `SAGEConv` with a sum, mean, largest or smallest over the neighbors by `ops`.

    A loader that samples neighbors puts the nodes that have some first; the nodes of its last hop,
    which are most of a batch, have none. On a CPU the sums and their linear map are computed for
    the first rows alone: the others all have the map of zero, the bias.
    """

    @classmethod
    def check_options(cls, layer: MessagePassing) -> None:
        """Raise if `layer`, PyG's or this one, has options that `ops` does not compute."""
        super().check_options(layer)
        if layer.project and layer.flow != "source_to_target":
            raise ValueError(f"flow: got {layer.flow!r} with project=True, expected the default")

    def forward(self, x: Any, edge_index: Any, size: Any = None) -> Tensor:
        """As PyG's."""
        first = self._first_rows(x, edge_index, size)
        if first is None:
            return super().forward(x, edge_index, size)
        x_src, x_dst = on_core.pair(x)
        if self.project:
            x_src = self.lin(x_src).relu()
        sums = self.propagate(first, x=(x_src, None))
        alone = self.lin_l(sums.new_zeros(1, sums.size(1)))
        add: Any = _Added.apply
        out = add(self.lin_r(x_dst), self.lin_l(sums), alone)
        return functional.normalize(out, p=2.0, dim=-1) if self.normalize else out

    def _first_rows(self, x: Any, edge_index: Any, size: Any) -> Neighborhood | None:
        """The rows up to the last with an edge; None where PyG's forward has to, or may as well."""
        if not self.root_weight or torch.compiler.is_compiling() or self.needs_messages():
            return None
        if self.flow != "source_to_target" or (isinstance(x, Tensor) and x.dim() != 2):
            return None
        x_src, x_dst = on_core.pair(x, self.flow)
        if (
            x_dst is None
            or x_src.device.type != "cpu"
            or innermost_transform() is not None
            or type(self.aggr_module) not in REDUCTIONS
            or not (on_core.is_plain(self.lin_l) and on_core.is_plain(self.lin_r))
        ):
            return None
        adj = adjacency_of(edge_index, x_src.size(0), on_core.num_targets(x_src, x_dst, size))
        return adj.cached("first rows", lambda: _up_to_the_last_edge(adj.neighborhood))


def _up_to_the_last_edge(nb: Neighborhood) -> Neighborhood | None:
    rows = int(torch.searchsorted(nb.indptr, nb.num_edges))
    if rows > _MOST * nb.num_dst:
        return None
    return Neighborhood(nb.indptr[: rows + 1], nb.indices, nb.num_src, validate=False)


class _Added(torch.autograd.Function):
    """`root` [N, F] plus `first` [n, F] on its first rows and `others` [1, F] below, in place."""

    @staticmethod
    def forward(ctx: Any, root: Tensor, first: Tensor, others: Tensor) -> Tensor:
        ctx.rows = len(first)
        ctx.mark_dirty(root)
        root[: ctx.rows] += first
        root[ctx.rows :] += others
        return root

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return grad, grad[: ctx.rows], grad[ctx.rows :].sum(0, keepdim=True)
