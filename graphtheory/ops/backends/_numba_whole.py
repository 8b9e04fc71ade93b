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
from graphtheory.ops.backends._numba_lanes import MATH, add, dot, put
from graphtheory.ops.backends._turns import next_chunk, take_chunk


@njit(inline="always", fastmath=MATH)
def _spread(begin, out, at, weights, e, scale, value, near, dim):
    """Put, or add, what an edge brings: scale times its weights times the rows of its heads."""
    for h in range(weights.shape[1]):
        w = weights[e, h] * scale
        if begin:
            put(out, at + h * dim, w, value, near + h * dim, dim)
        else:
            add(out, at + h * dim, w, value, near + h * dim, dim)


@njit(fastmath=MATH)
def _spread_kept(begin, out, at, weights, e, p, seed, value, near, dim):
    """The same with the weights that dropout keeps."""
    heads, real = weights.shape[1], weights.dtype.type
    for h in range(heads):
        w = weights[e, h] / real(1 - p) if kept(e * heads + h, p, seed) else real(0)
        if begin:
            put(out, at + h * dim, w, value, near + h * dim, dim)
        else:
            add(out, at + h * dim, w, value, near + h * dim, dim)


def forward(
    turns, chunks, indptr, indices, query, key, value, bias, bucket, table, scale, one, p, seed,
    weights, out,
):  # fmt: skip
    """Write the weights of the edges and the sums of the values; `one` is 1."""
    heads, dim = query.shape[1], query.shape[2]
    row = heads * dim
    chunk = take_chunk(turns)
    while chunk < chunks:
        first, last = first_row(indptr, chunk, chunks), first_row(indptr, chunk + 1, chunks)
        for i in range(first, last):
            for e in range(indptr[i], indptr[i + 1]):
                at, near = i * row, indices[e] * row
                for h in range(heads):
                    weights[e, h] = dot(query, at + h * dim, key, near + h * dim, dim)
        softmax_rows(first, last, indptr, weights, bias, bucket, table, scale, 0, weights)
        for i in range(first, last):
            low, high, at = indptr[i], indptr[i + 1], i * row
            if low == high:
                out[i] = 0
            for e in range(low, high):
                near = indices[e] * row
                if p > 0:
                    _spread_kept(e == low, out, at, weights, e, p, seed, value, near, dim)
                else:
                    _spread(e == low, out, at, weights, e, one, value, near, dim)
        chunk = next_chunk(turns)


def backward(
    turns, chunks, indptr, indices, key, value, grad, weights, bucket, scale, one, p, seed,
    logits, of_query, tables,
):  # fmt: skip
    """Write the gradients of logits and query, and a table of each chunk; `one` is 1."""
    heads, dim = key.shape[1], key.shape[2]
    row = heads * dim
    chunk = take_chunk(turns)
    while chunk < chunks:
        first, last = first_row(indptr, chunk, chunks), first_row(indptr, chunk + 1, chunks)
        for i in range(first, last):
            for e in range(indptr[i], indptr[i + 1]):
                at, near = i * row, indices[e] * row
                for h in range(heads):
                    logits[e, h] = dot(grad, at + h * dim, value, near + h * dim, dim)
        softmax_backward_rows(
            first, last, indptr, weights, logits, bucket, p, seed, 0, heads, logits, tables, chunk
        )
        for i in range(first, last):
            low, high, at = indptr[i], indptr[i + 1], i * row
            if low == high:
                of_query[i] = 0
            for e in range(low, high):
                near = indices[e] * row
                _spread(e == low, of_query, at, logits, e, scale, key, near, dim)
        chunk = next_chunk(turns)


def backward_senders(
    turns, chunks, t_indptr, receivers, perm, query, grad, logits, weights, scale, one, p,
    seed, of_key, of_value,
):  # fmt: skip
    """Write the gradients of key and value; `one` is 1."""
    dim = query.shape[2]
    row = query.shape[1] * dim
    chunk = take_chunk(turns)
    while chunk < chunks:
        for j in range(first_row(t_indptr, chunk, chunks), first_row(t_indptr, chunk + 1, chunks)):
            low, high, at = t_indptr[j], t_indptr[j + 1], j * row
            if low == high:
                of_key[j] = 0
                of_value[j] = 0
            for t in range(low, high):
                e, near, begin = perm[t], receivers[t] * row, t == low
                _spread(begin, of_key, at, logits, e, scale, query, near, dim)
                if p > 0:
                    _spread_kept(begin, of_value, at, weights, e, p, seed, grad, near, dim)
                else:
                    _spread(begin, of_value, at, weights, e, one, grad, near, dim)
        chunk = next_chunk(turns)
