"""Attention on whole rows: one loop forward, one over receivers and one over senders backward.

Fewer launches than the loops of `_numba_kernels` take, and what a row computes for its edges is
still in the cache when it is used. A hub is not shared out: its row belongs to one chunk. The
conventions are those of `_numba_kernels`.
"""

from __future__ import annotations

from numba import njit

from graphtheory.ops.backends._numba_kernels import (
    first_row,
    kept,
    softmax_backward_rows,
    softmax_rows,
)
from graphtheory.ops.backends._numba_lanes import MATH, add, clear, dot, put
from graphtheory.ops.backends._turns import next_chunk, take_chunk


@njit(cache=True, fastmath=MATH)
def dot_rows(first, last, indptr, indices, x, y, out):
    """Write out[e, h] = <x[i, h], y[j, h]> of the edges of rows first..last-1."""
    heads, dim = x.shape[1], x.shape[2]
    for i in range(first, last):
        for e in range(indptr[i], indptr[i + 1]):
            for h in range(heads):
                out[e, h] = dot(x, (i * heads + h) * dim, y, (indices[e] * heads + h) * dim, dim)


@njit(cache=True, fastmath=MATH)
def _spread_kept(begin, out, i, weights, e, scale, p, seed, x, j):
    """The part of `spread` with dropout, whose draws would slow the loop without it."""
    heads, dim = x.shape[1], x.shape[2]
    real = weights.dtype.type
    for h in range(heads):
        w = weights[e, h] * scale / real(1 - p) if kept(e * heads + h, p, seed) else real(0)
        here, there = (i * heads + h) * dim, (j * heads + h) * dim
        if begin:
            put(out, here, w, x, there, dim)
        else:
            add(out, here, w, x, there, dim)


@njit(inline="always", fastmath=MATH)
def spread(begin, out, i, weights, e, scale, p, seed, x, j):
    """Put, or add, to out[i] what an edge brings: scale * x[j, h] times its kept weights[e, h]."""
    if p > 0:
        _spread_kept(begin, out, i, weights, e, scale, p, seed, x, j)
    else:
        heads, dim = x.shape[1], x.shape[2]
        for h in range(heads):
            w, here, there = weights[e, h] * scale, (i * heads + h) * dim, (j * heads + h) * dim
            if begin:
                put(out, here, w, x, there, dim)
            else:
                add(out, here, w, x, there, dim)


@njit(cache=True, fastmath=MATH)
def sum_rows(first, last, indptr, indices, weights, scale, p, seed, x, out):
    """Write out[i, h] = scale * sum of the kept weights[e, h] * x[j, h]."""
    size = x.shape[1] * x.shape[2]
    for i in range(first, last):
        low, high = indptr[i], indptr[i + 1]
        if low == high:
            clear(out, i * size, size)
        for e in range(low, high):
            spread(e == low, out, i, weights, e, scale, p, seed, x, indices[e])


def forward(
    turns, chunks, indptr, indices, query, key, value, bias, bucket, table, scale, one, p, seed,
    weights, out,
):  # fmt: skip
    """Write the weights of the edges and the sums of the values; `one` is 1."""
    chunk = take_chunk(turns)
    while chunk < chunks:
        first, last = first_row(indptr, chunk, chunks), first_row(indptr, chunk + 1, chunks)
        dot_rows(first, last, indptr, indices, query, key, weights)
        softmax_rows(first, last, indptr, weights, bias, bucket, table, scale, 0, weights)
        sum_rows(first, last, indptr, indices, weights, one, p, seed, value, out)
        chunk = next_chunk(turns)


def backward(
    turns, chunks, indptr, indices, key, value, grad, weights, bucket, scale, p, seed,
    logits, of_query, tables,
):  # fmt: skip
    """Write the gradients of logits and query, and a table of each chunk."""
    heads = weights.shape[1]
    chunk = take_chunk(turns)
    while chunk < chunks:
        first, last = first_row(indptr, chunk, chunks), first_row(indptr, chunk + 1, chunks)
        dot_rows(first, last, indptr, indices, grad, value, logits)
        softmax_backward_rows(
            first, last, indptr, weights, logits, bucket, p, seed, 0, heads, logits, tables, chunk
        )
        sum_rows(first, last, indptr, indices, logits, scale, 0.0, 0, key, of_query)
        chunk = next_chunk(turns)


def backward_senders(
    turns, chunks, t_indptr, receivers, perm, query, grad, logits, weights, scale, one, p,
    seed, of_key, of_value,
):  # fmt: skip
    """Write the gradients of key and value; `one` is 1."""
    size = query.shape[1] * query.shape[2]
    chunk = take_chunk(turns)
    while chunk < chunks:
        for j in range(first_row(t_indptr, chunk, chunks), first_row(t_indptr, chunk + 1, chunks)):
            low, high = t_indptr[j], t_indptr[j + 1]
            if low == high:
                clear(of_key, j * size, size)
                clear(of_value, j * size, size)
            for t in range(low, high):
                e, i = perm[t], receivers[t]
                spread(t == low, of_key, j, logits, e, scale, 0.0, 0, query, i)
                spread(t == low, of_value, j, weights, e, one, p, seed, grad, i)
        chunk = next_chunk(turns)
