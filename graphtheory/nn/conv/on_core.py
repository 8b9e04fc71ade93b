"""Base class and argument checks of the drop-in layers."""

from __future__ import annotations

import copy
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.modules.module import _has_any_global_hook
from torch_geometric.nn.aggr import SumAggregation
from torch_geometric.nn.conv import MessagePassing
from torch_geometric.nn.dense import Linear
from torch_geometric.typing import SparseTensor

from graphtheory import ops
from graphtheory.graph import Neighborhood
from graphtheory.nn.conv.adjacency import Adjacency, stored_values

_STAGES = ("propagate", "message", "aggregate", "message_and_aggregate", "edge_update")
_HOOKS = tuple(f"_{stage}_forward{pre}_hooks" for stage in _STAGES for pre in ("_pre", ""))


class OnCore(MessagePassing):
    """Mixin of a drop-in layer; list it before PyG's layer of the same name.

    Parameters, initialization, state dict and representation are PyG's own. `forward` calls `ops`
    and materializes no messages. While an explainer is on (`conv.explain`), a hook on
    propagation, messages, aggregation or edge updates is registered, or `torch.onnx.export` traces
    the layer, `forward` runs PyG's message passing instead, with the same result. TorchScript
    compiles PyG's layer.

    Attributes:
        parts: Kinds of submodules that the layer knows how to run; None if PyG's forward runs them.
        smallest: Arguments of a layer of PyG of this kind.
        inlined: Submodules whose weights it uses without calling them.
    """

    # PyG generates a fast `propagate` per class, without support for explainers, and keeps the
    # inherited one for them. That must be MessagePassing's, not the one generated for PyG's layer.
    propagate = MessagePassing.propagate
    decomposes: ClassVar[bool] = False
    smallest: ClassVar[tuple[Any, ...]] = (1, 1)
    parts: ClassVar[tuple[type, ...] | None] = (Linear, SumAggregation)
    inlined: ClassVar[tuple[str, ...]] = ("lin_edge", "aggr_module")

    def needs_messages(self) -> bool:
        """Whether an explainer, a hook or ONNX, which has no operator of `ops`, needs messages."""
        if self.explain or torch.onnx.is_in_onnx_export():
            return True
        if torch.compiler.is_compiling():
            return False
        own = self.__dict__
        for name in _HOOKS:  # noqa: SIM110  (a generator costs as much as the rest)
            if own[name]:
                return True
        return False

    def for_messages(self, edge_index: Any) -> Any:
        """`edge_index` in a form that PyG accepts.

        Raises:
            NotImplementedError: If an explainer asks for it, which weighs the edges of an edge list
                in its order, and it is a `Neighborhood`, whose edges have another.
        """
        if not isinstance(edge_index, Neighborhood):
            return edge_index
        hooks = self._message_forward_hooks.values()
        if self.explain or any(h.__module__.startswith("torch_geometric.explain") for h in hooks):
            raise NotImplementedError(
                f"edge_index: got a Neighborhood in {type(self).__name__}, but explainers of PyG "
                "weigh the edges of an edge list, in its order; pass one to the layer"
            )
        return edge_index.edge_index()

    def __prepare_scriptable__(self) -> MessagePassing:
        """PyG's layer with the same parameters, which `torch.jit.script` compiles instead.

        Raises:
            NotImplementedError: If PyG has no such layer, or this is a subclass of the drop-in.
        """
        kind: Any = next(k for k in type(self).__mro__ if not issubclass(k, OnCore))
        own = type(self).__module__.startswith(f"{__package__}.")
        if kind is MessagePassing or not own:
            why = "a subclass of the drop-in" if kind is not MessagePassing else "no layer of PyG"
            raise NotImplementedError(
                f"torch.jit.script: {type(self).__name__} is {why}, and TorchScript compiles the "
                "layer of PyG in place of a drop-in; torch.compile and torch.export take this one"
            )
        with torch.random.fork_rng(devices=[]):
            kind(*self.smallest)  # PyG sets up a class when its first layer is made
        twin: Any = copy.copy(self)
        twin.__class__ = kind
        return twin

    @classmethod
    def check_options(cls, layer: MessagePassing) -> None:
        """Raise if `layer`, PyG's or this one, has options that `ops` does not compute."""
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


def check_channels(in_channels: Any) -> None:
    """Raise unless every number of input channels is one, or -1: taken from the first input."""
    for count in in_channels if isinstance(in_channels, (tuple, list)) else (in_channels,):
        if not hasattr(count, "__index__") or count < -1:
            raise ValueError(
                f"in_channels: got {count!r}, expected 0 or more, or -1 to take it from the input"
            )


def check_dropout(dropout: float) -> None:
    """Raise unless `dropout` is a probability below 1."""
    if not 0 <= dropout < 1:
        raise ValueError(f"dropout: got {dropout}, expected a probability in [0, 1)")


def pair(x: Any, flow: str = "source_to_target") -> tuple[Tensor, Tensor | None]:
    """Features (x_src, x_dst) of source and target nodes; a single tensor is both."""
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


