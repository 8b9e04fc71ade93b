"""Attention with features of edges on linear maps of x, which the backward pass makes again.

On a CPU, without a copy of the features in the order of rows: edge e of the rows has row order[e]
of the features; an empty order is row e.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear

from graphtheory.graph import Neighborhood
from graphtheory.ops.backend import BACKENDS
from graphtheory.ops.bounds import Layout
from graphtheory.ops.call import AttentionCall, BucketedBias, check_buckets
from graphtheory.ops.edge_features import EdgeFeatures
from graphtheory.ops.fused_edges import attention as fused
from graphtheory.ops.kernels import neighborhood_of
from graphtheory.ops.operator import operator
from graphtheory.ops.second import first_gradients

Linear = tuple[Tensor, Tensor | None]  # W and b


def _kernels() -> Any:
    return BACKENDS["numba_csr"].kernels


_LAYOUT = "MI NJ WJ W WI W WI W HKC FK EH BH bucket . order parts . ."
_of_gradients = Layout("graphtheory::projected_attention_backward", _LAYOUT)


@operator("graphtheory::projected_attention", _LAYOUT)
def _attention(
    x_src: Tensor, x_dst: Tensor, query: Tensor, query_bias: Tensor | None, key: Tensor,
    key_bias: Tensor | None, value: Tensor, value_bias: Tensor | None, matrix: Tensor,
    features: Tensor, bias: Tensor | None, table: Tensor | None, bucket: Tensor | None,
    seed: Tensor | None, order: Tensor, parts: Sequence[Tensor], scale: float, dropout: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    check_buckets(bucket, 0 if table is None else table.size(0))
    maps = [(query, query_bias), (key, key_bias), (value, value_bias)]
    return _kernels().projected_attention(
        parts[0], parts[1], order, x_src, x_dst, maps, matrix, features, bias, bucket, table,
        scale, dropout, _number(seed),
    )  # fmt: skip


def _pairs(tensors: Sequence[Any]) -> list[Linear]:
    return list(zip(tensors[::2], tensors[1::2], strict=True))


def _number(seed: Tensor | None) -> int:
    return 0 if seed is None else int(seed)


@_attention.register_fake
def _(x_src: Tensor, x_dst: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    (heads, dim, width), parts, rows = rest[6].shape, rest[-3], x_dst.size(0)
    out = x_dst.new_empty(rows, heads, width)
    return out, out.new_empty(parts[1].size(0), heads), out.new_empty(rows, heads, dim)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *tensors, parts, ctx.scale, ctx.dropout = inputs
    ctx.mark_non_differentiable(*output[1:])
    ctx.set_materialize_grads(False)
    ctx.num_parts = len(parts)
    ctx.save_for_backward(*tensors, *output[1:], *parts)


def _backward(*args: Any) -> tuple[Any, ...]:
    with torch.autocast("cpu", enabled=False):  # the caller's says nothing of the forward pass
        return _gradients(*args)


def _gradients(ctx: Any, grad: Tensor | None, *_: Tensor | None) -> tuple[Any, ...]:
    kept = ctx.saved_tensors  # once: to read them twice is an error under checkpointing
    tensors, (bucket, seed, order), (weights, found), parts = (
        kept[:12], kept[12:15], kept[15:17], list(kept[17:]),
    )  # fmt: skip
    nothing = (None, None, None, [None] * ctx.num_parts, None, None)
    if grad is None:
        return (*[None] * 12, *nothing)
    if torch.is_grad_enabled():  # a derivative of the gradients may follow
        more = (bucket, seed, order, parts, ctx.scale, ctx.dropout)
        return *first_gradients(
            lambda *given: _definition(*given, *more), tensors, (grad,)
        ), *nothing
    x_src, x_dst, *maps, matrix, features, _, table = tensors
    needs, buckets = ctx.needs_input_grad, 0 if table is None else table.size(0)
    check_buckets(bucket, buckets)
    given = (*tensors, bucket, seed, order, parts, ctx.scale, ctx.dropout)
    _of_gradients.check_shapes(given)
    _of_gradients.check_ids(given)
    of = _kernels().projected_attention_backward(
        parts, order, grad, x_src, x_dst, _pairs(maps), matrix, features, weights,
        found, bucket, buckets, (needs[0], needs[1], needs[9]), ctx.scale, ctx.dropout,
        _number(seed),
    )  # fmt: skip
    pairs = zip(of, tensors, strict=True)
    return *(None if t is None or g is None else g.to(t.dtype) for g, t in pairs), *nothing


_attention.register_autograd(_backward, setup_context=_save)


def _definition(*given: Any) -> Tensor:
    """The same by `ops.attention` on maps and features that are kept."""
    x_src, x_dst, *maps, matrix, features, bias, table, bucket, seed, order, parts = given[:-2]
    scale, dropout = given[-2:]
    query, key, value = (
        linear(x, *one).unflatten(1, (len(matrix), -1))
        for x, one in zip((x_dst, x_src, x_src), _pairs(maps), strict=True)
    )
    nb = neighborhood_of(parts, x_src.size(0))
    bias = bias if table is None else BucketedBias(bucket, table)
    rows = features if order.numel() == 0 else features.index_select(0, order)
    edges = EdgeFeatures(rows, torch.einsum("nhc,hdc->nhd", query, matrix))
    call = AttentionCall(query, key, value, nb, bias, scale, dropout, seed, edges=(edges,))
    out, (sums,) = fused(call, BACKENDS["numba_csr"])
    return out + torch.einsum("nhd,hdc->nhc", sums, matrix)


def attention(
    x_src: Tensor, x_dst: Tensor, maps: Sequence[Linear], matrix: Tensor, features: Tensor,
    nb: Neighborhood, order: Tensor | None, bias: Tensor | BucketedBias | None, scale: float,
    dropout: float, seed: Tensor | None,
) -> Tensor:  # fmt: skip
    """Attention of queries W x + b on keys and values W x + b + M' f of edges, [N_dst, H, C].

    Args:
        x_src: [N_src, channels], of which the second and the third map make keys and values.
        x_dst: [N_dst, channels], of which the first makes queries.
        maps: W [H * C, channels] and b [H * C] or None, three times.
        matrix: M of each head, [H, D, C].
        features: f [E, D].
        nb: Who attends to whom.
        order: Edge e of `nb` has row order[e] of the features; None is row e.
        bias: As of `ops.attention`.
        scale: Of the dot products.
        dropout: Probability of dropping a weight.
        seed: Which are dropped.
    """
    t = nb._turned()
    assert t.perm is not None
    dense, (bucket, table) = (
        (None, bias) if isinstance(bias, BucketedBias) else (bias, (None, None))
    )
    return _attention(
        x_src, x_dst, *(t for one in maps for t in one), matrix, features, dense, table, bucket,
        seed, nb.indptr.new_empty(0) if order is None else order,
        [nb.indptr, nb.indices, t.indptr, t.indices, t.perm], scale, dropout,
    )[0]  # fmt: skip
