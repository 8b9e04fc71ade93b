"""Loops over CSR rows; plain functions, which `_launch` compiles.

The work, rows and edges in the order of the rows, is cut into chunks of equal size, which threads
take in turn. How many depends on the graph alone, what a row is summed in is the order of
its edges, cut at the same places whatever the number of threads, and one machine code serves all
threads: results are the same bits for any number of them. A row that lies in several chunks, a hub,
is summed by several threads (`dot`, `aggregate`); its softmax, a small part, by the one in whose
chunk it starts.
Each loop reads one node array at random: two at once would fall out of the cache sooner.
Node arrays are C-contiguous [N, H, D], edge arrays [E, H].
"""

from __future__ import annotations

import numpy as np
from numba import njit

from graphtheory.ops.backends._numba_lanes import (
    MATH,
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
from graphtheory.ops.backends._turns import next_chunk, take_chunk

MOST_CHUNKS = 128
AHEAD = 16  # edges whose rows are loaded while as many before them are worked on
_CHUNK = 512  # rows and edges that are worth a chunk
HARMLESS = 60  # logits up to this size have exponentials that sum without a shift


def count_chunks(num_rows: int, num_edges: int) -> int:
    """Number of chunks of a graph."""
    return max(1, min(MOST_CHUNKS, (num_rows + num_edges) // _CHUNK))


@njit(cache=True)
def first_item(indptr, chunk, chunks):
    """Where a chunk starts in the list of every row followed by its edges."""
    rows = indptr.shape[0] - 1
    return (indptr[rows] + rows) * chunk // chunks


@njit(cache=True)
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


@njit(cache=True)
def cut(indptr, i, start, stop):
    """Edges of row i, which are items indptr[i] + i + 1 and after, among items start..stop-1."""
    return max(indptr[i], start - i - 1), min(indptr[i + 1], stop - i - 1)


@njit(cache=True)
def _mix(x):
    x = ((x ^ (x >> np.uint64(16))) * np.uint64(0x7FEB352D)) & np.uint64(0xFFFFFFFF)
    x = ((x ^ (x >> np.uint64(15))) * np.uint64(0x846CA68B)) & np.uint64(0xFFFFFFFF)
    return x ^ (x >> np.uint64(16))


@njit(cache=True)
def kept(counter, p, seed):
    """Whether entry `counter` stays: the rule of `ops.dropout.dropout_factor`."""
    c = np.uint64(counter)
    draw = _mix(_mix((c & np.uint64(0xFFFFFFFF)) ^ np.uint64(seed)) ^ (c >> np.uint64(32)))
    return draw >= np.uint64(p * 4294967296.0)


def edge_dot(turns, chunks, indptr, indices, query, key, head, out):
    """Write out[e, h] = <query[i, head + h], key[j, head + h]>."""
    heads, (_, of_all, dim) = out.shape[1], key.shape
    row = (of_all * dim, head * dim, heads * dim)
    chunk = take_chunk(turns)
    while chunk < chunks:
        begin, end = first_item(indptr, chunk, chunks), first_item(indptr, chunk + 1, chunks)
        for i in range(max(first_row(indptr, chunk, chunks) - 1, 0), indptr.shape[0] - 1):
            if indptr[i] + i >= end:
                break
            low, high = cut(indptr, i, begin, end)
            while low < high:
                mid = min(low + AHEAD, high)
                warm(indices, low + AHEAD, mid + AHEAD, key, *row)
                for e in range(low, mid):
                    j = indices[e]
                    for h in range(heads):
                        at_i, at_j = (i * of_all + head + h) * dim, (j * of_all + head + h) * dim
                        out[e, h] = dot(query, at_i, key, at_j, dim)
                low = mid
        chunk = next_chunk(turns)


@njit(cache=True, fastmath=MATH)
def softmax_rows(first, last, indptr, logits, bias, bucket, table, scale, head, out):
    """Softmax of rows first..last-1, see `softmax`."""
    heads, one = logits.shape[1], out.dtype.type(1)
    begin, size = indptr[first] * heads, (indptr[last] - indptr[first]) * heads
    put(out, begin, scale, logits, begin, size)
    if bias.shape[0] > 0:
        for e in range(indptr[first], indptr[last]):
            add(out, e * heads, one, bias, e * bias.shape[1] + head, heads)
    if table.shape[0] > 0:
        for e in range(indptr[first], indptr[last]):
            add(out, e * heads, one, table, bucket[e] * table.shape[1] + head, heads)
    each = np.empty(heads, out.dtype)
    if not largest(out, begin, size) < HARMLESS:
        for i in range(first, last):
            each[:] = -np.inf
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


def softmax(turns, chunks, indptr, logits, bias, bucket, table, scale, head, out):
    """Write the softmax of each row of scale * logits + bias + table[bucket]; -inf gives zeros.

    `bias` or `table` may have no rows, and are read from column `head` on; `out` may be `logits`.
    """
    chunk = take_chunk(turns)
    while chunk < chunks:
        first, last = first_row(indptr, chunk, chunks), first_row(indptr, chunk + 1, chunks)
        softmax_rows(first, last, indptr, logits, bias, bucket, table, scale, head, out)
        chunk = next_chunk(turns)


@njit(cache=True, fastmath=MATH)
def softmax_backward_rows(
    first, last, indptr, weights, grad, bucket, p, seed, head, of_all, out, tables, chunk
):  # fmt: skip
    """The part of `softmax_backward` of rows first..last-1, with the table of `chunk`."""
    heads, real = weights.shape[1], out.dtype.type
    begin, size = indptr[first] * heads, (indptr[last] - indptr[first]) * heads
    put(out, begin, real(1), grad, begin, size)
    if p > 0:
        for e in range(indptr[first], indptr[last]):
            for h in range(heads):
                stays = kept(e * of_all + head + h, p, seed)
                out[e, h] = out[e, h] / real(1 - p) if stays else real(0)
    mean = np.empty(heads, out.dtype)
    for i in range(first, last):
        clear(mean, 0, heads)
        for e in range(indptr[i], indptr[i + 1]):
            add_product(mean, 0, weights, e * heads, out, e * heads, heads)
        for e in range(indptr[i], indptr[i + 1]):
            softmax_slope(out, e * heads, weights, e * heads, mean, 0, heads)
    if tables.shape[0] > 0:
        tables[chunk] = 0
        for e in range(indptr[first], indptr[last]):
            place = chunk * tables.shape[1] + bucket[e] * heads
            add(tables, place, real(1), out, e * heads, heads)


def softmax_backward(
    turns, chunks, indptr, weights, grad, bucket, p, seed, head, of_all, out, tables
):  # fmt: skip
    """Write weights * (g - sum over the row of weights * g), g being `grad` of the kept weights.

    The sums of the result by bucket go to one table [Z * H] a chunk, if there are tables. `out` may
    be `grad`. The columns are heads `head` and after of `of_all`.
    """
    chunk = take_chunk(turns)
    while chunk < chunks:
        first, last = first_row(indptr, chunk, chunks), first_row(indptr, chunk + 1, chunks)
        softmax_backward_rows(
            first, last, indptr, weights, grad, bucket, p, seed, head, of_all, out, tables, chunk
        )
        chunk = next_chunk(turns)


@njit(inline="always", fastmath=MATH)
def add_edges(target, at, low, high, indices, perm, weights, value, scale, p, seed, head):
    """Add scale * sum of the kept weights[e, h] * value[j, head + h] of entries low..high-1."""
    heads, of_all, dim = weights.shape[1], value.shape[1], value.shape[2]
    real = target.dtype.type
    for t in range(low, high):
        j, e = indices[t], perm[t] if perm.shape[0] > 0 else t
        for h in range(heads):
            w = weights[e, h] * scale
            if p > 0:
                stays = kept(e * of_all + head + h, p, seed)
                w = w / real(1 - p) if stays else real(0)
            place, near = (at * of_all + head + h) * dim, (j * of_all + head + h) * dim
            add(target, place, w, value, near, dim)


def aggregate(
    turns, chunks, indptr, indices, perm, weights, value, scale, p, seed, head,
    out, carried, carry,
):  # fmt: skip
    """Write out[i, h] = scale * sum over the row of the kept weights[e, h] * value[j, h].

    Entry t of a row has the weight of edge e = perm[t], or of edge t where `perm` is empty. What a
    chunk adds to a row that starts before it goes to carry[chunk], the row to carried[chunk]. The
    columns of the weights are heads `head` and after; other heads of `out` are left alone.
    """
    heads, (_, of_all, dim) = weights.shape[1], value.shape
    row = (of_all * dim, head * dim, heads * dim)
    chunk = take_chunk(turns)
    while chunk < chunks:
        begin, end = first_item(indptr, chunk, chunks), first_item(indptr, chunk + 1, chunks)
        first = first_row(indptr, chunk, chunks)
        carried[chunk] = -1
        for i in range(max(first - 1, 0), indptr.shape[0] - 1):
            if indptr[i] + i >= end:
                break
            low, high = cut(indptr, i, begin, end)
            target, at = out, i
            if i < first:
                if low >= high:
                    continue
                carried[chunk] = i
                target, at = carry, chunk
            clear(target, (at * of_all + head) * dim, heads * dim)
            while low < high:
                mid = min(low + AHEAD, high)
                warm(indices, low + AHEAD, mid + AHEAD, value, *row)
                warm(perm, low + AHEAD, mid + AHEAD, weights, heads, 0, heads)
                add_edges(target, at, low, mid, indices, perm, weights, value, scale, p, seed, head)
                low = mid
        chunk = next_chunk(turns)


def merge(turns, chunks, carried, carry, head, heads, out):
    """Add what was carried to those heads of its rows, in the order of the chunks."""
    chunk = take_chunk(turns)
    while chunk < chunks:
        if carried[chunk] >= 0:
            for h in range(head, head + heads):
                out[carried[chunk], h] += carry[chunk, h]
        chunk = next_chunk(turns)
