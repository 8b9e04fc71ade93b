"""Loops over CSR rows: plain functions, which `launch` compiles, of parts, compiled here.

The work, rows and edges in the order of the rows, is cut into chunks of equal size, which threads
take in turn. How many depends on the graph alone, what a row is summed in is the order of
its edges, cut at the same places whatever the number of threads, and one machine code serves all
threads: results are the same bits for any number of them. A row that lies in several chunks, a hub,
is summed by several threads (`dot`, `aggregate`); its softmax, a small part, by the one in whose
chunk it starts.
A loop reads one node array at random: two at once would fall out of the cache sooner.
Node arrays are C-contiguous [N, H, D], edge arrays [E, H].
"""

from __future__ import annotations

import numpy as np
from numba import njit

from graphtheory.ops.backends.cpu.decorators import part
from graphtheory.ops.backends.cpu.launch import next_chunk, take_chunk
from graphtheory.ops.backends.cpu.vector.lanes import (
    add,
    add_product,
    clear,
    dot,
    exp,
    invert,
    largest,
    multiply,
    no_infinity,
    put,
    raise_to,
    softmax_slope,
    subtract,
    warm,
)
from graphtheory.ops.backends.cpu.vector.rows import add_rows, write_dots

MOST_CHUNKS = 128
AHEAD = 16  # edges whose rows are loaded while as many before them, a tile, are worked on
FAR = 2**20  # bytes of nodes from which on that is done; the second cache of a core holds fewer
_CHUNK = 512  # rows and edges that are worth a chunk
HARMLESS = 60  # logits up to this size have exponentials that sum without a shift


