"""Attention on whole rows: one loop forward, one backward, over targets and then over sources.

Fewer launches than the loops of `attention.rows` take, and what a row computes for its edges is
still in the cache when it is used. A hub is not shared out: its row belongs to one chunk. The
conventions are those of `attention.rows`.
"""

from __future__ import annotations

import numpy as np

from graphtheory.ops.backends.cpu.attention.rows import (
    add_entries,
    dot_entries,
    first_row,
    softmax_backward_rows,
    softmax_rows,
)
from graphtheory.ops.backends.cpu.decorators import part
from graphtheory.ops.backends.cpu.launch import next_chunk, take_chunk, wait_for
from graphtheory.ops.backends.cpu.vector.lanes import clear


@part
def dot_rows(first, last, indptr, indices, x, y, out):
    """Write out[e, h] = <x[i, h], y[j, h]> of the edges of rows first..last-1."""
    for i in range(first, last):
        dot_entries(i, indptr[i], indptr[i + 1], indices, indices[:0], x, y, out)


@part
def sum_rows(first, last, indptr, indices, weights, scale, p, seed, x, out):
    """Write out[i, h] = scale * sum of the kept weights[e, h] * x[j, h]."""
    size, none = x.shape[1] * x.shape[2], indices[:0]
    for i in range(first, last):
        clear(out, i * size, size)
        low, high = indptr[i], indptr[i + 1]
        add_entries(out, i, low, high, indices, none, weights, scale, p, seed, x)


def forward(
    turns, chunks, indptr, indices, query, key, value, bias, bucket, table, scale, one, p, seed,
    weights, out,
):  # fmt: skip
    """Write the weights of the edges and the sums of the values; `one` is 1."""
    each = np.empty(weights.shape[1], out.dtype)
    chunk = take_chunk(turns)
    while chunk < chunks:
        first, last = first_row(indptr, chunk, chunks), first_row(indptr, chunk + 1, chunks)
        dot_rows(first, last, indptr, indices, query, key, weights)
        softmax_rows(first, last, indptr, weights, bias, bucket, table, scale, weights, each)
        sum_rows(first, last, indptr, indices, weights, one, p, seed, value, out)
        chunk = next_chunk(turns)


@part
def sum_sources(
    chunk, chunks, t_indptr, targets, perm, query, grad, logits, weights, scale, one, p, seed,
    of_key, of_value,
):  # fmt: skip
    """The part of `backward` of the sources of a chunk."""
    size = query.shape[1] * query.shape[2]
    for j in range(first_row(t_indptr, chunk, chunks), first_row(t_indptr, chunk + 1, chunks)):
        low, high = t_indptr[j], t_indptr[j + 1]
        clear(of_key, j * size, size)
        clear(of_value, j * size, size)
        add_entries(of_key, j, low, high, targets, perm, logits, scale, 0.0, seed, query)
        add_entries(of_value, j, low, high, targets, perm, weights, one, p, seed, grad)


def backward(
    turns, chunks, indptr, indices, t_indptr, targets, perm, grad, query, key, value, weights,
    bucket, scale, one, p, seed, logits, of_query, tables, of_key, of_value,
):  # fmt: skip
    """Write the gradients of logits and query, and a table of each chunk; `one` is 1.

    In a second pass, if there are sources, those of key and value.
    """
    mean = np.empty(weights.shape[1], logits.dtype)
    chunk = take_chunk(turns)
    while chunk < chunks:
        first, last = first_row(indptr, chunk, chunks), first_row(indptr, chunk + 1, chunks)
        dot_rows(first, last, indptr, indices, grad, value, logits)
        softmax_backward_rows(
            first, last, indptr, weights, logits, bucket, p, seed, logits, tables, chunk, mean
        )
        sum_rows(first, last, indptr, indices, logits, scale, 0.0, seed, key, of_query)
        chunk = next_chunk(turns)
    wait_for(turns, chunks)
    while chunk < 2 * chunks and t_indptr.shape[0] > 0:
        sum_sources(
            chunk - chunks, chunks, t_indptr, targets, perm, query, grad, logits, weights, scale,
            one, p, seed, of_key, of_value,
        )  # fmt: skip
        chunk = next_chunk(turns)
