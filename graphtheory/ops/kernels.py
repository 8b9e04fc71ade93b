"""The primitives as torch ops with gradients in terms of each other, on any device.

A neighborhood enters as a flat list of tensors: [indptr, indices], and where a gradient may
follow the transposed structure [t_indptr, targets, perm] after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from graphtheory.graph import Neighborhood
from graphtheory.graph.csr import csr_targets
from graphtheory.graph.inference import innermost_transform
from graphtheory.ops.backend import BACKENDS, Backend
from graphtheory.ops.call import AttentionCall, Call, needs_grad
from graphtheory.ops.operator import operator


def structure(call: Call | AttentionCall, backend: Backend) -> list[Tensor]:
    """The neighborhood of a call as tensors, the transposed ones if a backward pass may follow.

    They are empty if `backend` does not need them.
    """
    nb = call.neighborhood
    out = [nb.indptr, nb.indices]
    # A tensor of an outer call of torch.func does not say that it needs a gradient.
    if innermost_transform() is not None or needs_grad(call.tensors):
        if backend.needs_transpose(call):
            t = nb._turned()
            assert t.perm is not None
            out += [t.indptr, t.indices, t.perm]
        else:
            out += [nb.indptr.new_empty(0)] * 3
    return out


def neighborhood_of(parts: Sequence[Tensor], num_src: int) -> Neighborhood:
    """The neighborhood that `structure` took apart."""
    nb = Neighborhood(parts[0], parts[1], num_src, validate=False)
    if len(parts) > 2 and len(parts[2]):
        nb._adopt_transpose(*parts[2:])
    return nb


@operator("graphtheory::edge_dot", "NHD MHD parts .")
def _edge_dot(query: Tensor, key: Tensor, parts: Sequence[Tensor], backend: str) -> Tensor:
    return BACKENDS[backend].kernels.edge_dot(parts[0], parts[1], query, key)


@_edge_dot.register_fake
def _(query: Tensor, key: Tensor, parts: Sequence[Tensor], backend: str) -> Tensor:
    return query.new_empty(parts[1].size(0), query.size(1))


@operator("graphtheory::aggregate", "EH MHD parts .")
def _aggregate(weights: Tensor, value: Tensor, parts: Sequence[Tensor], backend: str) -> Tensor:
    return BACKENDS[backend].kernels.aggregate(parts[0], parts[1], weights, value)


@_aggregate.register_fake
def _(weights: Tensor, value: Tensor, parts: Sequence[Tensor], backend: str) -> Tensor:
    return value.new_empty(parts[0].size(0) - 1, value.size(1), value.size(2))


@operator("graphtheory::aggregate_by_source", "EH NHD parts .")
def _aggregate_by_source(
    weights: Tensor, value: Tensor, parts: Sequence[Tensor], backend: str
) -> Tensor:
    _, _, t_indptr, targets, perm = parts
    return BACKENDS[backend].kernels.aggregate(t_indptr, targets, weights, value, perm)


@_aggregate_by_source.register_fake
def _(weights: Tensor, value: Tensor, parts: Sequence[Tensor], backend: str) -> Tensor:
    return value.new_empty(parts[2].size(0) - 1, value.size(1), value.size(2))


_Grads = tuple[Tensor | None, Tensor | None, list[None], None]


def _edge_dot_backward(ctx: Any, grad: Tensor) -> _Grads:
    query, key, *parts = ctx.saved_tensors
    need_query, need_key = ctx.needs_input_grad[:2]
    grad_query = _aggregate(grad, key, parts, ctx.backend) if need_query else None
    grad_key = _aggregate_by_source(grad, query, parts, ctx.backend) if need_key else None
    return grad_query, grad_key, [None] * len(parts), None


def _aggregate_backward(ctx: Any, grad: Tensor) -> _Grads:
    weights, value, *parts = ctx.saved_tensors
    need_weights, need_value = ctx.needs_input_grad[:2]
    grad_weights = _edge_dot(grad, value, parts, ctx.backend) if need_weights else None
    grad_value = _aggregate_by_source(weights, grad, parts, ctx.backend) if need_value else None
    return _as(grad_weights, weights), grad_value, [None] * len(parts), None


def _aggregate_by_source_backward(ctx: Any, grad: Tensor) -> _Grads:
    weights, value, *parts = ctx.saved_tensors
    need_weights, need_value = ctx.needs_input_grad[:2]
    grad_weights = _edge_dot(value, grad, parts, ctx.backend) if need_weights else None
    grad_value = _aggregate(weights, grad, parts, ctx.backend) if need_value else None
    return _as(grad_weights, weights), grad_value, [None] * len(parts), None


def _as(grad: Tensor | None, of: Tensor) -> Tensor | None:
    return None if grad is None else grad.to(of.dtype)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    first, second, parts, ctx.backend = inputs
    ctx.save_for_backward(first, second, *parts)


_edge_dot.register_autograd(_edge_dot_backward, setup_context=_save)
_aggregate.register_autograd(_aggregate_backward, setup_context=_save)
_aggregate_by_source.register_autograd(_aggregate_by_source_backward, setup_context=_save)


@operator("graphtheory::edge_softmax", "EH indptr . .")
def _edge_softmax(logits: Tensor, indptr: Tensor, indices: Tensor, backend: str) -> Tensor:
    return BACKENDS[backend].kernels.edge_softmax(indptr, logits)


@_edge_softmax.register_fake
def _(logits: Tensor, indptr: Tensor, indices: Tensor, backend: str) -> Tensor:
    return logits.new_empty(logits.shape)


@operator("graphtheory::edge_softmax_backward", "EH EH indptr .")
def _edge_softmax_grad(weights: Tensor, grad: Tensor, indptr: Tensor, backend: str) -> Tensor:
    return BACKENDS[backend].kernels.edge_softmax_backward(indptr, weights, grad)


@_edge_softmax_grad.register_fake
def _(weights: Tensor, grad: Tensor, indptr: Tensor, backend: str) -> Tensor:
    return weights.new_empty(weights.shape)


def _row_sums(per_edge: Tensor, indptr: Tensor) -> Tensor:
    """Sum of each row, given back to every edge of it."""
    rows = csr_targets(indptr, per_edge.size(0))
    total = per_edge.new_zeros(indptr.size(0) - 1, per_edge.size(1))
    return total.index_add(0, rows, per_edge)[rows]


def _edge_softmax_backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
    weights, indptr = ctx.saved_tensors
    return _edge_softmax_grad(weights, grad, indptr, ctx.backend), None, None, None


def _edge_softmax_grad_backward(ctx: Any, up: Tensor) -> tuple[Tensor, Tensor, None, None]:
    weights, grad, indptr = ctx.saved_tensors
    grad_weights = up * (grad - _row_sums(weights * grad, indptr)) - grad * _row_sums(
        weights * up, indptr
    )
    return grad_weights, _edge_softmax_grad(weights, up, indptr, ctx.backend), None, None


def _save_softmax(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    _, indptr, _, ctx.backend = inputs
    ctx.save_for_backward(output, indptr)


def _save_softmax_grad(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    *tensors, ctx.backend = inputs
    ctx.save_for_backward(*tensors)


_edge_softmax.register_autograd(_edge_softmax_backward, setup_context=_save_softmax)
_edge_softmax_grad.register_autograd(_edge_softmax_grad_backward, setup_context=_save_softmax_grad)


def edge_dot(call: Call, backend: Backend) -> Tensor:
    """Logits [E, H]; see `ops.edge_dot`."""
    return _edge_dot(*call.tensors, structure(call, backend), backend.name)


def edge_softmax(call: Call, backend: Backend) -> Tensor:
    """Weights [E, H]; see `ops.edge_softmax`."""
    nb = call.neighborhood
    return _edge_softmax(call.tensors[0], nb.indptr, nb.indices, backend.name)


def aggregate(call: Call, backend: Backend) -> Tensor:
    """Sums [num_dst, H, D]; see `ops.aggregate`."""
    return _aggregate(*call.tensors, structure(call, backend), backend.name)