def count_chunks(num_rows: int, num_edges: int) -> int:
    """Number of chunks of a graph."""
    return max(1, min(MOST_CHUNKS, (num_rows + num_edges) // _CHUNK))


@part
def first_item(indptr, chunk, chunks):
    """Where a chunk starts in the list of every row followed by its edges."""
    rows = indptr.shape[0] - 1
    return (indptr[rows] + rows) * chunk // chunks


@part
def first_row(indptr, chunk, chunks):
    """Lowest row that starts in the chunk or after it: row i is item indptr[i] + i."""
    target = first_item(indptr, chunk, chunks)
    low, high = 0, indptr.shape[0] - 1
    while low < high:
        middle = (low + high) // 2
        if indptr[middle] + middle < target:
            low = middle + 1
        else:
            high = middle
    return low


@part
def cut(indptr, i, start, stop):
    """Edges of row i, which are items indptr[i] + i + 1 and after, among items start..stop-1."""
    return max(indptr[i], start - i - 1), min(indptr[i + 1], stop - i - 1)


@part
def first_edge(indptr, i, start):
    """The first of those edges; of a graph without rows, too."""
    return max(indptr[i], start - i - 1)


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
def first_to_ask_for(low, x):
    """Of entries from `low` on the first whose row of x is asked for ahead; of near rows none."""
    return low if x.nbytes > FAR else np.iinfo(np.int64).max


@part
def dot_entries(i, low, high, indices, perm, x, y, out):
    """Write out[e, h] = <x[i, h], y[j, h]> of entries low..high-1 of row i."""
    (_, heads, dim), width = x.shape, x.shape[1] * x.shape[2]
    if not write_dots(
        out, 0, perm, False, x, i * width, dim, low, high, indices, y, width, dim, heads, dim
    ):
        for t in range(low, high):
            e = edge_of(perm, t)
            for h in range(heads):
                at_i, at_j = (i * heads + h) * dim, (indices[t] * heads + h) * dim
                out[e, h] = dot(x, at_i, y, at_j, dim)


@part
def _dot_chunk(chunk, chunks, indptr, indices, query, key, out):
    width = key.shape[1] * key.shape[2]
    begin, end = first_item(indptr, chunk, chunks), first_item(indptr, chunk + 1, chunks)
    first = max(first_row(indptr, chunk, chunks) - 1, 0)
    asked = first_to_ask_for(first_edge(indptr, first, begin), key)
    for i in range(first, indptr.shape[0] - 1):
        if indptr[i] + i >= end:
            break
        low, high = cut(indptr, i, begin, end)
        while low < high:
            mid = min(low + AHEAD, high)
            while asked < mid + AHEAD:
                warm(indices, asked, asked + AHEAD, key, width)
                asked += AHEAD
            dot_entries(i, low, mid, indices, indices[:0], query, key, out)
            low = mid


def edge_dot(turns, chunks, indptr, indices, query, key, out):
    """Write out[e, h] = <query[i, h], key[j, h]>."""
    chunk = take_chunk(turns)
    while chunk < chunks:
        _dot_chunk(chunk, chunks, indptr, indices, query, key, out)
        chunk = next_chunk(turns)


@part
def softmax_rows(first, last, indptr, logits, bias, bucket, table, scale, out, each):
    """Softmax of rows first..last-1, see `softmax`; `each` is room for a number of each head."""
    heads, one = logits.shape[1], out.dtype.type(1)
    begin, size = indptr[first] * heads, (indptr[last] - indptr[first]) * heads
    put(out, begin, scale, logits, begin, size)
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
                raise_to(each, 0, out, e * heads, heads)
            no_infinity(each, 0, heads)
            for e in range(indptr[i], indptr[i + 1]):
                subtract(out, e * heads, each, 0, heads)
    exp(out, begin, size)
    for i in range(first, last):
        low, high = indptr[i], indptr[i + 1]
        if low == high:
            continue
        put(each, 0, one, out, low * heads, heads)
        for e in range(low + 1, high):
            add(each, 0, one, out, e * heads, heads)
        invert(each, 0, heads)
        for e in range(low, high):
            multiply(out, e * heads, each, 0, heads)


def softmax(turns, chunks, indptr, logits, bias, bucket, table, scale, out):
    """Write the softmax of each row of scale * logits + bias + table[bucket]; -inf gives zeros.

    `bias` or `table` may have no rows; `out` may be `logits`.
    """
    each = np.empty(logits.shape[1], out.dtype)
    chunk = take_chunk(turns)
    while chunk < chunks:
        first, last = first_row(indptr, chunk, chunks), first_row(indptr, chunk + 1, chunks)
        softmax_rows(first, last, indptr, logits, bias, bucket, table, scale, out, each)
        chunk = next_chunk(turns)


@part
def softmax_backward_rows(
    first, last, indptr, weights, grad, bucket, p, seed, out, tables, chunk, mean
):  # fmt: skip
    """The part of `softmax_backward` of rows first..last-1, added to the table of `chunk`.

    `mean` is room for a number of each head.
    """
    heads, real = weights.shape[1], out.dtype.type
    begin, size = indptr[first] * heads, (indptr[last] - indptr[first]) * heads
    put(out, begin, real(1), grad, begin, size)
    if p > 0:
        for e in range(indptr[first], indptr[last]):
            for h in range(heads):
                stays = kept(e * heads + h, p, seed)
                out[e, h] = out[e, h] / real(1 - p) if stays else real(0)
    for i in range(first, last):
        clear(mean, 0, heads)
        for e in range(indptr[i], indptr[i + 1]):
            add_product(mean, 0, weights, e * heads, out, e * heads, heads)
        for e in range(indptr[i], indptr[i + 1]):
            softmax_slope(out, e * heads, weights, e * heads, mean, 0, heads)
    if tables.shape[0] > 0:
        for e in range(indptr[first], indptr[last]):
            place = chunk * tables.shape[1] + bucket[e] * heads
            add(tables, place, real(1), out, e * heads, heads)


def softmax_backward(turns, chunks, indptr, weights, grad, bucket, p, seed, out, tables):
    """Write weights * (g - sum over the row of weights * g), g being `grad` of the kept weights.

    The sums of the result by bucket are added to one table [Z * H] a chunk, if there are tables.
    `out` may be `grad`.
    """
    mean = np.empty(weights.shape[1], out.dtype)
    chunk = take_chunk(turns)
    while chunk < chunks:
        first, last = first_row(indptr, chunk, chunks), first_row(indptr, chunk + 1, chunks)
        softmax_backward_rows(
            first, last, indptr, weights, grad, bucket, p, seed, out, tables, chunk, mean
        )
        chunk = next_chunk(turns)


@part
def add_entries(out, i, low, high, indices, perm, weights, scale, p, seed, x):
    """Add to out[i] what entries bring: scale * x[j, h] times their kept weights[e, h]."""
    (_, heads, dim), width, real = x.shape, x.shape[1] * x.shape[2], weights.dtype.type
    if p > 0 or not add_rows(
        out, i * width, dim, low, high, perm, weights, 0, scale, indices, x, width, dim, heads, dim
    ):
        for t in range(low, high):
            e = edge_of(perm, t)
            for h in range(heads):
                w = weights[e, h] * scale
                if p > 0:
                    w = w / real(1 - p) if kept(e * heads + h, p, seed) else real(0)
                add(out, (i * heads + h) * dim, w, x, (indices[t] * heads + h) * dim, dim)


@njit(inline="always")
def sum_entries(out, i, low, high, asked, indices, perm, weights, scale, p, seed, x):
    """Write to out[i] the sum of entries low..high-1; returns the next row to ask for."""
    heads, width = x.shape[1], x.shape[1] * x.shape[2]
    clear(out, i * width, width)
    while low < high:
        mid = min(low + AHEAD, high)
        while asked < mid + AHEAD:
            if x.nbytes > FAR:
                warm(indices, asked, asked + AHEAD, x, width)
            warm(perm, asked, asked + AHEAD, weights, heads)
            asked += AHEAD
        add_entries(out, i, low, mid, indices, perm, weights, scale, p, seed, x)
        low = mid
    return asked


@part
def _sum_chunk(
    chunk, chunks, indptr, indices, perm, weights, value, scale, p, seed, out, carried, carry
):  # fmt: skip
    begin, end = first_item(indptr, chunk, chunks), first_item(indptr, chunk + 1, chunks)
    first = first_row(indptr, chunk, chunks)
    far, start = perm.shape[0] > 0 and weights.nbytes > FAR, max(first - 1, 0)
    low = first_edge(indptr, start, begin)
    asked = low if far else first_to_ask_for(low, value)
    carried[chunk] = -1
    for i in range(start, indptr.shape[0] - 1):
        if indptr[i] + i >= end:
            break
        low, high = cut(indptr, i, begin, end)
        sums, at = out, i
        if i < first:
            if low >= high:
                continue
            carried[chunk], sums, at = i, carry, chunk
        asked = sum_entries(
            sums, at, low, high, asked, indices, perm, weights, scale, p, seed, value
        )


def aggregate(
    turns, chunks, indptr, indices, perm, weights, value, scale, p, seed, out, carried, carry
):  # fmt: skip
    """Write out[i, h] = scale * sum over the row of the kept weights[e, h] * value[j, h].

    Entry t of a row has the weight of edge e = perm[t], or of edge t where `perm` is empty. What a
    chunk adds to a row that starts before it goes to carry[chunk], the row to carried[chunk].
    """
    chunk = take_chunk(turns)
    while chunk < chunks:
        _sum_chunk(
            chunk, chunks, indptr, indices, perm, weights, value, scale, p, seed, out, carried,
            carry,
        )  # fmt: skip
        chunk = next_chunk(turns)


def merge(turns, chunks, carried, carry, out):
    """Add what was carried to its rows, in the order of the chunks."""
    width, one = out.shape[1] * out.shape[2], out.dtype.type(1)
    chunk = take_chunk(turns)
    while chunk < chunks:
        if carried[chunk] >= 0:
            add(out, carried[chunk] * width, one, carry, chunk * width, width)
        chunk = next_chunk(turns)
