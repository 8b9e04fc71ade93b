"""Attention that keeps x for its backward pass in place of queries, keys and values."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch_geometric.nn.dense.linear import Linear

from graphtheory.graph.cache import is_tracing
from graphtheory.nn.attention import Bias
from graphtheory.nn.conv.adjacency import Adjacency
from graphtheory.nn.conv.edge_features import matrix_of, project_per_edge
from graphtheory.nn.conv.on_core import is_plain
from graphtheory.nn.conv.sparse_features import version_of
from graphtheory.ops import projected
from graphtheory.ops.dropout import draw_seed


class _Kept(NamedTuple):
    """A saved tensor; under hooks torch does not look itself whether it changed."""

    tensor: Tensor
    version: int


class _Map(NamedTuple):
    """A linear map as it was applied, and the part of its result that is wanted again."""

    tensors: tuple[_Kept, ...]  # x, the weight, and the bias if there is one
    dtype: torch.dtype
    part: tuple[Any, ...]  # size, strides, offset


def _keep(tensor: Tensor) -> _Kept:
    return _Kept(tensor, version_of(tensor))


def _unchanged(kept: _Kept) -> Tensor:
    if kept.version != version_of(kept.tensor):
        raise RuntimeError(
            f"recompute: a tensor {list(kept.tensor.shape)} that the backward pass needs was "
            "changed in place after the forward pass: x, a weight, or what was computed of them"
        )
    return kept.tensor


def _unpack(packed: _Kept | _Map) -> Tensor:
    if isinstance(packed, _Kept):
        return _unchanged(packed)
    x, weight, *bias = (_unchanged(t).detach().to(packed.dtype) for t in packed.tensors)
    with torch.autocast(x.device.type, enabled=False):
        return nn.functional.linear(x, weight, *bias).as_strided(*packed.part)


def _check_plain(linear: Any) -> None:
    if not is_plain(linear):
        raise TypeError(
            f"recompute: got a {type(linear).__name__} that is wrapped or has hooks, "
            "maybe global ones, expected PyG's Linear alone: what is made again is W x + b"
        )


class Projections:
    """Linear maps of x whose results a backward pass makes again.

    Tensors that autograd saves within `saved` are looked up among the results. Where something
    compiles, transforms or traces the call, or decides itself what is kept (checkpoints of torch,
    `save_on_cpu`), all is left to it.
    """

    def __init__(self) -> None:
        autograd: Any = torch._C._autograd
        free = autograd._saved_tensors_hooks_is_enabled  # whether nobody else decides what is kept
        top = autograd._top_saved_tensors_default_hooks
        self._on = not is_tracing() and free() and top(True) is None
        self._known: dict[int | None, tuple[Tensor, tuple[Tensor, ...]]] = {}

    def __call__(self, linear: Linear, x: Tensor) -> Tensor:
        """The layer's output; what is to be made again has to be a linear map alone."""
        out = linear(x)
        if self._on and torch.is_grad_enabled():
            _check_plain(linear)
            bias = () if linear.bias is None else (linear.bias,)
            self._known[out.data_ptr()] = out, (x, linear.weight, *bias)
        return out

    @contextmanager
    def saving(self) -> Iterator[None]:
        """The context in which results are used; those of before are forgotten at its end."""
        if not self._on:
            yield
            return
        with torch.autograd.graph.saved_tensors_hooks(self._pack, _unpack):
            yield
        self._known.clear()

    def _pack(self, tensor: Tensor) -> _Kept | _Map:
        place = tensor.data_ptr() if tensor.layout == torch.strided else None
        out, tensors = self._known.get(place, (None, ()))
        if out is None or tensor.dtype != out.dtype or tensor.numel() != out.numel():
            return _keep(tensor)
        part = tensor.size(), tensor.stride(), tensor.storage_offset()
        return _Map(tuple(map(_keep, tensors)), out.dtype, part)


def can_stream_backward(
    layer: Any, x_src: Tensor, x_dst: Tensor, features: Tensor | None, adj: Adjacency
) -> bool:
    """Whether `attend` runs a layer: on a CPU, with features of edges and in full precision."""
    if features is None or features.device.type != "cpu":
        return False
    if is_tracing() or not torch.is_grad_enabled() or torch.is_autocast_enabled("cpu"):
        return False
    if any(is_lazy(one.weight) for one in (layer.lin_query, layer.lin_key, layer.lin_value)):
        return False  # a first call makes the weights
    tensors = (x_src, x_dst, features, layer.lin_query.weight)
    if not all(t.dtype == features.dtype and t.layout == torch.strided for t in tensors):
        return False
    full = features.dtype in (torch.float32, torch.float64)
    return full and not project_per_edge(features, layer.out_channels, adj.neighborhood.num_dst)


def attend(
    layer: Any, x_src: Tensor, x_dst: Tensor, adj: Adjacency, features: Tensor | None, bias: Bias,
    scale: float | None,
) -> Tensor:  # fmt: skip
    """Attention [N_dst, H, C] whose backward pass has one gradient of a map after another.

    The features [E, D] are in the given order; each map has to be a linear one alone.
    """
    assert features is not None
    maps = (layer.lin_query, layer.lin_key, layer.lin_value)
    for linear in maps:
        _check_plain(linear)
    dropout = layer.dropout if layer.training else 0.0
    return projected.attention(
        x_src, x_dst, [(linear.weight, linear.bias) for linear in maps],
        matrix_of(layer.lin_edge, features, layer.heads), features, adj.neighborhood,
        adj.order, bias, layer.out_channels**-0.5 if scale is None else scale, dropout,
        draw_seed(None, features.device) if dropout > 0 else None,
    )  # fmt: skip