def two_features(x: Any, flow: str = "source_to_target") -> tuple[Tensor, Tensor]:
    """`pair` for a layer that needs the features of the target nodes."""
    x_src, x_dst = pair(x, flow)
    if x_dst is None:
        raise ValueError("x: got (x_src, None), expected features of the target nodes too")
    return x_src, x_dst


def num_targets(x_src: Tensor, x_dst: Tensor | None, size: Any) -> int | None:
    """Number of target nodes; None if neither x nor `size` says."""
    rows = None if x_dst is None else x_dst.size(0)
    if size is None:
        return rows
    if size[0] != x_src.size(0) or rows not in (None, size[1]):
        known = (x_src.size(0), "any" if rows is None else rows)
        raise ValueError(f"size: got {tuple(size)}, expected {known} as x has rows")
    return size[1]


def check_features(name: str, features: Tensor, channels: int) -> None:
    """Raise unless `features` are floats with `channels` channels; -1 means not known yet."""
    if features.dim() < 2:
        raise ValueError(f"{name}: shape {tuple(features.shape)}, expected [num_nodes, channels]")
    if not features.is_floating_point():
        raise TypeError(f"{name}: dtype {features.dtype}, expected a floating type")
    if channels > 0 and features.size(-1) != channels:
        raise ValueError(
            f"{name}: shape {tuple(features.shape)}, expected {channels} features in the last axis"
        )


def given_features(edge_attr: Tensor | None, edge_index: Any, edge_dim: int | None) -> Any:
    """`edge_attr` or, if None, the values [E, D] of a sparse matrix, or [E] of a `SparseTensor`."""
    values = stored_values(edge_index)
    if edge_attr is not None or values is None:
        return edge_attr
    one = isinstance(edge_index, SparseTensor) and edge_dim in (1, -1)
    if values.dim() > 1 or one:
        return values
    if edge_dim is not None and isinstance(edge_index, SparseTensor):
        raise ValueError(
            "edge_attr: got none beside a SparseTensor of one value per edge, which is a weight; "
            f"expected [E, {edge_dim}] of features"
        )
    return None  # a torch sparse matrix always has values, even if no weights are meant


def edge_features(edge_attr: Tensor, num_edges: int, edge_dim: int) -> Tensor:
    """`edge_attr` as [E, edge_dim]; [E] means one feature per edge."""
    if edge_attr.dim() == 1:
        edge_attr = edge_attr[:, None]
    if edge_attr.dim() != 2 or edge_attr.size(0) != num_edges:
        raise ValueError(
            f"edge_attr: shape {tuple(edge_attr.shape)}, expected [{num_edges}, edge_dim]: "
            "one row per edge"
        )
    if not edge_attr.is_floating_point():
        raise TypeError(
            f"edge_attr: dtype {edge_attr.dtype}, expected a floating type; categories are "
            "embedded first, for instance by ogb's BondEncoder"
        )
    check_features("edge_attr", edge_attr, edge_dim)
    return edge_attr


def checked_features(edge_attr: Tensor | None, adj: Adjacency, linear: Any) -> Tensor | None:
    """`edge_attr` as [E, edge_dim]; needed if, and only if, there is a linear map."""
    check_given(edge_attr, linear)
    if edge_attr is None:
        return None
    return edge_features(edge_attr, adj.num_given, linear.in_channels)


def check_given(edge_attr: Tensor | None, linear: Any) -> None:
    """Raise unless there are features of edges if, and only if, there is a linear map for them."""
    if (linear is None) != (edge_attr is None):
        got = "none" if edge_attr is None else "some"
        dim = None if linear is None else linear.in_channels
        raise ValueError(f"edge_attr: got {got}, but the layer has edge_dim={dim}")


def matrix_of(linear: torch.nn.Module, features: Tensor, heads: int) -> Tensor:
    """The weights of a linear layer as a matrix [heads, edge_dim, out_channels].

    Computed as the layer's output on the identity matrix, so lazy initialization, parametrizations
    and adapters of the layer apply.
    """
    eye = torch.eye(features.size(1), dtype=features.dtype, device=features.device)
    mapped = linear(eye)
    return mapped.view(len(eye), heads, mapped.size(1) // heads).transpose(0, 1)


def is_plain(linear: torch.nn.Module) -> bool:
    """Whether nobody else sees what goes through a linear map."""
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    seen = _has_any_global_hook() or any(getattr(linear, name) for name in hooks)
    return type(linear) is Linear and "forward" not in vars(linear) and not seen


def edge_logits(edge_query: Tensor, features: Tensor, adj: Adjacency) -> Tensor:
    """Dot products [E, H] of features [E, D] of edges and queries [N_dst, H, D], by head."""
    sources, edges = features[:, None], adj.edges_as_sources()
    return torch.cat([ops.edge_dot(q[:, None], sources, edges) for q in edge_query.unbind(1)], 1)
