"""Sums of ReLU(source + features of the edge @ matrix), whose product is never written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from graphtheory.graph import Neighborhood
from graphtheory.ops import reference
from graphtheory.ops.backend import BACKENDS, Backend
from graphtheory.ops.call import Call
from graphtheory.ops.kernels import structure
from graphtheory.ops.operator import operator
from graphtheory.ops.second import second_gradients

_WORD = 16  # signs in an entry of what kernels save, `vector.llvm.FULL` of those on a CPU


@operator("graphtheory::mapped_relu_sum", "MHD FK HKD order parts .")
def _sum(
    value: Tensor, features: Tensor, matrix: Tensor, order: Tensor, parts: Sequence[Tensor],
    backend: str,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    return BACKENDS[backend].kernels.mapped_relu_sum(*parts[:2], order, value, features, matrix)


@_sum.register_fake
def _(
    value: Tensor, features: Tensor, matrix: Tensor, order: Tensor, parts: Sequence[Tensor],
    backend: str,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    out = value.new_empty(parts[0].size(0) - 1, *value.shape[1:])
    words = -(-value.size(1) * value.size(2) // _WORD)
    return out, value.new_empty(parts[1].size(0), words, dtype=torch.int16)


@operator("graphtheory::mapped_relu_sum_backward", "NHD MHD FK HKD . order . parts .")
def _sum_grad(
    grad: Tensor, value: Tensor, features: Tensor, matrix: Tensor, signs: Tensor, order: Tensor,
    of_features: bool, parts: Sequence[Tensor], backend: str,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    words = -(-value.size(1) * value.size(2) // _WORD)
    if signs.shape != (parts[1].size(0), words):
        raise ValueError(f"signs: shape {tuple(signs.shape)}, not of the forward pass")
    return BACKENDS[backend].kernels.mapped_relu_sum_backward(
        *parts, order, grad, features, matrix, signs, of_features
    )


@_sum_grad.register_fake
def _(grad: Tensor, value: Tensor, features: Tensor, matrix: Tensor, *rest: Any) -> Any:
    _signs, _order, of_features, *_ = rest
    of_edges = features.new_empty(features.shape if of_features else (0,))
    return value.new_empty(value.shape), of_edges, matrix.new_empty(matrix.shape)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *tensors, order, parts, ctx.backend = inputs
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)
    ctx.num_parts = len(parts)
    ctx.save_for_backward(*tensors, output[1], order, *parts)


def _backward(ctx: Any, grad: Tensor | None, _signs: Tensor | None) -> tuple[Any, ...]:
    nothing, asked = (None, [None] * ctx.num_parts, None), ctx.needs_input_grad[1]
    if grad is None:
        return None, None, None, *nothing
    saved = ctx.saved_tensors  # once: to read them twice is an error under checkpointing
    of_value, of_edges, of_matrix = _sum_grad(grad, *saved[:5], asked, list(saved[5:]), ctx.backend)
    return of_value, of_edges if asked else None, of_matrix, *nothing


def _save_grad(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *tensors, _, order, _, parts, _ = inputs
    ctx.set_materialize_grads(False)
    ctx.num_parts = len(parts)
    ctx.save_for_backward(*tensors, order, *parts[:2])


def _backward_of_grad(ctx: Any, *upstream: Tensor | None) -> tuple[Any, ...]:
    grad, *tensors, order, indptr, indices = ctx.saved_tensors
    perm = order if len(order) else None
    nb = Neighborhood(indptr, indices, tensors[0].size(0), perm=perm, validate=False)

    def definition(value: Tensor, features: Tensor, matrix: Tensor) -> Tensor:
        return reference.relu_sum(value, features, nb, perm is not None, matrix)

    of_grad, found = second_gradients(
        definition, tensors, (grad,), upstream, ctx.needs_input_grad[:4]
    )
    return *of_grad, *found, None, None, None, [None] * ctx.num_parts, None


_sum.register_autograd(_backward, setup_context=_save)
_sum_grad.register_autograd(_backward_of_grad, setup_context=_save_grad)


def run(call: Call, order: Tensor, backend: Backend) -> Tensor:
    """Sums [num_dst, H, D] by the kernels of a backend; features of edge e are row order[e]."""
    return _sum(*call.tensors, order, structure(call, backend), backend.name)[0]
