"""The primitives as torch ops with gradients in terms of each other, on any device.

A neighborhood enters as a flat list of tensors: [indptr, indices], and where a gradient may
follow the transposed structure [t_indptr, targets, perm] after it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from graphtheory.graph import Neighborhood
from graphtheory.graph.csr import csr_targets
from graphtheory.ops import reference
from graphtheory.ops.backend import BACKENDS, Backend
from graphtheory.ops.call import Call, structure, sum_type
from graphtheory.ops.operator import FusedOp, Operator, held, hold
from graphtheory.ops.recorded import Needs, Tensors, Work, made


def neighborhood_of(parts: Sequence[Tensor], num_src: int) -> Neighborhood:
    """The neighborhood that `structure` took apart."""
    nb = Neighborhood(parts[0], parts[1], num_src, validate=False)
    if len(parts) > 2 and len(parts[2]):
        nb._adopt_transpose(*parts[2:])
    return nb


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def has_kernel(backend: str, name: str) -> bool:
    """Whether a backend has a kernel of this name; what is traced does not import its module."""
    return hasattr(BACKENDS[backend].kernels, name)


def _fake_sums(pointers: int) -> Callable[..., Tensor]:
    """Sums without values, of the type of the values, by the rows of one of the parts."""
    return lambda weights, value, parts, backend: value.new_empty(
        parts[pointers].size(0) - 1, *value.shape[1:]
    )


edge_dot = Operator(
    "graphtheory::edge_dot", "query:NHD key:MHD parts:parts backend:str", ["EH"],
    lambda query, key, parts, backend: BACKENDS[backend].kernels.edge_dot(*parts[:2], query, key),
)  # fmt: skip
_aggregate = Operator(
    "graphtheory::aggregate", "weights:EH value:MHD parts:parts backend:str", ["NHD"],
    lambda weights, value, parts, backend: BACKENDS[backend].kernels.aggregate(
        *parts[:2], weights, value
    ),
    _fake_sums(0),
)  # fmt: skip
_by_source = Operator(
    "graphtheory::aggregate_by_source", "weights:EH value:NHD parts:parts backend:str", ["MHD"],
    lambda weights, value, parts, backend: BACKENDS[backend].kernels.aggregate(
        *parts[2:4], weights, value, parts[4]
    ),
    _fake_sums(2),
)  # fmt: skip
_edge_softmax = Operator(
    "graphtheory::edge_softmax", "logits:EH parts:parts backend:str", ["EH"],
    lambda logits, parts, backend: BACKENDS[backend].kernels.edge_softmax(parts[0], logits),
)  # fmt: skip
_edge_softmax_grad = Operator(
    "graphtheory::edge_softmax_backward", "weights:EH grad:EH parts:parts backend:str", ["EH"],
    lambda weights, grad, parts, backend: BACKENDS[backend].kernels.edge_softmax_backward(
        parts[0], weights, grad
    ),
)  # fmt: skip


def _register_gradients(
    op: Operator, of_first: Callable[..., Tensor], of_second: Callable[..., Tensor],
    bilinear: bool = True,
) -> None:  # fmt: skip
    """Let an op of two tensors have gradients, each from that of the output and both tensors."""

    def save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        first, second, parts, ctx.backend = inputs
        ctx.dtype, (need_first, need_second) = first.dtype, ctx.needs_input_grad[:2]
        if bilinear:  # each gradient reads the other tensor; what none reads may change in place
            first, second = first if need_second else None, second if need_first else None
        hold(ctx, parts, first, second)

    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, list[None], None]:
        (first, second), parts = held(ctx, 2)
        given = (grad, first, second, parts, ctx.backend)
        need_first, need_second = ctx.needs_input_grad[:2]
        grad_first = of_first(*given).to(ctx.dtype) if need_first else None
        return grad_first, of_second(*given) if need_second else None, [None] * len(parts), None

    op.register_autograd(backward, setup_context=save)


def _of_weights(up: Tensor, weights: Tensor, grad: Tensor, parts: Any, backend: str) -> Tensor:
    """Second derivative of the softmax by its weights."""
    rows = csr_targets(parts[0], weights.size(0))

    def mean(per_edge: Tensor) -> Tensor:
        total = per_edge.new_zeros(parts[0].size(0) - 1, per_edge.size(1))
        return total.index_add(0, rows, per_edge)[rows]

    return up * (grad - mean(weights * grad)) - grad * mean(weights * up)


_register_gradients(
    edge_dot,
    lambda grad, query, key, *rest: _aggregate(grad, key, *rest),
    lambda grad, query, key, *rest: _by_source(grad, query, *rest),
)
_register_gradients(
    _aggregate,
    lambda grad, weights, value, *rest: edge_dot(grad, value, *rest),
    lambda grad, weights, value, *rest: _by_source(weights, grad, *rest),
)
_register_gradients(
    _by_source,
    lambda grad, weights, value, *rest: edge_dot(value, grad, *rest),
    lambda grad, weights, value, *rest: _aggregate(weights, grad, *rest),
)
_register_gradients(
    _edge_softmax_grad,
    _of_weights,
    lambda up, weights, grad, *rest: _edge_softmax_grad(weights, up, *rest),
    bilinear=False,
)


def _save_weights(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    _, parts, ctx.backend = inputs
    hold(ctx, parts, output)


def _edge_softmax_backward(ctx: Any, grad: Tensor) -> tuple[Tensor, list[None], None]:
    (weights,), parts = held(ctx, 1)
    return _edge_softmax_grad(weights, grad, parts, ctx.backend), [None] * len(parts), None


_edge_softmax.register_autograd(_edge_softmax_backward, setup_context=_save_weights)


def edge_softmax(call: Call, backend: Backend) -> Tensor:
    """Weights [E, H]; see `ops.edge_softmax`."""
    nb = call.neighborhood
    return _edge_softmax(call.tensors[0], [nb.indptr, nb.indices], backend.name, plan=call.plan)


def _largest(a: Any) -> Tensor:
    wide, nb = sum_type(a.weights, a.value), neighborhood_of(a.parts, a.value.size(0))
    return reference.aggregate(a.weights.to(wide), a.value.to(wide), nb, "max")


_max = FusedOp(
    "aggregate_max",
    "weights:EH value:MHD parts:parts",
    "NHD",
    run=lambda kernels, a: kernels.aggregate_max(*a.parts[:2], a.weights, a.value),
    gradients=lambda kernels, a, grads, kept, needs: kernels.aggregate_max_backward(
        *a.parts, *grads, *kept, a.weights, a.value, needs[0]
    ),
    definition=_largest,
    kept="NHD",
    keep=lambda a, outputs: outputs,
    fake=lambda a: a.value.new_empty(
        a.parts[0].size(0) - 1, *a.value.shape[1:], dtype=sum_type(a.weights, a.value)
    ),
)


def aggregate(call: Call, backend: Backend) -> Tensor:
    """Sums, means, largest or smallest values [num_dst, H, D]; see `ops.aggregate`."""
    weights, value = call.tensors
    nb, (reduce,), plan = call.neighborhood, call.options, call.plan
    parts, name = structure(call, backend), backend.name
    if plan is not None and plan.recorded is not None and reduce in ("sum", "mean"):
        one = plan.work(Sums, lambda: Sums(parts, backend, reduce == "mean"), backend.kernels)
        return one((weights, value), plan.grad)[0]
    assert weights is not None and value is not None
    if reduce == "max":
        return _max(weights, value, parts, name, plan=call.plan).to(value.dtype)
    if reduce == "min":
        return -_max(-weights, value, parts, name, plan=call.plan).to(value.dtype)
    if reduce == "mean":
        share = 1 / nb.degree().clamp(min=1).to(sum_type(weights))
        weights = weights * share.index_select(0, nb.targets())[:, None]
    return _aggregate(weights, value, parts, name, plan=call.plan)


class Sums(Work):
    """Sums or means of weighted values over rows, as work to record; without weights of values."""

    name, outputs = "graphtheory::aggregate", 1

    def __init__(self, parts: Sequence[Tensor], backend: Backend, mean: bool) -> None:
        self.parts, self._backend, self._mean = parts, backend, mean
        self._lengths = parts[0] if mean else None

    def forward(self, tensors: Tensors) -> Tensors:
        kernels = self._backend.kernels
        return [kernels.sums(*self.parts[:2], *tensors, lengths=self._lengths)]

    def reads(self, tensors: Tensors, needs: Needs) -> Tensors:
        weights, value = tensors  # each gradient reads the other; what none reads may change
        return weights if needs[1] else None, value if needs[0] else None

    def backward(self, grads: Sequence[Tensor], kept: Tensors, read: Tensors, needs: Needs) -> Any:
        kernels, (weights, value), (grad,) = self._backend.kernels, read, grads
        indptr, indices, t_indptr, targets, perm = self.parts
        of_weights = of_value = None
        if needs[0]:
            of_weights = kernels.edge_dot(indptr, indices, grad, value)
            if self._mean:
                of_weights = made(partial(_shared, indptr), of_weights)
        if needs[1]:
            more = {"lengths": self._lengths, "by_node": self._mean}
            of_value = kernels.sums(t_indptr, targets, weights, grad, perm, **more)
        return of_weights, of_value

    def differentiable(
        self, grads: Sequence[Tensor], kept: Tensors, read: Tensors, needs: Needs
    ) -> Any:
        (weights, value), (grad,), of_weights = read, grads, None
        given = self.parts, self._backend.name
        if self._mean:
            grad = grad / self.parts[0].diff().clamp(min=1).to(grad.dtype)[:, None, None]
        if needs[0]:
            of_weights = edge_dot(grad, value, *given)
        if not needs[1]:
            return of_weights, None
        if weights is None:
            weights = grad.new_ones(len(self.parts[1]), grad.size(1))
        return of_weights, _by_source(weights, grad, *given)


def _shared(indptr: Tensor, per_edge: Tensor) -> Tensor:
    """Values of edges divided by the number of edges of their row."""
    degree = indptr.diff().clamp(min=1)
    return per_edge / degree[csr_targets(indptr, len(per_edge))][:, None]
