"""The primitives as torch ops with gradients in terms of each other, on any device.

A neighbourhood enters as a flat list of tensors: [indptr, indices], and where a gradient may
follow the transposed structure [t_indptr, receivers, perm] after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from graphtheory.graph import Neighborhood
from graphtheory.ops.operator import operator


@torch.compiler.assume_constant_result
def triton_objections(device: torch.device) -> list[str]:
    """Why Triton's kernels cannot run on a device; empty when they can."""
    if device.type != "cuda":
        return [f"tensors lie on {device.type}, expected cuda"]
    if find_spec("triton") is None:
        return ["triton is not installed"]
    if not torch.cuda.is_available():
        return ["torch sees no GPU"]
    found = torch.cuda.get_device_capability(device)
    if torch.version.hip is None and found < (8, 0):
        return [f"compute capability {found[0]}.{found[1]}, expected 8.0 or later"]
    return []


def backend_for(tensor: Tensor) -> ModuleType:
    """The backend module of a tensor's device."""
    if tensor.device.type == "cpu":
        from graphtheory.ops.backends import numba_csr

        return numba_csr
    if not triton_objections(tensor.device):
        from graphtheory.ops.backends import triton_csr

        return triton_csr
    from graphtheory.ops.backends import torch_csr

    return torch_csr


def structure(nb: Neighborhood, *tensors: Tensor | None) -> list[Tensor]:
    """The tensors of `nb`, with the transposed ones when one of `tensors` needs a gradient."""
    out = [nb.indptr, nb.indices]
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors):
        t = nb.transpose()
        assert t.perm is not None
        out += [t.indptr, t.indices, t.perm]
    return out


@operator("graphtheory::edge_dot")
def _edge_dot(query: Tensor, key: Tensor, parts: Sequence[Tensor]) -> Tensor:
    return backend_for(query).edge_dot(parts[0], parts[1], query, key)


@_edge_dot.register_fake
def _(query: Tensor, key: Tensor, parts: Sequence[Tensor]) -> Tensor:
    return query.new_empty(parts[1].size(0), query.size(1))


@operator("graphtheory::aggregate")
def _aggregate(weights: Tensor, value: Tensor, parts: Sequence[Tensor]) -> Tensor:
    return backend_for(value).aggregate(parts[0], parts[1], weights, value)


@_aggregate.register_fake
def _(weights: Tensor, value: Tensor, parts: Sequence[Tensor]) -> Tensor:
    return value.new_empty(parts[0].size(0) - 1, value.size(1), value.size(2))


@operator("graphtheory::aggregate_by_sender")
def _aggregate_by_sender(weights: Tensor, value: Tensor, parts: Sequence[Tensor]) -> Tensor:
    _, _, t_indptr, receivers, perm = parts
    return backend_for(value).aggregate(t_indptr, receivers, weights, value, perm)


@_aggregate_by_sender.register_fake
def _(weights: Tensor, value: Tensor, parts: Sequence[Tensor]) -> Tensor:
    return value.new_empty(parts[2].size(0) - 1, value.size(1), value.size(2))


_Grads = tuple[Tensor | None, Tensor | None, list[None]]


def _edge_dot_backward(ctx: Any, grad: Tensor) -> _Grads:
    query, key, *parts = ctx.saved_tensors
    need_query, need_key = ctx.needs_input_grad[:2]
    grad_query = _aggregate(grad, key, parts) if need_query else None
    grad_key = _aggregate_by_sender(grad, query, parts) if need_key else None
    return grad_query, grad_key, [None] * len(parts)


def _aggregate_backward(ctx: Any, grad: Tensor) -> _Grads:
    weights, value, *parts = ctx.saved_tensors
    need_weights, need_value = ctx.needs_input_grad[:2]
    grad_weights = _edge_dot(grad, value, parts).to(weights.dtype) if need_weights else None
    grad_value = _aggregate_by_sender(weights, grad, parts) if need_value else None
    return grad_weights, grad_value, [None] * len(parts)


def _aggregate_by_sender_backward(ctx: Any, grad: Tensor) -> _Grads:
    weights, value, *parts = ctx.saved_tensors
    need_weights, need_value = ctx.needs_input_grad[:2]
    grad_weights = _edge_dot(value, grad, parts).to(weights.dtype) if need_weights else None
    grad_value = _aggregate(weights, grad, parts) if need_value else None
    return grad_weights, grad_value, [None] * len(parts)


def _save(ctx: Any, inputs: tuple[Tensor, Tensor, Sequence[Tensor]], output: Tensor) -> None:
    first, second, parts = inputs
    ctx.save_for_backward(first, second, *parts)


_edge_dot.register_autograd(_edge_dot_backward, setup_context=_save)
_aggregate.register_autograd(_aggregate_backward, setup_context=_save)
_aggregate_by_sender.register_autograd(_aggregate_by_sender_backward, setup_context=_save)


@operator("graphtheory::edge_softmax")
def _edge_softmax(logits: Tensor, indptr: Tensor, indices: Tensor) -> Tensor:
    return backend_for(logits).edge_softmax(indptr, logits)


@_edge_softmax.register_fake
def _(logits: Tensor, indptr: Tensor, indices: Tensor) -> Tensor:
    return logits.new_empty(logits.shape)


@operator("graphtheory::edge_softmax_backward")
def _edge_softmax_grad(weights: Tensor, grad: Tensor, indptr: Tensor) -> Tensor:
    return backend_for(weights).edge_softmax_backward(indptr, weights, grad)


@_edge_softmax_grad.register_fake
def _(weights: Tensor, grad: Tensor, indptr: Tensor) -> Tensor:
    return weights.new_empty(weights.shape)


def _row_sums(per_edge: Tensor, indptr: Tensor) -> Tensor:
    """Sum of each row, given back to every edge of it."""
    ids = torch.arange(indptr.size(0) - 1, device=indptr.device)
    rows = torch.repeat_interleave(ids, indptr.diff(), output_size=per_edge.size(0))
    total = per_edge.new_zeros(indptr.size(0) - 1, per_edge.size(1))
    return total.index_add(0, rows, per_edge)[rows]


def _edge_softmax_backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
    weights, indptr = ctx.saved_tensors
    return _edge_softmax_grad(weights, grad, indptr), None, None


def _edge_softmax_grad_backward(ctx: Any, up: Tensor) -> tuple[Tensor, Tensor, None]:
    weights, grad, indptr = ctx.saved_tensors
    grad_weights = up * (grad - _row_sums(weights * grad, indptr)) - grad * _row_sums(
        weights * up, indptr
    )
    return grad_weights, _edge_softmax_grad(weights, up, indptr), None


def _save_softmax(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(output, inputs[1])


def _save_softmax_grad(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


_edge_softmax.register_autograd(_edge_softmax_backward, setup_context=_save_softmax)
_edge_softmax_grad.register_autograd(_edge_softmax_grad_backward, setup_context=_save_softmax_grad)


def edge_dot(query: Tensor, key: Tensor, nb: Neighborhood) -> Tensor:
    """Logits [E, H]; see `ops.edge_dot`."""
    return _edge_dot(query, key, structure(nb, query, key))


def edge_softmax(logits: Tensor, nb: Neighborhood) -> Tensor:
    """Weights [E, H]; see `ops.edge_softmax`."""
    return _edge_softmax(logits, nb.indptr, nb.indices)


def aggregate(weights: Tensor, value: Tensor, nb: Neighborhood) -> Tensor:
    """Sums [num_dst, H, D]; see `ops.aggregate`."""
    return _aggregate(weights, value, structure(nb, weights, value))
