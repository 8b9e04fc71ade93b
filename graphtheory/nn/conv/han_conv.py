"""PyG's HANConv on the core."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch_geometric.nn import conv as pyg
from torch_geometric.nn.conv import MessagePassing

from graphtheory import ops
from graphtheory.nn.conv.adjacency import adjacency_of
from graphtheory.nn.conv.own_propagate import OwnPropagate


class HANConv(OwnPropagate, pyg.HANConv):
    r"""PyG's `HANConv` with the attention along each kind of edge by `ops.additive_attention`.

    Dropout draws other random numbers than PyG's, with the same probability.

    Source: Wang et al. (2019), eq. (2) to (4).
    """

    @classmethod
    def check_options(cls, layer: MessagePassing) -> None:
        """Raise if `layer`, PyG's or this one, has options that `ops` does not compute."""
        super().check_options(layer)
        if layer.flow != "source_to_target":
            raise ValueError(f"flow: got {layer.flow!r}, expected the default")

    def _run(self, edge_index: Any, size: Any, given: dict[str, Any]) -> Tensor | None:
        (x_src, x_dst), (of_source, of_target) = given["x"], given["alpha"]
        adj = adjacency_of(edge_index, x_src.size(0), x_dst.size(0))
        return ops.additive_attention(
            x_src, of_source, of_target, adj.neighborhood, negative_slope=self.negative_slope,
            dropout=self.dropout if self.training else 0.0,
        ).flatten(1)  # fmt: skip
