"""Loops over CSR rows: one each for dot products, softmax and sums, and one for all of whole rows.

A row that lies in several chunks, a hub, is summed by several threads (`edge_dot`, `aggregate`);
its softmax, a small part, by the one in whose chunk it starts. In `whole_forward` and
`whole_backward` it belongs to one chunk: they take fewer launches, and what a row computes for its
edges is still in the cache when it is used.
A loop reads one node array at random: two at once would fall out of the cache sooner.
Node arrays are C-contiguous [N, H, D], edge arrays [E, H].
"""

from __future__ import annotations

import numpy as np
from numba import njit

from graphtheory.ops.backends.cpu.compiling import part, shared_part
from graphtheory.ops.backends.cpu.launch import (
    cut,
    items_of,
    next_chunk,
    rows_of,
    take_chunk,
    wait_for,
)
from graphtheory.ops.backends.cpu.vector.lanes import (
    add,
    clear,
    dot,
    exp,
    invert,
    largest,
    maximum_,
    multiply,
    no_infinity,
    prefetch_rows,
    scale_into,
    softmax_grad,
    subtract,
)
from graphtheory.ops.backends.cpu.vector.rows import add_rows, write_dots

AHEAD = 16  # edges whose rows are loaded while as many before them, a tile, are worked on
FAR = 2**20  # bytes of nodes from which on that is done; the second cache of a core holds fewer
_NEVER = 2**62  # entries
HARMLESS = 60  # logits up to this size have exponentials that sum without a shift


@part
def _mix(x):
    x = ((x ^ (x >> np.uint64(16))) * np.uint64(0x7FEB352D)) & np.uint64(0xFFFFFFFF)
    x = ((x ^ (x >> np.uint64(15))) * np.uint64(0x846CA68B)) & np.uint64(0xFFFFFFFF)
    return x ^ (x >> np.uint64(16))


@part
def kept(counter, p, seed):
    """Whether entry `counter` stays: the rule of `ops.dropout.dropout_factor`."""
    c = np.uint64(counter)
    draw = _mix(_mix((c & np.uint64(0xFFFFFFFF)) ^ np.uint64(seed)) ^ (c >> np.uint64(32)))
    return draw >= np.uint64(p * 4294967296.0)


@njit(inline="always")
def edge_of(perm, t):
    """The edge that is entry t."""
    return perm[t] if perm.shape[0] > 0 else t


@njit(inline="always")
def first_to_prefetch(low, x):
    """Of entries from `low` on the first whose row of x is loaded ahead; of near rows none."""
    return low if x.nbytes > FAR else _NEVER


@part
def dot_entries(i, low, high, indices, perm, x, y, out, first):
    """Write out[e - first, h] = <x[i, h], y[j, h]> of entries low..high-1 of row i."""
    (_, heads, dim), width, at = x.shape, x.shape[1] * x.shape[2], -first * x.shape[1]
    if not write_dots(
        out, at, perm, x, i * width, dim, low, high, indices, y, width, dim, heads, dim
    ):
        for t in range(low, high):
            e = edge_of(perm, t)
            for h in range(heads):
                at_i, at_j = (i * heads + h) * dim, (indices[t] * heads + h) * dim
                out[e - first, h] = dot(x, at_i, y, at_j, dim)


@shared_part
def _dot_chunk(chunk, chunks, indptr, indices, query, key, out):
    width = key.shape[1] * key.shape[2]
    begin, end, start, _, last, low = items_of(indptr, chunk, chunks)
    prefetched = first_to_prefetch(low, key)
    for i in range(start, last):
        low, high = cut(indptr, i, begin, end)
        while low < high:
            mid = min(low + AHEAD, high)
            while prefetched < mid + AHEAD:
                prefetch_rows(indices, prefetched, prefetched + AHEAD, key, width)
                prefetched += AHEAD
            dot_entries(i, low, mid, indices, indices[:0], query, key, out, 0)
            low = mid


def edge_dot(counters, chunks, indptr, indices, query, key, out):
    """Write out[e, h] = <query[i, h], key[j, h]>."""
    chunk = take_chunk(counters)
    while chunk < chunks:
        _dot_chunk(chunk, chunks, indptr, indices, query, key, out)
        chunk = next_chunk(counters)


