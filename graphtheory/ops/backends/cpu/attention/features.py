"""What features of edges add to attention on CSR rows: to logits, to sums, and their gradient.

An edge has a row of `features` [E, D], a number in `row` [E], one of R, or both; what is absent has
no rows. Features of edge e are row order[e], or row e where `order` is empty. A number r counts as
a vector with a single 1, in place D + r of queries and sums [N, H, D + R]. Other conventions are
those of `attention.rows`.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from graphtheory.ops.backends.cpu.attention.rows import (
    edge_of,
    kept,
    softmax_backward_rows,
    softmax_rows,
)
from graphtheory.ops.backends.cpu.compiling import part, shared_part
from graphtheory.ops.backends.cpu.launch import cut, items_of, next_chunk, rows_of, take_chunk
from graphtheory.ops.backends.cpu.vector.lanes import add, clear, dot, prefetch_rows
from graphtheory.ops.backends.cpu.vector.rows import add_dots, add_rows

TILE = 64  # edges whose rows stay in the first cache from their dot products to their sums
LEAD = 48  # edges ahead of which rows in another order are asked for: each takes little time


@part
def _add_dots(i, low, high, query, features, order, row, out):
    """Add <query[i, h], features[e]> to out[e, h] of edges low..high-1 of row i."""
    (_, heads, width), dim, begin = query.shape, features.shape[1], i * query.shape[1]
    prefetch_rows(order, low + LEAD, high + LEAD, features, dim)
    if dim > 0 and not add_dots(
        out, 0, order[:0], query, begin * width, width, low, high, order, features, dim, 0,
        heads, dim,
    ):  # fmt: skip
        for e in range(low, high):
            for h in range(heads):
                place = edge_of(order, e) * dim
                out[e, h] += dot(query, (begin + h) * width, features, place, dim)
    if row.shape[0] > 0:
        for e in range(low, high):
            for h in range(heads):
                out[e, h] += query[i, h, dim + row[e]]


@part
def _add_sums(at, low, high, weights, scale, p, seed, features, order, row, out):
    """Add scale * kept weights[e, h] * features[e] to out[at, h]."""
    (_, heads, width), dim, real = out.shape, features.shape[1], weights.dtype.type
    done = dim == 0
    if dim > 0 and p == 0:
        done = add_rows(
            out, at * heads * width, width, low, high, order[:0], weights, 0, scale, order,
            features, dim, 0, heads, dim,
        )  # fmt: skip
    if done and row.shape[0] == 0:
        return
    for e in range(low, high):
        for h in range(heads):
            w = weights[e, h] * scale
            if p > 0:
                w = w / real(1 - p) if kept(e * heads + h, p, seed) else real(0)
            if not done:
                add(out, (at * heads + h) * width, w, features, edge_of(order, e) * dim, dim)
            if row.shape[0] > 0:
                out[at, h, dim + row[e]] += w


@njit(inline="always")
def _write_grads(i, low, high, logits, query, scale, weights, grad, p, seed, order, out):
    """`feature_grad` of edges low..high-1 of row i."""
    heads, width, dim = weights.shape[1], grad.shape[2], out.shape[1]
    real = weights.dtype.type
    for e in range(low, high):
        place = edge_of(order, e) * dim
        clear(out, place, dim)
        for h in range(heads):
            at, w = (i * heads + h) * width, weights[e, h]
            if p > 0:
                w = w / real(1 - p) if kept(e * heads + h, p, seed) else real(0)
            add(out, place, w, grad, at, dim)
            if query.shape[0] > 0:
                add(out, place, logits[e, h] * scale, query, at, dim)


@part
def _next_tile(indptr, first, last):
    """The row after those from `first` on that have `TILE` edges together, or one row more."""
    stop = first + 1
    while stop < last and indptr[stop + 1] - indptr[first] <= TILE:
        stop += 1
    return stop


@shared_part
def _dot_rows(first, last, indptr, query, features, order, row, out):
    """Add dot products of rows first..last-1, if there are queries."""
    if query.shape[0] > 0:
        for i in range(first, last):
            _add_dots(i, indptr[i], indptr[i + 1], query, features, order, row, out)


@shared_part
def _sum_rows(first, last, indptr, weights, scale, p, seed, features, order, row, out):
    """Write the sums of rows first..last-1, if they have entries."""
    size = out.shape[1] * out.shape[2]
    if size > 0:
        clear(out, first * size, (last - first) * size)
        for i in range(first, last):
            low, high = indptr[i], indptr[i + 1]
            _add_sums(i, low, high, weights, scale, p, seed, features, order, row, out)


def attend(
    counters, chunks, indptr, query, features, order, row, bias, bucket, table, scale, one, p, seed,
    weights, out,
):  # fmt: skip
    """Write softmax weights in place of dot products, to which those of features are added first.

    The sum of the kept weights[e, h] * features[e] goes to out[i, h]. `one` is 1.
    """
    each = np.empty(weights.shape[1], weights.dtype)
    chunk = take_chunk(counters)
    while chunk < chunks:
        first, end = rows_of(indptr, chunk, chunks)
        while first < end:
            last = _next_tile(indptr, first, end)
            _dot_rows(first, last, indptr, query, features, order, row, weights)
            softmax_rows(first, last, indptr, weights, bias, bucket, table, scale, weights, each)
            _sum_rows(first, last, indptr, weights, one, p, seed, features, order, row, out)
            first = last
        chunk = next_chunk(counters)


def attend_backward(
    counters, chunks, indptr, grad, features, order, row, weights, bucket, scale, p, seed, logits,
    tables, out,
):  # fmt: skip
    """Write gradients of logits in place of those of the kept weights; of logits by bucket, tables.

    Sums of scale * logits[e, h] * features[e] go to out[i, h]; `grad` is that of `attend`'s sums.
    """
    mean = np.empty(weights.shape[1], weights.dtype)
    chunk = take_chunk(counters)
    while chunk < chunks:
        first, end = rows_of(indptr, chunk, chunks)
        while first < end:
            last = _next_tile(indptr, first, end)
            _dot_rows(first, last, indptr, grad, features, order, row, logits)
            softmax_backward_rows(
                first, last, indptr, weights, logits, bucket, p, seed, logits, tables, chunk, mean
            )
            _sum_rows(first, last, indptr, logits, scale, 0.0, seed, features, order, row, out)
            first = last
        chunk = next_chunk(counters)


@shared_part
def _grad_chunk(chunk, chunks, indptr, logits, query, scale, weights, grad, p, seed, order, out):
    begin, end, start, _, last, _ = items_of(indptr, chunk, chunks)
    for i in range(start, last):
        low, high = cut(indptr, i, begin, end)
        _write_grads(i, low, high, logits, query, scale, weights, grad, p, seed, order, out)


def feature_grad(
    counters, chunks, indptr, logits, query, scale, weights, grad, p, seed, order, out
):
    """Write sum over h of scale * logits[e, h] * query[i, h] + kept weights[e, h] * grad[i, h]."""
    chunk = take_chunk(counters)
    while chunk < chunks:
        _grad_chunk(chunk, chunks, indptr, logits, query, scale, weights, grad, p, seed, order, out)
        chunk = next_chunk(counters)
