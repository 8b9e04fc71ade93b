"""Attention on whole rows: one loop forward, one over receivers and one over senders backward.

Fewer launches than the loops of `_numba_kernels` take, and what a chunk computes for its edges is
still in the cache when it is used. A hub is not shared out: its row belongs to one chunk. The
conventions are those of `_numba_kernels`.
"""

from __future__ import annotations

from graphtheory.ops.backends._numba_kernels import (
    add_edges,
    first_row,
    softmax_backward_rows,
    softmax_rows,
)
from graphtheory.ops.backends._numba_lanes import dot
from graphtheory.ops.backends._turns import next_chunk, take_chunk


def forward(
    turns, chunks, indptr, indices, perm, query, key, value, bias, bucket, table, scale,
    one, p, seed, weights, out,
):  # fmt: skip
    """Write the weights of the edges and the sums of the values; `perm` is empty, `one` is 1."""
    heads = weights.shape[1]
    chunk = take_chunk(turns)
    while chunk < chunks:
        first, last = first_row(indptr, chunk, chunks), first_row(indptr, chunk + 1, chunks)
        for i in range(first, last):
            for e in range(indptr[i], indptr[i + 1]):
                j = indices[e]
                for h in range(heads):
                    weights[e, h] = dot(query, i, key, j, h)
        softmax_rows(first, last, indptr, weights, bias, bucket, table, scale, 0, weights)
        for i in range(first, last):
            out[i] = 0
            low, high = indptr[i], indptr[i + 1]
            add_edges(out, i, low, high, indices, perm, weights, value, one, p, seed, 0)
        chunk = next_chunk(turns)


def backward(
    turns, chunks, indptr, indices, perm, key, value, grad, weights, bucket, scale, p, seed,
    logits, of_query, tables,
):  # fmt: skip
    """Write the gradients of logits and query, and a table of each chunk; `perm` is empty."""
    heads = weights.shape[1]
    chunk = take_chunk(turns)
    while chunk < chunks:
        first, last = first_row(indptr, chunk, chunks), first_row(indptr, chunk + 1, chunks)
        for i in range(first, last):
            for e in range(indptr[i], indptr[i + 1]):
                j = indices[e]
                for h in range(heads):
                    logits[e, h] = dot(grad, i, value, j, h)
        softmax_backward_rows(
            first, last, indptr, weights, logits, bucket, p, seed, 0, heads, logits, tables, chunk
        )
        for i in range(first, last):
            of_query[i] = 0
            low, high = indptr[i], indptr[i + 1]
            add_edges(of_query, i, low, high, indices, perm, logits, key, scale, 0.0, 0, 0)
        chunk = next_chunk(turns)


def backward_senders(
    turns, chunks, t_indptr, receivers, perm, query, grad, logits, weights, scale, one, p,
    seed, of_key, of_value,
):  # fmt: skip
    """Write the gradients of key and value; `one` is 1."""
    chunk = take_chunk(turns)
    while chunk < chunks:
        first, last = first_row(t_indptr, chunk, chunks), first_row(t_indptr, chunk + 1, chunks)
        for j in range(first, last):
            low, high = t_indptr[j], t_indptr[j + 1]
            of_key[j] = 0
            add_edges(of_key, j, low, high, receivers, perm, logits, query, scale, 0.0, 0, 0)
            of_value[j] = 0
            add_edges(of_value, j, low, high, receivers, perm, weights, grad, one, p, seed, 0)
        chunk = next_chunk(turns)
