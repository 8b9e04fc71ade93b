"""The backward pass over tiles: one pass over receivers and one over senders; see `_numba_tiles`.

What an edge needs to know of its row is known before: the norm and, as the sum of weights times
their gradients, <grad, out>. So an edge asks nothing of the other edges of its row.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from graphtheory.ops.backends._numba_kernels import (
    AHEAD,
    cut,
    first_item,
    first_row,
    first_to_ask_for,
)
from graphtheory.ops.backends._numba_lanes import (
    add,
    clear,
    dot,
    exp,
    multiply,
    put,
    softmax_slope,
    subtract,
    warm,
)
from graphtheory.ops.backends._numba_parts import inlined, part
from graphtheory.ops.backends._numba_tiles import dots, drop, finish, spread
from graphtheory.ops.backends._turns import next_chunk, take_chunk


def know_rows(turns, chunks, norm, grad, out, facts):
    """Write of each row and head its norm and <grad, out>."""
    (rows, heads, dim), one = out.shape, out.dtype.type(1)
    chunk = take_chunk(turns)
    while chunk < chunks:
        for i in range(rows * chunk // chunks, rows * (chunk + 1) // chunks):
            put(facts, 3 * i * heads, one, norm, 2 * i * heads, 2 * heads)
            for h in range(heads):
                at = (i * heads + h) * dim
                facts[i, 2, h] = dot(grad, at, out, at, dim)
        chunk = next_chunk(turns)


@njit(inline="always")
def receiver_of(i, indices, t):
    """The receiver is i, or, where i is -1, the node of entry t."""
    return i if i >= 0 else indices[t]


@inlined
def weigh(low, high, perm, indices, i, facts, p, seed, tile, flow):
    """Of logits make weights, and of gradients of the kept weights those of the logits."""
    heads = facts.shape[2]
    for t in range(low, high):
        size = 3 * heads * receiver_of(i, indices, t)
        subtract(tile, (t - low) * heads, facts, size, heads)
    exp(tile, 0, (high - low) * heads)
    if p > 0:
        drop(low, high, heads, perm, p, seed, flow)
    for t in range(low, high):
        share, here = (3 * receiver_of(i, indices, t) + 1) * heads, (t - low) * heads
        multiply(tile, here, facts, share, heads)
        softmax_slope(flow, here, tile, here, facts, share + heads, heads)


@inlined
def query_part(
    out, at, i, low, high, asked, chunk, of_logits, tables, indices, query, key, value, grad,
    facts, bias, bucket, table, scale, p, seed, tile, flow,
):  # fmt: skip
    """Write to out[at] what entries low..high-1 of row i bring; returns the next row to ask for."""
    heads, width, one = key.shape[1], key.shape[1] * key.shape[2], tile.dtype.type(1)
    none = indices[:0]
    clear(out, at * width, width)
    while low < high:
        mid = min(low + AHEAD, high)
        while asked < mid + AHEAD:
            warm(indices, asked, asked + AHEAD, key, width)
            warm(indices, asked, asked + AHEAD, value, width)
            asked += AHEAD
        dots(low, mid, indices, query, i, key, tile)
        dots(low, mid, indices, grad, i, value, flow)
        finish(low, mid, heads, none, bias, bucket, table, scale, tile)
        weigh(low, mid, none, indices, i, facts, p, seed, tile, flow)
        spread(low, mid, indices, flow, scale, key, out, at)
        if of_logits.shape[0] > 0:
            put(of_logits, low * heads, one, flow, 0, (mid - low) * heads)
        if tables.shape[0] > 0:
            for t in range(low, mid):
                place = chunk * tables.shape[1] + bucket[t] * heads
                add(tables, place, one, flow, (t - low) * heads, heads)
        low = mid
    return asked


@part
def _receiver_chunk(
    chunk, chunks, indptr, indices, query, key, value, grad, facts, bias, bucket, table, scale, p,
    seed, of_logits, tables, of_query, carried, carry, tile, flow,
):  # fmt: skip
    begin, end = first_item(indptr, chunk, chunks), first_item(indptr, chunk + 1, chunks)
    first = first_row(indptr, chunk, chunks)
    low, high = cut(indptr, max(first - 1, 0), begin, end)
    asked = first_to_ask_for(low, key)
    carried[chunk] = -1
    if tables.shape[0] > 0:
        clear(tables, chunk * tables.shape[1], tables.shape[1])
    if first > 0 and low < high:
        carried[chunk] = first - 1
        asked = query_part(
            carry, chunk, first - 1, low, high, asked, chunk, of_logits, tables, indices, query,
            key, value, grad, facts, bias, bucket, table, scale, p, seed, tile, flow,
        )  # fmt: skip
    for i in range(first, indptr.shape[0] - 1):
        if indptr[i] + i >= end:
            break
        low, high = cut(indptr, i, begin, end)
        asked = query_part(
            of_query, i, i, low, high, asked, chunk, of_logits, tables, indices, query, key, value,
            grad, facts, bias, bucket, table, scale, p, seed, tile, flow,
        )  # fmt: skip


def by_receiver(
    turns, chunks, indptr, indices, query, key, value, grad, facts, bias, bucket, table, scale, p,
    seed, of_logits, tables, of_query, carried, carry,
):  # fmt: skip
    """Write the gradients of query and, if there is room, logits, and a table of each chunk."""
    tile, flow = (
        np.empty(AHEAD * key.shape[1], grad.dtype),
        np.empty(AHEAD * key.shape[1], grad.dtype),
    )
    chunk = take_chunk(turns)
    while chunk < chunks:
        _receiver_chunk(
            chunk, chunks, indptr, indices, query, key, value, grad, facts, bias, bucket, table,
            scale, p, seed, of_logits, tables, of_query, carried, carry, tile, flow,
        )  # fmt: skip
        chunk = next_chunk(turns)


@inlined
def sender_part(
    of_key, of_value, at, j, low, high, asked, receivers, perm, query, key, value, grad, facts,
    bias, bucket, table, scale, p, seed, tile, flow,
):  # fmt: skip
    """Write to of_key[at] and of_value[at] what entries low..high-1 of sender j bring."""
    heads, width, one = key.shape[1], key.shape[1] * key.shape[2], tile.dtype.type(1)
    clear(of_key, at * width, width)
    clear(of_value, at * width, width)
    while low < high:
        mid = min(low + AHEAD, high)
        while asked < mid + AHEAD:
            warm(receivers, asked, asked + AHEAD, query, width)
            warm(receivers, asked, asked + AHEAD, grad, width)
            warm(receivers, asked, asked + AHEAD, facts, 3 * heads)
            asked += AHEAD
        dots(low, mid, receivers, key, j, query, tile)
        dots(low, mid, receivers, value, j, grad, flow)
        finish(low, mid, heads, perm, bias, bucket, table, scale, tile)
        weigh(low, mid, perm, receivers, -1, facts, p, seed, tile, flow)
        spread(low, mid, receivers, flow, scale, query, of_key, at)
        if p > 0:
            drop(low, mid, heads, perm, p, seed, tile)
        spread(low, mid, receivers, tile, one, grad, of_value, at)
        low = mid
    return asked


@part
def _sender_chunk(
    chunk, chunks, t_indptr, receivers, perm, query, key, value, grad, facts, bias, bucket, table,
    scale, p, seed, of_key, of_value, carried, carry_key, carry_value, tile, flow,
):  # fmt: skip
    begin, end = first_item(t_indptr, chunk, chunks), first_item(t_indptr, chunk + 1, chunks)
    first = first_row(t_indptr, chunk, chunks)
    low, high = cut(t_indptr, max(first - 1, 0), begin, end)
    asked = first_to_ask_for(low, query)
    carried[chunk] = -1
    if first > 0 and low < high:
        carried[chunk] = first - 1
        asked = sender_part(
            carry_key, carry_value, chunk, first - 1, low, high, asked, receivers, perm, query, key,
            value, grad, facts, bias, bucket, table, scale, p, seed, tile, flow,
        )  # fmt: skip
    for j in range(first, t_indptr.shape[0] - 1):
        if t_indptr[j] + j >= end:
            break
        low, high = cut(t_indptr, j, begin, end)
        asked = sender_part(
            of_key, of_value, j, j, low, high, asked, receivers, perm, query, key, value, grad,
            facts, bias, bucket, table, scale, p, seed, tile, flow,
        )  # fmt: skip


def by_sender(
    turns, chunks, t_indptr, receivers, perm, query, key, value, grad, facts, bias, bucket, table,
    scale, p, seed, of_key, of_value, carried, carry_key, carry_value,
):  # fmt: skip
    """Write the gradients of key and value."""
    tile, flow = (
        np.empty(AHEAD * key.shape[1], grad.dtype),
        np.empty(AHEAD * key.shape[1], grad.dtype),
    )
    chunk = take_chunk(turns)
    while chunk < chunks:
        _sender_chunk(
            chunk, chunks, t_indptr, receivers, perm, query, key, value, grad, facts, bias, bucket,
            table, scale, p, seed, of_key, of_value, carried, carry_key, carry_value, tile, flow,
        )  # fmt: skip
        chunk = next_chunk(turns)
