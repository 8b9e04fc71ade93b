"""The backward pass over tiles: one pass over targets and one over sources; see `tiles`.

The gradient of a logit is w * (g - m), g being that of its kept weight w and m the sum of w * g
over the row. The pass over targets has both sums that the gradient of a query is made of, those
of w * g * key and w * key, and m by the end of a row; for the pass over sources m is a fact of the
target, like its norm.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from graphtheory.ops.backends.cpu.attention.rows import (
    AHEAD,
    cut,
    first_edge,
    first_item,
    first_row,
    first_to_ask_for,
)
from graphtheory.ops.backends.cpu.attention.tiles import dots, drop, finish, spread
from graphtheory.ops.backends.cpu.decorators import part
from graphtheory.ops.backends.cpu.launch import next_chunk, take_chunk
from graphtheory.ops.backends.cpu.vector.lanes import (
    add,
    clear,
    exp,
    multiply,
    multiply_by,
    put,
    softmax_slope,
    subtract,
    warm,
)


@njit(inline="always")
def query_part(
    of_query, rest, facts, at, spare, i, low, high, asked, indices, query, key, value, grad, norm,
    bias, bucket, table, scale, p, seed, tile, flow,
):  # fmt: skip
    """Write what entries low..high-1 of row i add to its three sums.

    That of w * g * key to of_query[at], that of w * key to rest[spare], that of w * g to
    facts[at, 2]. Returns the next row to ask for.
    """
    heads, width, one = key.shape[1], key.shape[1] * key.shape[2], tile.dtype.type(1)
    none, size, mean = indices[:0], 2 * i * heads, (3 * at + 2) * heads
    clear(of_query, at * width, width)
    clear(rest, spare * width, width)
    clear(facts, mean, heads)
    while low < high:
        mid = min(low + AHEAD, high)
        while asked < mid + AHEAD:
            warm(indices, asked, asked + AHEAD, key, width)
            warm(indices, asked, asked + AHEAD, value, width)
            asked += AHEAD
        dots(low, mid, indices, query, i, key, tile)
        dots(low, mid, indices, grad, i, value, flow)
        finish(low, mid, heads, none, bias, bucket, table, scale, tile)
        if p > 0:
            drop(low, mid, heads, none, p, seed, flow)
        for t in range(mid - low):
            subtract(tile, t * heads, norm, size, heads)
        exp(tile, 0, (mid - low) * heads)
        for t in range(mid - low):
            multiply(tile, t * heads, norm, size + heads, heads)
        multiply(flow, 0, tile, 0, (mid - low) * heads)
        for t in range(mid - low):
            add(facts, mean, one, flow, t * heads, heads)
        spread(low, mid, indices, flow, one, key, of_query, at)
        spread(low, mid, indices, tile, one, key, rest, spare)
        low = mid
    return asked


@part
def settle_query(of_query, rest, facts, i, spare, norm, scale):
    """Of the three sums of a row make the gradient of its query; write all its facts."""
    heads, dim = of_query.shape[1], of_query.shape[2]
    put(facts, 3 * i * heads, facts.dtype.type(1), norm, 2 * i * heads, 2 * heads)
    for h in range(heads):
        here = (i * heads + h) * dim
        add(of_query, here, -facts[i, 2, h], rest, (spare * heads + h) * dim, dim)
        multiply_by(of_query, here, dim, scale)


@part
def _target_chunk(
    chunk, chunks, indptr, indices, query, key, value, grad, norm, bias, bucket, table, scale, p,
    seed, of_query, facts, rest, carried, carry, carry_rest, carry_facts, tile, flow,
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
        sums, others, means, at = of_query, rest, facts, i
        if i < first:
            if low >= high:
                continue
            carried[chunk], sums, others, means, at = i, carry, carry_rest, carry_facts, chunk
        asked = query_part(
            sums, others, means, at, chunk, i, low, high, asked, indices, query, key, value, grad,
            norm, bias, bucket, table, scale, p, seed, tile, flow,
        )  # fmt: skip
        if i >= first and high == indptr[i + 1]:
            settle_query(of_query, rest, facts, i, chunk, norm, scale)


def by_target(
    turns, chunks, indptr, indices, query, key, value, grad, norm, bias, bucket, table, scale, p,
    seed, of_query, facts, rest, carried, carry, carry_rest, carry_facts,
):  # fmt: skip
    """Write the gradient of the query and the facts of rows [N, 3, H]: the norm, and m.

    Parts of a row that starts before a chunk are carried, see `merge_queries`; rest[chunk] is that
    of the last row of the chunk.
    """
    tile, flow = (
        np.empty(AHEAD * key.shape[1], grad.dtype),
        np.empty(AHEAD * key.shape[1], grad.dtype),
    )
    chunk = take_chunk(turns)
    while chunk < chunks:
        _target_chunk(
            chunk, chunks, indptr, indices, query, key, value, grad, norm, bias, bucket, table,
            scale, p, seed, of_query, facts, rest, carried, carry, carry_rest, carry_facts, tile,
            flow,
        )  # fmt: skip
        chunk = next_chunk(turns)


def merge_queries(
    turns, chunks, carried, carry, carry_rest, carry_facts, norm, scale, of_query, facts, rest
):  # fmt: skip
    """Add the parts of rows to the first one, in the order of the chunks."""
    heads, width, one = carry.shape[1], carry.shape[1] * carry.shape[2], carry.dtype.type(1)
    chunk, start = take_chunk(turns), 0
    while chunk < chunks:
        i = carried[chunk]
        if i >= 0:
            if carried[chunk - 1] != i:
                start = chunk - 1
            add(of_query, i * width, one, carry, chunk * width, width)
            add(rest, start * width, one, carry_rest, chunk * width, width)
            add(facts, (3 * i + 2) * heads, one, carry_facts, (3 * chunk + 2) * heads, heads)
            if chunk + 1 == chunks or carried[chunk + 1] != i:
                settle_query(of_query, rest, facts, i, start, norm, scale)
        chunk = next_chunk(turns)


@njit(inline="always")
def weigh(low, high, perm, targets, facts, p, seed, tile, flow):
    """Of logits make weights, and of gradients of the kept weights those of the logits."""
    heads = facts.shape[2]
    for t in range(low, high):
        subtract(tile, (t - low) * heads, facts, 3 * heads * targets[t], heads)
    exp(tile, 0, (high - low) * heads)
    if p > 0:
        drop(low, high, heads, perm, p, seed, flow)
    for t in range(low, high):
        share, here = (3 * targets[t] + 1) * heads, (t - low) * heads
        multiply(tile, here, facts, share, heads)
        softmax_slope(flow, here, tile, here, facts, share + heads, heads)


@njit(inline="always")
def source_part(
    of_key, of_value, at, j, low, high, asked, chunk, of_logits, tables, targets, perm, query,
    key, value, grad, facts, bias, bucket, table, scale, p, seed, tile, flow,
):  # fmt: skip
    """Write to of_key[at] and of_value[at] what entries low..high-1 of source j bring."""
    heads, width, one = key.shape[1], key.shape[1] * key.shape[2], tile.dtype.type(1)
    clear(of_key, at * width, width)
    clear(of_value, at * width, width)
    while low < high:
        mid = min(low + AHEAD, high)
        while asked < mid + AHEAD:
            warm(targets, asked, asked + AHEAD, query, width)
            warm(targets, asked, asked + AHEAD, grad, width)
            warm(targets, asked, asked + AHEAD, facts, 3 * heads)
            asked += AHEAD
        dots(low, mid, targets, key, j, query, tile)
        dots(low, mid, targets, value, j, grad, flow)
        finish(low, mid, heads, perm, bias, bucket, table, scale, tile)
        weigh(low, mid, perm, targets, facts, p, seed, tile, flow)
        spread(low, mid, targets, flow, scale, query, of_key, at)
        if p > 0:
            drop(low, mid, heads, perm, p, seed, tile)
        spread(low, mid, targets, tile, one, grad, of_value, at)
        if of_logits.shape[0] > 0:
            for t in range(low, mid):
                put(of_logits, perm[t] * heads, one, flow, (t - low) * heads, heads)
        if tables.shape[0] > 0:
            for t in range(low, mid):
                place = chunk * tables.shape[1] + bucket[perm[t]] * heads
                add(tables, place, one, flow, (t - low) * heads, heads)
        low = mid
    return asked


@part
def _source_chunk(
    chunk, chunks, t_indptr, targets, perm, query, key, value, grad, facts, bias, bucket, table,
    scale, p, seed, of_key, of_value, of_logits, tables, carried, carry_key, carry_value, tile,
    flow,
):  # fmt: skip
    begin, end = first_item(t_indptr, chunk, chunks), first_item(t_indptr, chunk + 1, chunks)
    first = first_row(t_indptr, chunk, chunks)
    start = max(first - 1, 0)
    asked = first_to_ask_for(first_edge(t_indptr, start, begin), query)
    carried[chunk] = -1
    for j in range(start, t_indptr.shape[0] - 1):
        if t_indptr[j] + j >= end:
            break
        low, high = cut(t_indptr, j, begin, end)
        keys, values, at = of_key, of_value, j
        if j < first:
            if low >= high:
                continue
            carried[chunk], keys, values, at = j, carry_key, carry_value, chunk
        asked = source_part(
            keys, values, at, j, low, high, asked, chunk, of_logits, tables, targets, perm, query,
            key, value, grad, facts, bias, bucket, table, scale, p, seed, tile, flow,
        )  # fmt: skip


def by_source(
    turns, chunks, t_indptr, targets, perm, query, key, value, grad, facts, bias, bucket, table,
    scale, p, seed, of_key, of_value, of_logits, tables, carried, carry_key, carry_value,
):  # fmt: skip
    """Write the gradients of key, value and, if there is room, logits, and a table a chunk."""
    tile, flow = (
        np.empty(AHEAD * key.shape[1], grad.dtype),
        np.empty(AHEAD * key.shape[1], grad.dtype),
    )
    chunk = take_chunk(turns)
    while chunk < chunks:
        _source_chunk(
            chunk, chunks, t_indptr, targets, perm, query, key, value, grad, facts, bias, bucket,
            table, scale, p, seed, of_key, of_value, of_logits, tables, carried, carry_key,
            carry_value, tile, flow,
        )  # fmt: skip
        chunk = next_chunk(turns)