@shared_part
def softmax_rows(first, last, indptr, logits, bias, bucket, table, scale, out, each):
    """Softmax of rows first..last-1, see `softmax`; `each` has a value per head."""
    heads, one = logits.shape[1], out.dtype.type(1)
    begin, size = indptr[first] * heads, (indptr[last] - indptr[first]) * heads
    scale_into(out, begin, scale, logits, begin, size)
    if bias.shape[0] > 0:
        for e in range(indptr[first], indptr[last]):
            add(out, e * heads, one, bias, e * heads, heads)
    if table.shape[0] > 0:
        for e in range(indptr[first], indptr[last]):
            add(out, e * heads, one, table, bucket[e] * heads, heads)
    if not largest(out, begin, size) < HARMLESS:
        for i in range(first, last):
            for h in range(heads):
                each[h] = -np.inf
            for e in range(indptr[i], indptr[i + 1]):
                maximum_(each, 0, out, e * heads, heads)
            no_infinity(each, 0, heads)
            for e in range(indptr[i], indptr[i + 1]):
                subtract(out, e * heads, each, 0, heads)
    exp(out, begin, size)
    for i in range(first, last):
        low, high = indptr[i], indptr[i + 1]
        if low == high:
            continue
        scale_into(each, 0, one, out, low * heads, heads)
        for e in range(low + 1, high):
            add(each, 0, one, out, e * heads, heads)
        invert(each, 0, heads)
        for e in range(low, high):
            multiply(out, e * heads, each, 0, heads)


def softmax(counters, chunks, indptr, logits, bias, bucket, table, scale, out):
    """Write row softmax of scale * logits + bias + table[bucket], if any; of -inf alone zeros."""
    each = np.empty(logits.shape[1], out.dtype)
    chunk = take_chunk(counters)
    while chunk < chunks:
        first, last = rows_of(indptr, chunk, chunks)
        softmax_rows(first, last, indptr, logits, bias, bucket, table, scale, out, each)
        chunk = next_chunk(counters)


@shared_part
def softmax_backward_rows(
    first, last, indptr, weights, grad, bucket, p, seed, out, tables, chunk, mean
):  # fmt: skip
    """`softmax_backward` of rows first..last-1 of a chunk; `mean` has a value per head."""
    heads, real = weights.shape[1], out.dtype.type
    begin, size = indptr[first] * heads, (indptr[last] - indptr[first]) * heads
    scale_into(out, begin, real(1), grad, begin, size)
    if p > 0:
        for e in range(indptr[first], indptr[last]):
            for h in range(heads):
                stays = kept(e * heads + h, p, seed)
                out[e, h] = out[e, h] / real(1 - p) if stays else real(0)
    for i in range(first, last):
        clear(mean, 0, heads)
        for e in range(indptr[i], indptr[i + 1]):
            add(mean, 0, weights, e * heads, out, e * heads, heads)
        for e in range(indptr[i], indptr[i + 1]):
            softmax_grad(out, e * heads, weights, e * heads, mean, 0, heads)
    if tables.shape[0] > 0:
        for e in range(indptr[first], indptr[last]):
            place = chunk * tables.shape[1] + bucket[e] * heads
            add(tables, place, real(1), out, e * heads, heads)


def softmax_backward(counters, chunks, indptr, weights, grad, bucket, p, seed, out, tables):
    """Write weights * (g - sum of weights * g by row), g = `grad` of the kept; sums by bucket."""
    mean = np.empty(weights.shape[1], out.dtype)
    chunk = take_chunk(counters)
    while chunk < chunks:
        first, last = rows_of(indptr, chunk, chunks)
        softmax_backward_rows(
            first, last, indptr, weights, grad, bucket, p, seed, out, tables, chunk, mean
        )
        chunk = next_chunk(counters)


@part
def add_entries(out, i, low, high, indices, perm, weights, scale, p, seed, x, first):
    """Add to out[i] what entries bring: scale * x[j, h] times their kept weights[e - first, h]."""
    (_, heads, dim), width, real = x.shape, x.shape[1] * x.shape[2], weights.dtype.type
    at, at_w = i * width, -first * heads
    if p > 0 or not add_rows(
        out, at, dim, low, high, perm, weights, at_w, scale, indices, x, width, dim, heads, dim
    ):
        for t in range(low, high):
            e = edge_of(perm, t)
            for h in range(heads):
                w = weights[e - first, h] * scale
                if p > 0:
                    w = w / real(1 - p) if kept(e * heads + h, p, seed) else real(0)
                add(out, (i * heads + h) * dim, w, x, (indices[t] * heads + h) * dim, dim)


@njit(inline="always")
def sum_entries(out, i, low, high, prefetched, indices, perm, weights, scale, p, seed, x):
    """Write to out[i] the sum of entries low..high-1; returns the next row to prefetch."""
    heads, width = x.shape[1], x.shape[1] * x.shape[2]
    clear(out, i * width, width)
    while low < high:
        mid = min(low + AHEAD, high)
        while prefetched < mid + AHEAD:
            if x.nbytes > FAR:
                prefetch_rows(indices, prefetched, prefetched + AHEAD, x, width)
            prefetch_rows(perm, prefetched, prefetched + AHEAD, weights, heads)
            prefetched += AHEAD
        add_entries(out, i, low, mid, indices, perm, weights, scale, p, seed, x, 0)
        low = mid
    return prefetched


