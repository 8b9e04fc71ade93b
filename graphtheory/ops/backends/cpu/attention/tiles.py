"""Attention that keeps nothing by edge: a few edges at a time, a tile, in the nearest cache.

The conventions are those of `attention.rows`; the tile of entries low..high-1 of a structure is
[high - low, H]. This is the forward pass and what it shares with `tiles_backward`.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from graphtheory.ops.backends.cpu.attention.rows import (
    AHEAD,
    cut,
    edge_of,
    first_edge,
    first_item,
    first_row,
    first_to_ask_for,
    kept,
)
from graphtheory.ops.backends.cpu.decorators import part
from graphtheory.ops.backends.cpu.launch import next_chunk, take_chunk
from graphtheory.ops.backends.cpu.vector.lanes import (
    add,
    clear,
    dot,
    exp,
    invert,
    multiply,
    multiply_by,
    no_infinity,
    put,
    raise_to,
    subtract,
    warm,
)
from graphtheory.ops.backends.cpu.vector.rows import add_rows, write_dots


@part
def dots(low, high, indices, x, i, y, tile):
    """Write <x[i, h], y[j, h]>."""
    (_, heads, dim), width, none = x.shape, x.shape[1] * x.shape[2], indices[:0]
    start, more = -low * heads, False
    if not write_dots(
        tile, start, none, more, x, i * width, dim, low, high, indices, y, width, dim, heads, dim
    ):
        for t in range(low, high):
            for h in range(heads):
                at_i, at_j = (i * heads + h) * dim, (indices[t] * heads + h) * dim
                tile[(t - low) * heads + h] = dot(x, at_i, y, at_j, dim)


@part
def finish(low, high, heads, perm, bias, bucket, table, scale, tile):
    """Of dot products make logits."""
    one = tile.dtype.type(1)
    multiply_by(tile, 0, (high - low) * heads, scale)
    if bias.shape[0] > 0:
        for t in range(low, high):
            add(tile, (t - low) * heads, one, bias, edge_of(perm, t) * heads, heads)
    if table.shape[0] > 0:
        for t in range(low, high):
            row = bucket[edge_of(perm, t)] * heads
            add(tile, (t - low) * heads, one, table, row, heads)


@part
def drop(low, high, heads, perm, p, seed, tile):
    """Dropout in place."""
    real = tile.dtype.type
    for t in range(low, high):
        for h in range(heads):
            place = (t - low) * heads + h
            stays = kept(edge_of(perm, t) * heads + h, p, seed)
            tile[place] = tile[place] / real(1 - p) if stays else real(0)


@part
def spread(low, high, indices, tile, scale, x, out, at):
    """Add scale * tile * x[j] to out[at]."""
    (_, heads, dim), width, none = x.shape, x.shape[1] * x.shape[2], indices[:0]
    begin, start = at * width, -low * heads
    if not add_rows(
        out, begin, dim, low, high, none, tile, start, scale, indices, x, width, dim, heads, dim
    ):
        for t in range(low, high):
            for h in range(heads):
                w, near = tile[(t - low) * heads + h] * scale, (at * heads + h) * dim
                add(out, near, w, x, (indices[t] * heads + h) * dim, dim)


@njit(inline="always")
def exponentials(n, norm, top, heads, tile):
    """Of n logits a head make exp(logit - size), the size being the largest of the row so far.

    The sizes are in `norm` from `top` on. Past the tile comes what they were subtracted as, -inf as
    0, and then exp(old size - new size).
    """
    one, shift, rise = tile.dtype.type(1), AHEAD * heads, (AHEAD + 1) * heads
    put(tile, rise, one, norm, top, heads)
    for t in range(n):
        raise_to(norm, top, tile, t * heads, heads)
    put(tile, shift, one, norm, top, heads)
    no_infinity(tile, shift, heads)
    for t in range(n):
        subtract(tile, t * heads, tile, shift, heads)
    subtract(tile, rise, tile, shift, heads)
    exp(tile, 0, n * heads)
    exp(tile, rise, heads)


@njit(inline="always")
def sum_part(
    out, norm, at, i, low, high, asked, indices, query, key, value, bias, bucket, table, scale,
    p, seed, tile,
):  # fmt: skip
    """Write to out[at] the sum of entries low..high-1 of row i, and to norm[at] sizes and totals.

    Returns the next row to ask for.
    """
    (_, heads, dim), one, none = key.shape, tile.dtype.type(1), indices[:0]
    width, rise, begin = heads * dim, (AHEAD + 1) * heads, low
    top, total = 2 * at * heads, (2 * at + 1) * heads
    for h in range(heads):
        norm[at, 0, h] = -np.inf
    clear(norm, total, heads)
    clear(out, at * width, width)
    while low < high:
        mid = min(low + AHEAD, high)
        while asked < mid + AHEAD:
            warm(indices, asked, asked + AHEAD, key, width)
            warm(indices, asked, asked + AHEAD, value, width)
            asked += AHEAD
        dots(low, mid, indices, query, i, key, tile)
        finish(low, mid, heads, none, bias, bucket, table, scale, tile)
        exponentials(mid - low, norm, top, heads, tile)
        if low > begin:
            multiply(norm, total, tile, rise, heads)
            for h in range(heads):
                multiply_by(out, (at * heads + h) * dim, dim, tile[rise + h])
        for t in range(mid - low):
            add(norm, total, one, tile, t * heads, heads)
        if p > 0:
            drop(low, mid, heads, none, p, seed, tile)
        spread(low, mid, indices, tile, one, value, out, at)
        low = mid
    return asked


@part
def settle(i, norm, out):
    """Of sums of a row make means, and of its totals one over them."""
    heads, dim = out.shape[1], out.shape[2]
    no_infinity(norm, 2 * i * heads, heads)
    invert(norm, (2 * i + 1) * heads, heads)
    for h in range(heads):
        multiply_by(out, (i * heads + h) * dim, dim, norm[i, 1, h])


@part
def _forward_chunk(
    chunk, chunks, indptr, indices, query, key, value, bias, bucket, table, scale, p, seed, norm,
    out, carried, carry, carry_norm, tile,
):  # fmt: skip
    begin, end = first_item(indptr, chunk, chunks), first_item(indptr, chunk + 1, chunks)
    first = first_row(indptr, chunk, chunks)
    start = max(first - 1, 0)
    asked = first_to_ask_for(first_edge(indptr, start, begin), key)
    carried[chunk] = -1
    for i in range(start, indptr.shape[0] - 1):
        if indptr[i] + i >= end:
            break
        low, high = cut(indptr, i, begin, end)
        sums, norms, at = out, norm, i
        if i < first:
            if low >= high:
                continue
            carried[chunk], sums, norms, at = i, carry, carry_norm, chunk
        asked = sum_part(
            sums, norms, at, i, low, high, asked, indices, query, key, value, bias, bucket, table,
            scale, p, seed, tile,
        )  # fmt: skip
        if i >= first and high == indptr[i + 1]:
            settle(i, norm, out)


def forward(
    turns, chunks, indptr, indices, query, key, value, bias, bucket, table, scale, p, seed,
    norm, out, carried, carry, carry_norm,
):  # fmt: skip
    """Write the means of the values, and the norm.

    The part of a row that starts before a chunk goes to carry[chunk] and carry_norm[chunk], the row
    to carried[chunk]: see `merge_rows`.
    """
    tile = np.empty((AHEAD + 2) * key.shape[1], out.dtype)
    chunk = take_chunk(turns)
    while chunk < chunks:
        _forward_chunk(
            chunk, chunks, indptr, indices, query, key, value, bias, bucket, table, scale, p, seed,
            norm, out, carried, carry, carry_norm, tile,
        )  # fmt: skip
        chunk = next_chunk(turns)


def merge_rows(turns, chunks, carried, carry, carry_norm, norm, out):
    """Add the parts of rows to the first one, in the order of the chunks."""
    heads, dim = out.shape[1], out.shape[2]
    chunk = take_chunk(turns)
    while chunk < chunks:
        i = carried[chunk]
        if i >= 0:
            for h in range(heads):
                top = max(norm[i, 0, h], carry_norm[chunk, 0, h])
                shift = top if top > -np.inf else out.dtype.type(0)
                mine = np.exp(norm[i, 0, h] - shift)
                other = np.exp(carry_norm[chunk, 0, h] - shift)
                multiply_by(out, (i * heads + h) * dim, dim, mine)
                add(out, (i * heads + h) * dim, other, carry, (chunk * heads + h) * dim, dim)
                norm[i, 0, h] = top
                norm[i, 1, h] = mine * norm[i, 1, h] + other * carry_norm[chunk, 1, h]
            if chunk + 1 == chunks or carried[chunk + 1] != i:
                settle(i, norm, out)
        chunk = next_chunk(turns)
