"""Attention that keeps x for its backward pass in place of queries, keys and values."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch_geometric.nn.dense.linear import Linear

from graphtheory import ops
from graphtheory.nn.attention import Bias
from graphtheory.nn.conv import on_core
from graphtheory.nn.conv.adjacency import Adjacency
from graphtheory.nn.conv.given_edges import pay_by_edge
from graphtheory.ops.dropout import draw_seed, dropout_factor
from graphtheory.ops.feature_sums import feature_dot, feature_sum
from graphtheory.ops.once import followed
from graphtheory.ops.reference import edge_bias


class _Kept(NamedTuple):
    """A saved tensor; under hooks torch does not look itself whether it changed."""

    tensor: Tensor
    version: int


class _Map(NamedTuple):
    """A linear map as it was applied, and the part of its result that is wanted again."""

    tensors: tuple[_Kept, ...]  # x, the weight, and the bias if there is one
    dtype: torch.dtype
    part: tuple[Any, ...]  # size, strides, offset


def _version(tensor: Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version


def _keep(tensor: Tensor) -> _Kept:
    return _Kept(tensor, _version(tensor))


def _unchanged(kept: _Kept) -> Tensor:
    if kept.version != _version(kept.tensor):
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


def _hooks_are_free() -> bool:
    """Whether nobody else decides what is kept, or forbids to."""
    autograd: Any = torch._C._autograd
    if not autograd._saved_tensors_hooks_is_enabled():
        return False
    return autograd._top_saved_tensors_default_hooks(True) is None


class Projections:
    """Linear maps of x whose results a backward pass makes again, or keeps if `on` is False.

    Tensors that autograd saves within `saved` are looked up among the results. Where something
    compiles, transforms or traces the call, or decides itself what is kept (checkpoints of torch,
    `save_on_cpu`), all is left to it.
    """

    def __init__(self, on: bool) -> None:
        self._on = on and not followed() and _hooks_are_free()
        self._known: dict[int | None, tuple[Tensor, tuple[Tensor, ...]]] = {}

    def __call__(self, linear: Linear, x: Tensor) -> Tensor:
        """The layer's output.

        Raises:
            TypeError: If it is to be made again and the layer is more than a linear map.
        """
        out = linear(x)
        if self._on and torch.is_grad_enabled():
            if not on_core.is_plain(linear):
                raise TypeError(
                    f"recompute: got a {type(linear).__name__} that is wrapped or has hooks, "
                    "maybe global ones, expected PyG's Linear alone: what is made again is W x + b"
                )
            bias = () if linear.bias is None else (linear.bias,)
            self._known[out.data_ptr()] = out, (x, linear.weight, *bias)
        return out

    @contextmanager
    def saved(self) -> Iterator[None]:
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


def in_turn(layer: Any, features: Tensor | None, adj: Adjacency) -> bool:
    """Whether `attend` runs a layer: on a CPU, with features of edges and in full precision."""
    if features is None or not layer.recompute or features.device.type != "cpu":
        return False
    if followed() or not torch.is_grad_enabled():
        return False
    full = features.dtype in (torch.float32, torch.float64) and not torch.is_autocast_enabled("cpu")
    return full and not pay_by_edge(features, layer.out_channels, adj.neighborhood.num_dst)


def attend(
    layer: Any, x_src: Tensor, x_dst: Tensor, adj: Adjacency, features: Tensor | None, bias: Bias,
    scale: float | None, *, want_weights: bool,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """Attention [N_dst, H, C] by one primitive after another, and its weights if they are wanted.

    So the backward pass has queries and keys with their gradients, or values with theirs. The
    features [E, D] are in the given order; (W_E^T W_Q) x are the queries for them.
    """
    assert features is not None
    shape, nb = (-1, layer.heads, layer.out_channels), adj.neighborhood
    order = nb.indptr.new_empty(0) if adj.order is None else adj.order
    matrix = on_core.matrix_of(layer.lin_edge, features, layer.heads)  # [H, D, C]
    logits = _logits(layer, x_src, x_dst, adj, (features, nb.indptr, order), matrix)
    logits *= layer.out_channels**-0.5 if scale is None else scale
    if bias is not None:
        logits += edge_bias(bias)
    weights = ops.edge_softmax(logits, nb)
    kept = weights
    if layer.training and layer.dropout > 0:  # of the edges that `ops.attention` would drop
        kept = weights * dropout_factor(layer.dropout, draw_seed(None, weights.device), weights)
    made = Projections(on=True)
    with made.saved():
        out = ops.aggregate(kept, made(layer.lin_value, x_src).view(shape), nb)
    sums = feature_sum(kept, features, nb.indptr, order)
    out = out + torch.einsum("nhd,hdc->nhc", sums, matrix)
    return out, weights if want_weights else None


def _logits(
    layer: Any, x_src: Tensor, x_dst: Tensor, adj: Adjacency, edges: tuple[Tensor, ...],
    matrix: Tensor,
) -> Tensor:  # fmt: skip
    shape, made = (-1, layer.heads, layer.out_channels), Projections(on=True)
    with made.saved():
        query, key = made(layer.lin_query, x_dst), made(layer.lin_key, x_src)
        logits = ops.edge_dot(query.view(shape), key.view(shape), adj.neighborhood)
    weight, bias = layer.lin_query.weight, layer.lin_query.bias
    weight = (matrix @ weight.unflatten(0, shape[1:])).flatten(0, 1)  # [H * D, in_channels]
    if bias is not None:
        bias = (matrix @ bias.view(*shape[1:], 1)).flatten()
    asked = nn.functional.linear(x_dst, weight, bias).unflatten(1, matrix.shape[:2])
    return logits.add_(feature_dot(asked, *edges))