@shared_part
def _sum_chunk(
    chunk, chunks, indptr, indices, perm, weights, value, scale, p, seed, out, split_row,
    partial_sum,
):  # fmt: skip
    begin, end, start, first, last, low = items_of(indptr, chunk, chunks)
    far = perm.shape[0] > 0 and weights.nbytes > FAR
    prefetched = low if far else first_to_prefetch(low, value)
    split_row[chunk] = -1
    for i in range(start, last):
        low, high = cut(indptr, i, begin, end)
        sums, at = out, i
        if i < first:
            if low >= high:
                continue
            split_row[chunk], sums, at = i, partial_sum, chunk
        prefetched = sum_entries(
            sums, at, low, high, prefetched, indices, perm, weights, scale, p, seed, value
        )


def aggregate(
    counters, chunks, indptr, indices, perm, weights, value, scale, p, seed, out, split_row,
    partial_sum,
):  # fmt: skip
    """Write out[i, h] = scale * sum of kept weights[perm[t], h] * value[j, h], t without `perm`.

    A chunk adds to the row that starts before it, split_row[chunk], by partial_sum[chunk].
    """
    chunk = take_chunk(counters)
    while chunk < chunks:
        _sum_chunk(
            chunk, chunks, indptr, indices, perm, weights, value, scale, p, seed, out, split_row,
            partial_sum,
        )  # fmt: skip
        chunk = next_chunk(counters)


def merge(counters, chunks, split_row, partial_sum, out):
    """Add the partial sums to their rows, in the order of the chunks."""
    width, one = out.shape[1] * out.shape[2], out.dtype.type(1)
    chunk = take_chunk(counters)
    while chunk < chunks:
        if split_row[chunk] >= 0:
            add(out, split_row[chunk] * width, one, partial_sum, chunk * width, width)
        chunk = next_chunk(counters)


@shared_part
def _dot_rows(first, last, indptr, indices, x, y, out):
    for i in range(first, last):
        dot_entries(i, indptr[i], indptr[i + 1], indices, indices[:0], x, y, out, 0)


@shared_part
def sum_rows(first, last, indptr, indices, weights, scale, p, seed, x, out):
    """Write out[i, h] = scale * sum of the kept weights[e, h] * x[j, h]."""
    size, none = x.shape[1] * x.shape[2], indices[:0]
    for i in range(first, last):
        clear(out, i * size, size)
        low, high = indptr[i], indptr[i + 1]
        add_entries(out, i, low, high, indices, none, weights, scale, p, seed, x, 0)


def whole_forward(
    counters, chunks, indptr, indices, query, key, value, bias, bucket, table, scale, one, p, seed,
    weights, out,
):  # fmt: skip
    """Write the weights of the edges and the sums of the values; `one` is 1."""
    each = np.empty(weights.shape[1], out.dtype)
    chunk = take_chunk(counters)
    while chunk < chunks:
        first, last = rows_of(indptr, chunk, chunks)
        _dot_rows(first, last, indptr, indices, query, key, weights)
        softmax_rows(first, last, indptr, weights, bias, bucket, table, scale, weights, each)
        sum_rows(first, last, indptr, indices, weights, one, p, seed, value, out)
        chunk = next_chunk(counters)


@shared_part
def _sum_sources(
    chunk, chunks, t_indptr, targets, perm, query, grad, logits, weights, scale, one, p, seed,
    of_key, of_value,
):  # fmt: skip
    size, (first, last) = query.shape[1] * query.shape[2], rows_of(t_indptr, chunk, chunks)
    for j in range(first, last):
        low, high = t_indptr[j], t_indptr[j + 1]
        clear(of_key, j * size, size)
        clear(of_value, j * size, size)
        add_entries(of_key, j, low, high, targets, perm, logits, scale, 0.0, seed, query, 0)
        add_entries(of_value, j, low, high, targets, perm, weights, one, p, seed, grad, 0)


def whole_backward(
    counters, chunks, indptr, indices, t_indptr, targets, perm, grad, query, key, value, weights,
    bucket, scale, one, p, seed, logits, of_query, tables, of_key, of_value,
):  # fmt: skip
    """Write gradients of logits, query and chunks' tables; then of key and value if wanted."""
    mean = np.empty(weights.shape[1], logits.dtype)
    chunk = take_chunk(counters)
    while chunk < chunks:
        first, last = rows_of(indptr, chunk, chunks)
        _dot_rows(first, last, indptr, indices, grad, value, logits)
        softmax_backward_rows(
            first, last, indptr, weights, logits, bucket, p, seed, logits, tables, chunk, mean
        )
        sum_rows(first, last, indptr, indices, logits, scale, 0.0, seed, key, of_query)
        chunk = next_chunk(counters)
    wait_for(counters, chunks)
    while chunk < 2 * chunks and t_indptr.shape[0] > 0:
        _sum_sources(
            chunk - chunks, chunks, t_indptr, targets, perm, query, grad, logits, weights, scale,
            one, p, seed, of_key, of_value,
        )  # fmt: skip
        chunk = next_chunk(counters)
