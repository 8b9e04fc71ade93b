"""What the drop-in layers share: when PyG's message passing runs instead, and clear errors."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor
from torch_geometric.nn.aggr import SumAggregation
from torch_geometric.nn.conv import MessagePassing
from torch_geometric.typing import SparseTensor

from graphtheory.graph import Neighborhood
from graphtheory.nn.conv.adjacency import stored_values

_STAGES = ("propagate", "message", "aggregate", "message_and_aggregate", "edge_update")
_HOOKS = tuple(f"_{stage}_forward{pre}_hooks" for stage in _STAGES for pre in ("_pre", ""))


class OnCore(MessagePassing):
    """Base of a drop-in, before PyG's layer of the same name, which it computes otherwise.

    Parameters, initialization, state dict and representation are PyG's own. `forward` runs on the
    core, where no message exists. Who needs messages gets them: while an explainer is on
    (`conv.explain`) or a hook on propagation, messages, aggregation or edge updates is registered,
    `forward` runs PyG's message passing, with the same result.
    """

    # PyG generates a faster `propagate` for each class, without what an explainer needs, and keeps
    # the one that it inherits for explainers; that must not be the generated one of PyG's layer.
    propagate = MessagePassing.propagate
    decomposes: ClassVar[bool] = False

    def needs_messages(self) -> bool:
        """Whether an explainer or a hook asks for messages."""
        if self.explain:
            return True
        return not torch.compiler.is_compiling() and any(getattr(self, name) for name in _HOOKS)

    @classmethod
    def check_options(cls, layer: MessagePassing) -> None:
        """Raise on options of `layer`, PyG's or this one, with which it is another function."""
        check_dropout(getattr(layer, "dropout", 0.0))
        if not isinstance(layer.aggr_module, SumAggregation):
            raise ValueError(
                f"aggr: got {layer.aggr!r}, expected 'add': the layer is a weighted sum"
            )
        if layer.decomposed_layers != 1 and not cls.decomposes:
            raise ValueError(
                f"decomposed_layers: got {layer.decomposed_layers}, expected 1: "
                "attention takes all features of a head at once"
            )


def check_counts(**counts: int) -> None:
    """Raise unless every count is at least 1."""
    for name, count in counts.items():
        if not hasattr(count, "__index__") or count < 1:
            raise ValueError(f"{name}: got {count!r}, expected at least 1, a whole number")


def check_dropout(dropout: float) -> None:
    """Raise unless `dropout` is a probability below 1."""
    if not 0 <= dropout < 1:
        raise ValueError(f"dropout: got {dropout}, expected a probability in [0, 1)")


def pair(x: Any, flow: str = "source_to_target") -> tuple[Tensor, Tensor | None]:
    """(senders, receivers) of node features; one tensor is both, whatever the flow."""
    if not isinstance(x, Tensor) and flow != "source_to_target":
        raise ValueError(f"x: got a pair, expected one tensor with flow={flow!r}")
    if not isinstance(x, Tensor) and not (isinstance(x, (tuple, list)) and len(x) == 2):
        raise TypeError(f"x: got {type(x).__name__}, expected a tensor or a pair of them")
    x_src, x_dst = (x, x) if isinstance(x, Tensor) else x
    for name, features in (("x", x_src), ("x[1]", x_dst)):
        if features is not None and features.dim() != 2:
            raise ValueError(
                f"{name}: shape {tuple(features.shape)}, expected [num_nodes, in_channels]"
            )
    return x_src, x_dst


def receivers(x_src: Tensor, x_dst: Tensor | None, size: Any) -> int | None:
    """Number of receivers; None where neither x nor `size` tells."""
    rows = None if x_dst is None else x_dst.size(0)
    if size is None:
        return rows
    if size[0] != x_src.size(0) or rows not in (None, size[1]):
        known = (x_src.size(0), "any" if rows is None else rows)
        raise ValueError(f"size: got {tuple(size)}, expected {known} as x has rows")
    return size[1]


def check_features(name: str, features: Tensor, channels: int) -> None:
    """Raise unless `features` has that many channels; -1 is not known yet."""
    if channels > 0 and features.size(-1) != channels:
        raise ValueError(
            f"{name}: shape {tuple(features.shape)}, expected {channels} features in the last axis"
        )


def given_features(edge_attr: Tensor | None, edge_index: Any, edge_dim: int | None) -> Any:
    """`edge_attr`, or else the features [E, D] that a sparse matrix holds as its values."""
    values = stored_values(edge_index)
    if edge_attr is not None or values is None:
        return edge_attr
    if values.dim() > 1:
        return values
    if edge_dim is not None and isinstance(edge_index, SparseTensor):
        raise ValueError(
            "edge_attr: got none beside a SparseTensor of one number an edge, which is a weight; "
            f"expected [E, {edge_dim}] of features"
        )
    return None  # a torch sparse matrix has a number an edge even where none is meant


def edge_features(edge_attr: Tensor, num_edges: int) -> Tensor:
    """`edge_attr` as [E, edge_dim]; [E] is one feature an edge."""
    if edge_attr.dim() == 1:
        edge_attr = edge_attr[:, None]
    if edge_attr.dim() != 2 or edge_attr.size(0) != num_edges:
        raise ValueError(
            f"edge_attr: shape {tuple(edge_attr.shape)}, expected [{num_edges}, edge_dim]: "
            "one row an edge"
        )
    return edge_attr


def matrix_of(linear: torch.nn.Module, features: Tensor, heads: int) -> Tensor:
    """The matrix [heads, edge_dim, out_channels] of a linear layer that `features` are meant for.

    It is what the layer makes of the identity, so whatever hangs on the layer (a lazy size, a
    parametrisation, an adapter) takes part.
    """
    one = torch.eye(features.size(1), dtype=features.dtype, device=features.device)
    return linear(one).view(features.size(1), heads, -1).transpose(0, 1)


def for_messages(edge_index: Any) -> Any:
    """`edge_index` in a form that PyG knows."""
    return edge_index.edge_index() if isinstance(edge_index, Neighborhood) else edge_index
