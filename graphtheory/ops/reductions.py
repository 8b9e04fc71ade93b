"""Aggregation by sum, mean, and by the largest or smallest value of each feature."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from graphtheory.ops import kernels, reference
from graphtheory.ops.backend import BACKENDS, Backend
from graphtheory.ops.call import Call
from graphtheory.ops.operator import operator
from graphtheory.ops.second import second_gradients


@operator("graphtheory::aggregate_max", "EH MHD parts .")
def _max(weights: Tensor, value: Tensor, parts: Sequence[Tensor], backend: str) -> Tensor:
    return BACKENDS[backend].kernels.aggregate_max(parts[0], parts[1], weights, value)


@_max.register_fake
def _(weights: Tensor, value: Tensor, parts: Sequence[Tensor], backend: str) -> Tensor:
    out = value.new_empty(parts[0].size(0) - 1, value.size(1), value.size(2))
    return out.to(_sum_type(weights, value))


@operator("graphtheory::aggregate_max_backward", "NHD NHD EH MHD . parts .")
def _max_grad(
    grad: Tensor, out: Tensor, weights: Tensor, value: Tensor, of_weights: bool,
    parts: Sequence[Tensor], backend: str,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    return BACKENDS[backend].kernels.aggregate_max_backward(
        *parts, grad, out, weights, value, of_weights
    )


@_max_grad.register_fake
def _(
    grad: Tensor, out: Tensor, weights: Tensor, value: Tensor, of_weights: bool, *rest: Any
) -> tuple[Tensor, Tensor]:
    return weights.new_empty(weights.shape if of_weights else 0), value.new_empty(value.shape)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    weights, value, parts, ctx.backend = inputs
    ctx.save_for_backward(weights, value, output, *parts)


def _backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    weights, value, out, *parts = ctx.saved_tensors
    of_weights = ctx.needs_input_grad[0]
    to_weights, to_value = _max_grad(grad, out, weights, value, of_weights, parts, ctx.backend)
    return to_weights if of_weights else None, to_value, [None] * len(parts), None


def _save_grad(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    grad, _, weights, value, ctx.of_weights, parts, _ = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(grad, weights, value, *parts)


def _backward_of_grad(ctx: Any, *upstream: Tensor | None) -> tuple[Any, ...]:
    (grad, *tensors), parts = ctx.saved_tensors[:3], ctx.saved_tensors[3:]
    nb = kernels.neighborhood_of(parts, tensors[1].size(0))

    def definition(weights: Tensor, value: Tensor) -> Tensor:
        weights, value = weights.to(grad.dtype), value.to(grad.dtype)
        return reference.aggregate(weights, value, nb, "max")

    upstream = upstream if ctx.of_weights else (None, *upstream[1:])
    needed = [ctx.needs_input_grad[k] for k in (0, 2, 3)]
    of_grad, found = second_gradients(definition, tensors, (grad,), upstream, needed)
    return *of_grad, None, *found, None, [None] * len(parts), None


_max.register_autograd(_backward, setup_context=_save)
_max_grad.register_autograd(_backward_of_grad, setup_context=_save_grad)


def _sum_type(*tensors: Tensor) -> torch.dtype:
    dtype = torch.float32
    for t in tensors:
        dtype = torch.promote_types(dtype, t.dtype)
    return dtype


def aggregate(call: Call, backend: Backend) -> Tensor:
    """Reduced values [num_dst, H, D]; see `ops.aggregate`."""
    weights, value = call.tensors
    assert weights is not None and value is not None
    if not call.options:
        return kernels.aggregate(call, backend)
    nb = call.neighborhood
    if call.options == ("mean",):
        wide = torch.promote_types(weights.dtype, torch.float32)
        share = 1 / nb.degree().clamp(min=1).to(wide)
        weights = weights * share.index_select(0, nb.targets())[:, None]
        return kernels.aggregate(call._replace(tensors=(weights, value)), backend)
    parts = kernels.structure(call, backend)
    if call.options == ("min",):
        return -_max(-weights, value, parts, backend.name).to(value.dtype)
    return _max(weights, value, parts, backend.name).to(value.dtype)
