"""Attention as one torch op with one backward op."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from graphtheory.ops import kernels
from graphtheory.ops.backend import BACKENDS, Backend, Sizes
from graphtheory.ops.call import AttentionCall, BucketedBias, Call, check_buckets
from graphtheory.ops.dropout import dropout_factor
from graphtheory.ops.kernels import neighborhood_of, structure
from graphtheory.ops.look_up import bias_per_edge
from graphtheory.ops.operator import operator
from graphtheory.ops.second import second_gradients


def sum_type(dtype: torch.dtype) -> torch.dtype:
    """The type in which sums of that type are taken."""
    return torch.promote_types(dtype, torch.float32)


def room_to_save(out: Tensor, num_edges: int, backend: str, *, additive: bool = False) -> Tensor:
    """What attention saves beside its output [num_dst, H, D], in type and shape."""
    wide = sum_type(out.dtype)
    narrow = 0 if out.dtype == wide else out.size(2)
    sizes = Sizes(out.size(0), num_edges, out.size(1), wide, narrow=narrow, additive=additive)
    return out.new_empty(BACKENDS[backend].saved_shape(sizes), dtype=wide)


def read_again(out: Tensor, saved: Tensor, backend: str) -> Tensor | None:
    """The output if the backward pass reads it beside what was saved."""
    recomputed = saved.dim() == 3 and "out" in BACKENDS[backend].recomputes_from
    return out if recomputed else None


@operator("graphtheory::attention", "NHD MHD MHD EH BH bucket . parts . . .")
def _attention(
    query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, table: Tensor | None,
    bucket: Tensor | None, seed: Tensor | None, parts: Sequence[Tensor],
    scale: float, dropout: float, backend: str,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    check_buckets(bucket, 0 if table is None else table.size(0))
    return BACKENDS[backend].kernels.attention(
        parts[0], parts[1], query, key, value, bias, bucket, table, scale, dropout, seed
    )


@_attention.register_fake
def _(query: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    out = query.new_empty(query.shape)
    return out, room_to_save(out, rest[6][1].size(0), rest[-1])


@operator(
    "graphtheory::attention_backward",
    "NHD NHD MHD MHD saved NHD EH BH bucket . . parts . . .",
)
def _attention_grad(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, saved: Tensor,
    out: Tensor | None, bias: Tensor | None, table: Tensor | None,
    bucket: Tensor | None, seed: Tensor | None, num_buckets: int, parts: Sequence[Tensor],
    scale: float, dropout: float, backend: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    check_buckets(bucket, num_buckets)
    given = {"out": out, "bias": bias, "table": table} if saved.dim() == 3 else {}
    again = {name: given.get(name) for name in BACKENDS[backend].recomputes_from}
    return BACKENDS[backend].kernels.attention_backward(
        *parts, grad, query, key, value, saved, bucket, num_buckets, scale, dropout, seed, **again
    )


@_attention_grad.register_fake
def _(grad: Tensor, query: Tensor, key: Tensor, value: Tensor, saved: Tensor, *rest: Any) -> Any:
    _, bias, _, _, _, num_buckets, parts, *_ = rest
    nodes = [t.new_empty(t.shape) for t in (query, key, value)]
    recomputed = saved.dim() == 3 and bias is None  # then nobody asks for these gradients
    logits = saved.new_empty(0 if recomputed else parts[1].size(0), query.size(1))
    grad_table = saved.new_empty(num_buckets, query.size(1))
    return *nodes, logits, grad_table


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    query, key, value, bias, table, bucket, seed, parts, *ctx.options = inputs
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)
    ctx.num_parts = len(parts)
    ctx.bias_dtype = None if bias is None else bias.dtype
    ctx.table = None if table is None else (table.size(0), table.dtype)
    out = read_again(*output, ctx.options[-1])
    ctx.save_for_backward(query, key, value, output[1], out, bias, table, bucket, seed, *parts)


def _backward(ctx: Any, grad: Tensor | None, _saved: Tensor | None) -> tuple[Any, ...]:
    saved = ctx.saved_tensors  # once: to read them twice is an error under checkpointing
    (*tensors, bucket, seed), parts = saved[:9], list(saved[9:])
    nothing = (None, [None] * ctx.num_parts, None, None, None)
    if grad is None:
        return None, None, None, None, None, None, *nothing
    buckets = 0 if ctx.table is None else ctx.table[0]
    grad_query, grad_key, grad_value, grad_logits, grad_table = _attention_grad(
        grad, *tensors, bucket, seed, buckets, parts, *ctx.options
    )
    if not any(ctx.needs_input_grad[1:3]):
        grad_key = grad_value = None
    grad_bias = None if ctx.bias_dtype is None else grad_logits.to(ctx.bias_dtype)
    grad_table = None if ctx.table is None else grad_table.to(ctx.table[1])
    return grad_query, grad_key, grad_value, grad_bias, grad_table, None, *nothing


def _save_grad(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *tensors, _, _, bias, table, bucket, seed, _, parts, scale, dropout, backend = inputs
    ctx.set_materialize_grads(False)
    ctx.options, ctx.num_parts = (scale, dropout, backend), len(parts)
    ctx.save_for_backward(*tensors, bias, table, bucket, seed, *parts)


def _backward_of_grad(ctx: Any, *upstream: Tensor | None) -> tuple[Any, ...]:
    grad, query, key, value, bias, table, bucket, seed, *parts = ctx.saved_tensors
    scale, dropout, backend = ctx.options
    nb = neighborhood_of(parts, value.size(0))

    def definition(query: Tensor, key: Tensor, value: Tensor, bias: Any, table: Any) -> Tensor:
        bias = bias if table is None else BucketedBias(bucket, table)
        call = AttentionCall(query, key, value, nb, bias, scale, dropout, seed)
        return composed(call, BACKENDS[backend])

    tensors = (query, key, value, bias, table)
    needed = [ctx.needs_input_grad[k] for k in (0, 1, 2, 3, 6, 7)]
    of_grad, found = second_gradients(definition, tensors, (grad,), upstream, needed)
    nothing = (None, None, None, [None] * ctx.num_parts, None, None, None)
    return *of_grad, *found[:3], None, None, *found[3:], *nothing


_attention.register_autograd(_backward, setup_context=_save)
_attention_grad.register_autograd(_backward_of_grad, setup_context=_save_grad)


def composed(call: AttentionCall, backend: Backend) -> Tensor:
    """A checked call as one primitive after another, differentiable any number of times."""
    nb, wide = call.neighborhood, sum_type(call.query.dtype)
    query, key, value = (t.to(wide) for t in (call.query, call.key, call.value))
    logits = call.scale * kernels.edge_dot(Call("edge_dot", nb, (query, key)), backend)
    if call.bias is not None:
        logits = logits + bias_per_edge(call.bias).to(wide)
    weights = kernels.edge_softmax(Call("edge_softmax", nb, (logits,)), backend)
    if call.seed is not None:
        weights = weights * dropout_factor(call.dropout, call.seed, weights)
    out = kernels.aggregate(Call("aggregate", nb, (weights, value)), backend)
    return out.to(call.query.dtype)


def attention(call: AttentionCall, backend: Backend) -> Tensor:
    """Run a checked call on the CSR kernels of a backend."""
    bias = None if isinstance(call.bias, BucketedBias) else call.bias
    bucket, table = call.bias if isinstance(call.bias, BucketedBias) else (None, None)
    out, _ = _attention(
        call.query, call.key, call.value, bias, table, bucket, call.seed, structure(call, backend),
        call.scale, call.dropout, backend.name,
    )  # fmt: skip
    return out
