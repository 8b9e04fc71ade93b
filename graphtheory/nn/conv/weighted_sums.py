"""PyG's layers whose message is a neighbor's features times a number, on the core.

Their `forward` is PyG's own; only `propagate`, which gathers and scatters messages there, is ours.
"""

from __future__ import annotations

from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch_geometric.nn import conv as pyg
from torch_geometric.nn.conv import MessagePassing

from graphtheory import ops
from graphtheory.graph.inference import innermost_transform
from graphtheory.nn.conv import on_core
from graphtheory.nn.conv.adjacency import adjacency_of, stored_values
from graphtheory.nn.conv.own_propagate import (
    REDUCTIONS,
    OwnPropagate,
    check_layout,
    check_reduction,
)


class WeightedSums(OwnPropagate):
    """Mixin of a layer whose `propagate` reduces weighted features; list it before PyG's layer.

    Attributes:
        weight_name: The argument of `propagate` that is one number per edge, if there is one.
    """

    weight_name: ClassVar[str | None] = None

    @classmethod
    def check_options(cls, layer: MessagePassing) -> None:
        """Raise if `layer`, PyG's or this one, has options that `ops` does not compute."""
        check_reduction(layer)
        check_layout(layer, -2)

    def _run(self, edge_index: Any, size: Any, given: dict[str, Any]) -> Tensor | None:
        x = given["x"]
        x_src, x_dst = x if isinstance(x, (tuple, list)) else (x, x)
        # PyG's generated and its generic `propagate` read such a pair differently
        if x_dst is not None and x_dst is not x_src and self.flow != "source_to_target":
            raise ValueError(f"flow: got {self.flow!r} with a pair, expected the default")
        odd = x_src is None or x_src.dim() != 2 or not x_src.is_floating_point()
        if odd or (x is not x_src and self.flow != "source_to_target"):
            return None
        num_dst = on_core.num_targets(x_src, x_dst, size)
        edge_index = _kept(self, edge_index) if self.weight_name is not None else edge_index
        adj = adjacency_of(edge_index, x_src.size(0), num_dst, flow=self.flow)
        weight = None if self.weight_name is None else given[self.weight_name]
        stored = None if self.weight_name is None else stored_values(edge_index)
        weight = weight if stored is None else stored
        if weight is not None:
            if weight.numel() != adj.num_given:
                raise ValueError(
                    f"{self.weight_name}: shape {tuple(weight.shape)}, expected one per edge "
                    f"[{adj.num_given}]"
                )
            weight = adj.to_csr_order(weight.flatten())[:, None]
        reduce = REDUCTIONS[type(self.aggr_module)]
        return ops.aggregate(weight, x_src[:, None], adj.neighborhood, reduce).squeeze(1)


_LAST: WeakKeyDictionary[WeightedSums, Tensor] = WeakKeyDictionary()


def _kept(layer: WeightedSums, edge_index: Any) -> Any:
    """The edges of the call before, if these are equal, so that `adjacency_of` need not sort them.

    A forward of PyG that normalizes weights makes a new tensor of the same edges in every call.
    """
    listed = type(edge_index) is Tensor and edge_index.layout is torch.strided
    if not listed or innermost_transform() is not None or torch.compiler.is_compiling():
        return edge_index
    last = _LAST.get(layer)
    if last is not None and _alike(last, edge_index) and torch.equal(last, edge_index):
        return last
    _LAST[layer] = edge_index.detach()
    return _LAST[layer]


def _alike(one: Tensor, other: Tensor) -> bool:
    """Whether values may be compared: of a layer that moved, the edges lie on another device."""
    return (one.shape, one.dtype, one.device) == (other.shape, other.dtype, other.device)


class GINConv(WeightedSums, pyg.GINConv):
    """PyG's `GINConv` with its sum over the neighbors by `ops`."""


class GraphConv(WeightedSums, pyg.GraphConv):
    """PyG's `GraphConv` with its sum over the neighbors by `ops`."""

    weight_name = "edge_weight"


class ChebConv(WeightedSums, pyg.ChebConv):
    """PyG's `ChebConv` with the sums of its recurrence by `ops`."""

    weight_name = "norm"


class SGConv(WeightedSums, pyg.SGConv):
    """PyG's `SGConv` with its K sums over the neighbors by `ops`."""

    weight_name = "edge_weight"


class APPNP(WeightedSums, pyg.APPNP):
    """PyG's `APPNP` with its K sums over the neighbors by `ops`."""

    weight_name = "edge_weight"
