"""Attention that keeps nothing by edge: a few edges at a time, a tile, in the nearest cache.

The conventions are those of `attention.rows`; the tile of entries low..high-1 is [high - low, H].
Softmax statistics [N, 2, H] of a row are its largest logit, and one over the sum of exponentials of
logits less it. Backward, the gradient of a logit is w * (g - m), g being that of its kept weight w
and m the sum of w * g over the row. The pass over targets adds up w * g * key and w * key, of which
the gradient of a query is made, and m. For the pass over sources it writes the row statistics
[N, 3, H]: the softmax statistics and m.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from graphtheory.ops.backends.cpu.attention.rows import (
    AHEAD,
    add_entries,
    dot_entries,
    edge_of,
    first_to_prefetch,
    kept,
)
from graphtheory.ops.backends.cpu.compiling import part, shared_part
from graphtheory.ops.backends.cpu.launch import cut, items_of, next_chunk, take_chunk
from graphtheory.ops.backends.cpu.vector.lanes import (
    add,
    clear,
    exp,
    invert,
    maximum_,
    multiply,
    no_infinity,
    prefetch_rows,
    scale_into,
    softmax_grad,
    subtract,
)


@part
def _finish(low, high, heads, perm, bias, bucket, table, scale, tile):
    """Turn dot products into logits, in place."""
    one = tile.dtype.type(1)
    multiply(tile, 0, scale, (high - low) * heads)
    if bias.shape[0] > 0:
        for t in range(low, high):
            add(tile, (t - low) * heads, one, bias, edge_of(perm, t) * heads, heads)
    if table.shape[0] > 0:
        for t in range(low, high):
            row = bucket[edge_of(perm, t)] * heads
            add(tile, (t - low) * heads, one, table, row, heads)


@part
def _drop(low, high, heads, perm, p, seed, tile):
    """Drop some of the weights in place."""
    real = tile.dtype.type
    for t in range(low, high):
        for h in range(heads):
            stays = kept(edge_of(perm, t) * heads + h, p, seed)
            tile[t - low, h] = tile[t - low, h] / real(1 - p) if stays else real(0)


@njit(inline="always")
def _exponentials(n, stats, top, heads, tile):
    """Turn n logits a head into exp(logit - size), the size being the row's largest so far.

    The sizes are in `stats` from `top` on. Past the tile comes what they were subtracted as, -inf
    as 0, and then exp(old size - new size).
    """
    one, shift, rise = tile.dtype.type(1), AHEAD * heads, (AHEAD + 1) * heads
    scale_into(tile, rise, one, stats, top, heads)
    for t in range(n):
        maximum_(stats, top, tile, t * heads, heads)
    scale_into(tile, shift, one, stats, top, heads)
    no_infinity(tile, shift, heads)
    for t in range(n):
        subtract(tile, t * heads, tile, shift, heads)
    subtract(tile, rise, tile, shift, heads)
    exp(tile, 0, n * heads)
    exp(tile, rise, heads)


@njit(inline="always")
def _sum_part(
    out, stats, at, i, low, high, prefetched, indices, query, key, value, bias, bucket, table,
    scale, p, seed, tile,
):  # fmt: skip
    """Sum entries low..high-1 of row i into out[at], stats[at]; return the next row to prefetch."""
    (_, heads, dim), one, none = key.shape, tile.dtype.type(1), indices[:0]
    width, rise, begin = heads * dim, (AHEAD + 1) * heads, low
    top, total = 2 * at * heads, (2 * at + 1) * heads
    for h in range(heads):
        stats[at, 0, h] = -np.inf
    clear(stats, total, heads)
    clear(out, at * width, width)
    while low < high:
        mid = min(low + AHEAD, high)
        while prefetched < mid + AHEAD:
            prefetch_rows(indices, prefetched, prefetched + AHEAD, key, width)
            prefetch_rows(indices, prefetched, prefetched + AHEAD, value, width)
            prefetched += AHEAD
        dot_entries(i, low, mid, indices, none, query, key, tile, low)
        _finish(low, mid, heads, none, bias, bucket, table, scale, tile)
        _exponentials(mid - low, stats, top, heads, tile)
        if low > begin:
            multiply(stats, total, tile, rise, heads)
            for h in range(heads):
                multiply(out, (at * heads + h) * dim, tile[AHEAD + 1, h], dim)
        for t in range(mid - low):
            add(stats, total, one, tile, t * heads, heads)
        if p > 0:
            _drop(low, mid, heads, none, p, seed, tile)
        add_entries(out, at, low, mid, indices, none, tile, one, 0.0, seed, value, low)
        low = mid
    return prefetched


@part
def _end_row(i, stats, out):
    """Turn the sums of a row into means, and its totals into one over them."""
    heads, dim = out.shape[1], out.shape[2]
    no_infinity(stats, 2 * i * heads, heads)
    invert(stats, (2 * i + 1) * heads, heads)
    for h in range(heads):
        multiply(out, (i * heads + h) * dim, stats[i, 1, h], dim)


@shared_part
def _forward_chunk(
    chunk, chunks, indptr, indices, query, key, value, bias, bucket, table, scale, p, seed, stats,
    out, split_row, partial_sum, partial_stats, tile,
):  # fmt: skip
    begin, end, start, first, last, low = items_of(indptr, chunk, chunks)
    prefetched = first_to_prefetch(low, key)
    split_row[chunk] = -1
    for i in range(start, last):
        low, high = cut(indptr, i, begin, end)
        sums, sizes, at = out, stats, i
        if i < first:
            if low >= high:
                continue
            split_row[chunk], sums, sizes, at = i, partial_sum, partial_stats, chunk
        prefetched = _sum_part(
            sums, sizes, at, i, low, high, prefetched, indices, query, key, value, bias, bucket,
            table, scale, p, seed, tile,
        )  # fmt: skip
        if i >= first and high == indptr[i + 1]:
            _end_row(i, stats, out)


def forward(
    counters, chunks, indptr, indices, query, key, value, bias, bucket, table, scale, p, seed,
    stats, out, split_row, partial_sum, partial_stats,
):  # fmt: skip
    """Write the means of the values and the softmax statistics; parts of rows: `merge_rows`."""
    tile = np.empty((AHEAD + 2, key.shape[1]), out.dtype)
    chunk = take_chunk(counters)
    while chunk < chunks:
        _forward_chunk(
            chunk, chunks, indptr, indices, query, key, value, bias, bucket, table, scale, p, seed,
            stats, out, split_row, partial_sum, partial_stats, tile,
        )  # fmt: skip
        chunk = next_chunk(counters)


def merge_rows(counters, chunks, split_row, partial_sum, partial_stats, stats, out):
    """Add the parts of rows to the first one, in the order of the chunks."""
    heads, dim = out.shape[1], out.shape[2]
    chunk = take_chunk(counters)
    while chunk < chunks:
        i = split_row[chunk]
        if i >= 0:
            for h in range(heads):
                top = max(stats[i, 0, h], partial_stats[chunk, 0, h])
                shift = top if top > -np.inf else out.dtype.type(0)
                mine = np.exp(stats[i, 0, h] - shift)
                other = np.exp(partial_stats[chunk, 0, h] - shift)
                multiply(out, (i * heads + h) * dim, mine, dim)
                add(out, (i * heads + h) * dim, other, partial_sum, (chunk * heads + h) * dim, dim)
                stats[i, 0, h] = top
                stats[i, 1, h] = mine * stats[i, 1, h] + other * partial_stats[chunk, 1, h]
            if chunk + 1 == chunks or split_row[chunk + 1] != i:
                _end_row(i, stats, out)
        chunk = next_chunk(counters)


@njit(inline="always")
def _query_part(
    of_query, rest, row_stats, at, spare, i, low, high, prefetched, indices, query, key, value,
    grad, stats, bias, bucket, table, scale, p, seed, tile, grad_tile,
):  # fmt: skip
    """Write the three sums of entries low..high-1 of row i; return the next row to prefetch."""
    heads, width, one = key.shape[1], key.shape[1] * key.shape[2], tile.dtype.type(1)
    none, size, mean = indices[:0], 2 * i * heads, (3 * at + 2) * heads
    clear(of_query, at * width, width)
    clear(rest, spare * width, width)
    clear(row_stats, mean, heads)
    while low < high:
        mid = min(low + AHEAD, high)
        while prefetched < mid + AHEAD:
            prefetch_rows(indices, prefetched, prefetched + AHEAD, key, width)
            prefetch_rows(indices, prefetched, prefetched + AHEAD, value, width)
            prefetched += AHEAD
        dot_entries(i, low, mid, indices, none, query, key, tile, low)
        dot_entries(i, low, mid, indices, none, grad, value, grad_tile, low)
        _finish(low, mid, heads, none, bias, bucket, table, scale, tile)
        if p > 0:
            _drop(low, mid, heads, none, p, seed, grad_tile)
        for t in range(mid - low):
            subtract(tile, t * heads, stats, size, heads)
        exp(tile, 0, (mid - low) * heads)
        for t in range(mid - low):
            multiply(tile, t * heads, stats, size + heads, heads)
        multiply(grad_tile, 0, tile, 0, (mid - low) * heads)
        for t in range(mid - low):
            add(row_stats, mean, one, grad_tile, t * heads, heads)
        add_entries(of_query, at, low, mid, indices, none, grad_tile, one, 0.0, seed, key, low)
        add_entries(rest, spare, low, mid, indices, none, tile, one, 0.0, seed, key, low)
        low = mid
    return prefetched


@part
def _end_query(of_query, rest, row_stats, i, spare, stats, scale):
    """Turn the three sums of a row into the gradient of its query and its row statistics."""
    heads, dim = of_query.shape[1], of_query.shape[2]
    scale_into(row_stats, 3 * i * heads, stats.dtype.type(1), stats, 2 * i * heads, 2 * heads)
    for h in range(heads):
        here = (i * heads + h) * dim
        add(of_query, here, -row_stats[i, 2, h], rest, (spare * heads + h) * dim, dim)
        multiply(of_query, here, scale, dim)


@shared_part
def _target_chunk(
    chunk, chunks, indptr, indices, query, key, value, grad, stats, bias, bucket, table, scale, p,
    seed, of_query, row_stats, rest, split_row, partial_sum, partial_rest, partial_stats, tile,
    grad_tile,
):  # fmt: skip
    begin, end, start, first, last, low = items_of(indptr, chunk, chunks)
    prefetched = first_to_prefetch(low, key)
    split_row[chunk] = -1
    for i in range(start, last):
        low, high = cut(indptr, i, begin, end)
        sums, others, means, at = of_query, rest, row_stats, i
        if i < first:
            if low >= high:
                continue
            split_row[chunk], at = i, chunk
            sums, others, means = partial_sum, partial_rest, partial_stats
        prefetched = _query_part(
            sums, others, means, at, chunk, i, low, high, prefetched, indices, query, key, value,
            grad, stats, bias, bucket, table, scale, p, seed, tile, grad_tile,
        )  # fmt: skip
        if i >= first and high == indptr[i + 1]:
            _end_query(of_query, rest, row_stats, i, chunk, stats, scale)


def by_target(
    counters, chunks, indptr, indices, query, key, value, grad, stats, bias, bucket, table, scale,
    p, seed, of_query, row_stats, rest, split_row, partial_sum, partial_rest, partial_stats,
):  # fmt: skip
    """Write the gradient of the query and row statistics; parts of rows: `merge_queries`."""
    size = AHEAD, key.shape[1]
    tile, grad_tile = np.empty(size, grad.dtype), np.empty(size, grad.dtype)
    chunk = take_chunk(counters)
    while chunk < chunks:
        _target_chunk(
            chunk, chunks, indptr, indices, query, key, value, grad, stats, bias, bucket, table,
            scale, p, seed, of_query, row_stats, rest, split_row, partial_sum, partial_rest,
            partial_stats, tile, grad_tile,
        )  # fmt: skip
        chunk = next_chunk(counters)


def merge_queries(
    counters, chunks, split_row, partial_sum, partial_rest, partial_stats, stats, scale, of_query,
    row_stats, rest,
):  # fmt: skip
    """Add the parts of rows to the first one, in the order of the chunks."""
    (_, heads, dim), one, start = partial_sum.shape, partial_sum.dtype.type(1), 0
    chunk, width = take_chunk(counters), heads * dim
    while chunk < chunks:
        i = split_row[chunk]
        if i >= 0:
            if split_row[chunk - 1] != i:
                start = chunk - 1
            add(of_query, i * width, one, partial_sum, chunk * width, width)
            add(rest, start * width, one, partial_rest, chunk * width, width)
            add(row_stats, (3 * i + 2) * heads, one, partial_stats, (3 * chunk + 2) * heads, heads)
            if chunk + 1 == chunks or split_row[chunk + 1] != i:
                _end_query(of_query, rest, row_stats, i, start, stats, scale)
        chunk = next_chunk(counters)


@njit(inline="always")
def _weigh(low, high, perm, targets, row_stats, p, seed, tile, grad_tile):
    """Turn logits into weights and weight gradients into logit gradients, in place."""
    heads = row_stats.shape[2]
    for t in range(low, high):
        subtract(tile, (t - low) * heads, row_stats, 3 * heads * targets[t], heads)
    exp(tile, 0, (high - low) * heads)
    if p > 0:
        _drop(low, high, heads, perm, p, seed, grad_tile)
    for t in range(low, high):
        share, here = (3 * targets[t] + 1) * heads, (t - low) * heads
        multiply(tile, here, row_stats, share, heads)
        softmax_grad(grad_tile, here, tile, here, row_stats, share + heads, heads)


@njit(inline="always")
def _source_part(
    of_key, of_value, at, j, low, high, prefetched, chunk, of_logits, tables, targets, perm, query,
    key, value, grad, row_stats, bias, bucket, table, scale, p, seed, tile, grad_tile,
):  # fmt: skip
    """Write to of_key[at] and of_value[at] what entries low..high-1 of source j bring."""
    (_, heads, dim), one, none = key.shape, tile.dtype.type(1), targets[:0]
    width = heads * dim
    clear(of_key, at * width, width)
    clear(of_value, at * width, width)
    while low < high:
        mid = min(low + AHEAD, high)
        while prefetched < mid + AHEAD:
            prefetch_rows(targets, prefetched, prefetched + AHEAD, query, width)
            prefetch_rows(targets, prefetched, prefetched + AHEAD, grad, width)
            prefetch_rows(targets, prefetched, prefetched + AHEAD, row_stats, 3 * heads)
            prefetched += AHEAD
        dot_entries(j, low, mid, targets, none, key, query, tile, low)
        dot_entries(j, low, mid, targets, none, value, grad, grad_tile, low)
        _finish(low, mid, heads, perm, bias, bucket, table, scale, tile)
        _weigh(low, mid, perm, targets, row_stats, p, seed, tile, grad_tile)
        add_entries(of_key, at, low, mid, targets, none, grad_tile, scale, 0.0, seed, query, low)
        if p > 0:
            _drop(low, mid, heads, perm, p, seed, tile)
        add_entries(of_value, at, low, mid, targets, none, tile, one, 0.0, seed, grad, low)
        if of_logits.shape[0] > 0:
            for t in range(low, mid):
                scale_into(of_logits, perm[t] * heads, one, grad_tile, (t - low) * heads, heads)
        if tables.shape[0] > 0:
            for t in range(low, mid):
                place = chunk * tables.shape[1] + bucket[perm[t]] * heads
                add(tables, place, one, grad_tile, (t - low) * heads, heads)
        low = mid
    return prefetched


@shared_part
def _source_chunk(
    chunk, chunks, t_indptr, targets, perm, query, key, value, grad, row_stats, bias, bucket,
    table, scale, p, seed, of_key, of_value, of_logits, tables, split_row, partial_key,
    partial_value, tile, grad_tile,
):  # fmt: skip
    begin, end, start, first, last, low = items_of(t_indptr, chunk, chunks)
    prefetched = first_to_prefetch(low, query)
    split_row[chunk] = -1
    for j in range(start, last):
        low, high = cut(t_indptr, j, begin, end)
        keys, values, at = of_key, of_value, j
        if j < first:
            if low >= high:
                continue
            split_row[chunk], keys, values, at = j, partial_key, partial_value, chunk
        prefetched = _source_part(
            keys, values, at, j, low, high, prefetched, chunk, of_logits, tables, targets, perm,
            query, key, value, grad, row_stats, bias, bucket, table, scale, p, seed, tile,
            grad_tile,
        )  # fmt: skip


def by_source(
    counters, chunks, t_indptr, targets, perm, query, key, value, grad, row_stats, bias, bucket,
    table, scale, p, seed, of_key, of_value, of_logits, tables, split_row, partial_key,
    partial_value,
):  # fmt: skip
    """Write the gradients of key, value and, if wanted, of the logits, and a table a chunk."""
    size = AHEAD, key.shape[1]
    tile, grad_tile = np.empty(size, grad.dtype), np.empty(size, grad.dtype)
    chunk = take_chunk(counters)
    while chunk < chunks:
        _source_chunk(
            chunk, chunks, t_indptr, targets, perm, query, key, value, grad, row_stats, bias,
            bucket, table, scale, p, seed, of_key, of_value, of_logits, tables, split_row,
            partial_key, partial_value, tile, grad_tile,
        )  # fmt: skip
        chunk = next_chunk(counters)
