"""Attention on CSR rows in the regime that suits its size; see the README of the folder above."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import Tensor

from graphtheory.ops.backends.cpu import run as calls
from graphtheory.ops.backends.cpu.attention import recompute, whole
from graphtheory.ops.backends.cpu.memory import empty
from graphtheory.ops.backends.cpu.primitives import EXP, dot, softmax_, softmax_backward_, sums
from graphtheory.ops.backends.cpu.regimes import keeps_weights, rows_stay_whole
from graphtheory.ops.backends.precision import widened


def run_whole(
    loop: Callable[..., None], weights: Tensor, value: Tensor, *args: Any, passes: int = 1
) -> None:
    """Launch a loop over whole rows, whose first argument is the row pointers."""
    work = passes * weights.numel() * (2 * value.size(2) + EXP)
    calls.run(loop, work, calls.chunks_of(args[0], weights), *args, passes=passes)


def attention(
    indptr: Tensor, indices: Tensor, query: Tensor, key: Tensor, value: Tensor,
    bias: Tensor | None, bucket: Tensor | None, table: Tensor | None,
    scale: float, dropout: float, seed: Tensor | None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Output as `query`, and the weights [E, H] before dropout in the type of the sums.

    Of many weights the norm of rows [num_dst, 2, H] instead, see `recompute`.
    """
    dtype, drawn = query.dtype, 0 if seed is None else int(seed)
    query, key, value = widened(query, key, value)
    edges, heads = indices.size(0), query.size(1)
    if not keeps_weights(edges, heads, query.element_size()):
        nodes, drop = (indptr, indices, query, key, value), (dropout, drawn)
        out, norm = recompute.attention(*nodes, bias, bucket, table, scale, *drop)
        return out.to(dtype), norm
    if rows_stay_whole(indices, value):
        out, weights = empty(query.shape, query), empty((edges, heads), query)
        arrays = (indptr, indices, query, key, value)
        given = (*calls.options(weights, bias, bucket, table), calls.number(scale, weights))
        numbers = (calls.number(1.0, weights), dropout, drawn)
        run_whole(whole.forward, weights, value, *arrays, *given, *numbers, weights, out)
        return out.to(dtype), weights
    weights = softmax_(indptr, dot(indptr, indices, query, key), scale, bias, bucket, table)
    out = sums(indptr, indices, weights, value, dropout=dropout, seed=drawn)
    return out.to(dtype), weights


def attention_backward(
    indptr: Tensor, indices: Tensor, t_indptr: Tensor, targets: Tensor, perm: Tensor,
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, saved: Tensor,
    bucket: Tensor | None, num_buckets: int, scale: float, dropout: float, seed: Tensor | None,
    *, bias: Tensor | None, table: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of query, key, value, the logits [E, H] and the bias table [num_buckets, H].

    Without a transposed structure, whose pointers then are empty, key and value get nothing. Where
    the norm is given, not the weights, the logits get [0, H] unless there is a bias by edge.
    """
    dtype, drawn = query.dtype, 0 if seed is None else int(seed)
    backward: Callable[..., Any] = (
        _backward_of_whole_rows if rows_stay_whole(indices, value) else _backward
    )
    if saved.dim() == 3:
        backward = partial(recompute.attention_backward, bias=bias, table=table)
    nodes = widened(grad, query, key, value, saved)
    of_query, of_key, of_value, logits, of_table = backward(
        indptr, indices, t_indptr, targets, perm, *nodes, bucket, num_buckets, scale, dropout,
        drawn,
    )  # fmt: skip
    return of_query.to(dtype), of_key.to(dtype), of_value.to(dtype), logits, of_table


def _backward_of_whole_rows(
    indptr: Tensor, indices: Tensor, t_indptr: Tensor, targets: Tensor, perm: Tensor,
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, weights: Tensor,
    bucket: Tensor | None, num_buckets: int, scale: float, dropout: float, seed: int,
) -> tuple[Tensor, ...]:  # fmt: skip
    of_query, of_key, of_value, logits = (empty(t.shape, t) for t in (query, key, value, weights))
    tables = calls.tables_of(weights, calls.chunks_of(indptr, weights), num_buckets)
    run_whole(
        whole.backward, weights, value, indptr, indices, t_indptr, targets, perm, grad, query,
        key, value, weights, calls.buckets(bucket), calls.number(scale, grad),
        calls.number(1.0, grad), dropout, seed, logits, of_query, tables, of_key, of_value,
        passes=2 if t_indptr.numel() else 1,
    )  # fmt: skip
    return of_query, of_key, of_value, logits, calls.sum_tables(tables, num_buckets, weights)


def _backward(
    indptr: Tensor, indices: Tensor, t_indptr: Tensor, targets: Tensor, perm: Tensor,
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, weights: Tensor,
    bucket: Tensor | None, num_buckets: int, scale: float, dropout: float, seed: int,
) -> tuple[Tensor, ...]:  # fmt: skip
    logits = dot(indptr, indices, grad, value)  # so far the gradient of the weights
    drop = (dropout, seed)
    of_table = softmax_backward_(indptr, weights, logits, bucket, num_buckets, *drop)
    of_query = sums(indptr, indices, logits, key, scale=scale)
    of_key, of_value = (t.new_empty(t.shape) for t in (key, value))
    if t_indptr.numel():
        of_key = sums(t_indptr, targets, logits, query, perm, scale)
        of_value = sums(t_indptr, targets, weights, grad, perm, 1.0, *drop)
    return of_query, of_key, of_value, logits, of_table
