"""Kernels of the primitives: dot products, softmax of rows, and sums of rows, chunks and buckets.

No atomics: every sum has one program, or parts that are added in a fixed order.
"""

from __future__ import annotations

import triton
import triton.language as tl

from graphtheory.ops.backends.triton.parts import (
    SIZES,
    by_head,
    cast,
    entries,
    features,
    finite,
    gather,
    next_edges,
    own,
    per_edge,
    put_own,
    put_per_edge,
    span,
    spread,
)


@triton.jit(do_not_specialize=SIZES)
def dot(
    rows, starts, indptr, count,
    indices, query, key, out,
    HEADS: tl.constexpr, DIM: tl.constexpr, ACC: tl.constexpr,
    CHUNK: tl.constexpr, R: tl.constexpr, B: tl.constexpr, G: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Write <query[i, h], key[j, h]> of the edges of rows, or of chunks."""
    row, _, live, start, stop = span(rows, starts, indptr, count, R, CHUNK)
    head, head_live, column, exists = features(HEADS, DIM, G, C)
    q = own(query, row, live, column, exists, HEADS * DIM, ACC)
    longest = tl.max(stop - start, 0).to(tl.int32)
    for offset in range(0, longest, B):
        edge, here, node = entries(indices, None, start, stop, offset, B)
        k = gather(key, node, here, column, exists, HEADS * DIM, ACC)
        dots = by_head(q[:, None, :] * k, G, C)
        put_per_edge(out, edge, here, head, head_live, dots, HEADS)


@triton.jit(do_not_specialize=SIZES)
def softmax(
    rows, starts, indptr, count, logits, out,
    HEADS: tl.constexpr, ACC: tl.constexpr,
    CHUNK: tl.constexpr, R: tl.constexpr, B: tl.constexpr, G: tl.constexpr,
):  # fmt: skip
    """Write the weights of rows: one sweep for maximum and sum, one for the result."""
    _, _, _, start, stop = span(rows, starts, indptr, count, R, CHUNK)
    head = tl.program_id(1) * G + tl.arange(0, G)
    longest = tl.max(stop - start, 0).to(tl.int32)
    top = tl.full((R, B, G), float("-inf"), ACC)
    total = tl.zeros((R, B, G), ACC)
    for offset in range(0, longest, B):
        edge, here = next_edges(start, stop, offset, B)
        s = per_edge(logits, edge, here, head, head < HEADS, HEADS, ACC)
        s = tl.where(here[:, :, None], s, float("-inf"))
        new = tl.maximum(top, s)
        total = total * tl.exp(top - finite(new)) + tl.exp(s - finite(new))
        top = new
    best = finite(tl.max(top, 1))
    total = tl.sum(total * tl.exp(top - best[:, None, :]), 1)
    share = 1.0 / tl.where(total == 0, 1.0, total)
    for offset in range(0, longest, B):
        edge, here = next_edges(start, stop, offset, B)
        s = per_edge(logits, edge, here, head, head < HEADS, HEADS, ACC)
        w = tl.exp(s - best[:, None, :]) * share[:, None, :]
        put_per_edge(out, edge, here, head, head < HEADS, w, HEADS)


@triton.jit(do_not_specialize=SIZES)
def softmax_backward(
    rows, starts, indptr, count, weights, grad, out,
    HEADS: tl.constexpr, ACC: tl.constexpr,
    CHUNK: tl.constexpr, R: tl.constexpr, B: tl.constexpr, G: tl.constexpr,
):  # fmt: skip
    """Write weights * (grad - sum over the row of weights * grad)."""
    _, _, _, start, stop = span(rows, starts, indptr, count, R, CHUNK)
    head = tl.program_id(1) * G + tl.arange(0, G)
    longest = tl.max(stop - start, 0).to(tl.int32)
    sums = tl.zeros((R, B, G), ACC)
    for offset in range(0, longest, B):
        edge, here = next_edges(start, stop, offset, B)
        w = per_edge(weights, edge, here, head, head < HEADS, HEADS, ACC)
        sums += w * per_edge(grad, edge, here, head, head < HEADS, HEADS, ACC)
    mean = tl.sum(sums, 1)
    for offset in range(0, longest, B):
        edge, here = next_edges(start, stop, offset, B)
        w = per_edge(weights, edge, here, head, head < HEADS, HEADS, ACC)
        g = per_edge(grad, edge, here, head, head < HEADS, HEADS, ACC)
        put_per_edge(out, edge, here, head, head < HEADS, w * (g - mean[:, None, :]), HEADS)


@triton.jit
def _with_bias(sums, bias, column, exists, CHUNK: tl.constexpr, ACC: tl.constexpr):
    """Sums [R, F] of whole rows plus a bias, if there is one."""
    if (bias is not None) and CHUNK == 0:
        sums += tl.load(bias + column, mask=exists, other=0).to(ACC)[None, :]
    return sums


@triton.jit(do_not_specialize=SIZES)
def weighted(
    rows, starts, indptr, count, out, other_out,
    indices, perm, weights, value, other_weights, other_value, lengths, bias, scale: tl.float64,
    BY_NODE: tl.constexpr,
    HEADS: tl.constexpr, DIM: tl.constexpr, ACC: tl.constexpr,
    CHUNK: tl.constexpr, R: tl.constexpr, B: tl.constexpr, G: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Write scale * sum over the row of weights[e, h] * value[j, h], and an unscaled second one.

    With `lengths`, row pointers, the sum is divided by the number of edges of its row, or with
    BY_NODE each value by that of its own; absent weights are 1.
    """
    row, place, live, start, stop = span(rows, starts, indptr, count, R, CHUNK)
    head, head_live, column, exists = features(HEADS, DIM, G, C)
    sums = tl.zeros((R, G * C), ACC)
    if other_out is not None:
        other_sums = tl.zeros((R, G * C), ACC)
    longest = tl.max(stop - start, 0).to(tl.int32)
    for offset in range(0, longest, B):
        edge, here, node = entries(indices, perm, start, stop, offset, B)
        v = gather(value, node, here, column, exists, HEADS * DIM, ACC)
        if (lengths is not None) and BY_NODE:
            first = tl.load(lengths + node, mask=here, other=0)
            length = tl.load(lengths + node + 1, mask=here, other=1) - first
            v = v / length.to(ACC)[:, :, None]
        if weights is not None:
            w = per_edge(weights, edge, here, head, head_live, HEADS, ACC)
            v = spread(w, C) * v
        sums += tl.sum(v, 1)
        if other_out is not None:
            w = per_edge(other_weights, edge, here, head, head_live, HEADS, ACC)
            v = gather(other_value, node, here, column, exists, HEADS * DIM, ACC)
            other_sums += tl.sum(spread(w, C) * v, 1)
    if (lengths is not None) and not BY_NODE:
        first = tl.load(lengths + row, mask=live, other=0)
        length = tl.load(lengths + row + 1, mask=live, other=1) - first
        sums = sums / tl.maximum(length, 1).to(ACC)[:, None]
    sums = _with_bias(sums * cast(scale, ACC), bias, column, exists, CHUNK, ACC)
    put_own(out, place, live, column, exists, sums, HEADS * DIM)
    if other_out is not None:
        put_own(other_out, place, live, column, exists, other_sums, HEADS * DIM)


@triton.jit
def add_chunks(
    long, bounds, part, out, bias,
    HEADS: tl.constexpr, DIM: tl.constexpr, ACC: tl.constexpr,
    B: tl.constexpr, G: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Write the sum of a long row's chunks, B chunks a step, plus a bias if there is one."""
    place = tl.program_id(0) + tl.arange(0, 1)
    _, _, column, exists = features(HEADS, DIM, G, C)
    first, last = tl.load(bounds + place), tl.load(bounds + place + 1)
    sums = tl.zeros((1, G * C), ACC)
    for offset in range(0, tl.max(last - first, 0).to(tl.int32), B):
        chunk = first[:, None] + offset + tl.arange(0, B)[None, :]
        more = gather(part, chunk, chunk < last[:, None], column, exists, HEADS * DIM, ACC)
        sums += tl.sum(more, 1)
    sums = _with_bias(sums, bias, column, exists, 0, ACC)
    row = tl.load(long + place).to(tl.int64)
    put_own(out, row, row >= 0, column, exists, sums, HEADS * DIM)


@triton.jit(do_not_specialize=SIZES)
def by_bucket(
    bucket, values, out, edges,
    HEADS: tl.constexpr, BUCKETS: tl.constexpr, ACC: tl.constexpr,
    B: tl.constexpr, Z: tl.constexpr, G: tl.constexpr,
):  # fmt: skip
    """Write to out[program] [Z, H] the sums by bucket of the program's share of values [E, H]."""
    share = (edges + tl.num_programs(0) - 1).to(tl.int64) // tl.num_programs(0)
    start = tl.program_id(0) * share
    stop = tl.minimum(start + share, edges)
    row = tl.program_id(1) * Z + tl.arange(0, Z)
    head = tl.program_id(2) * G + tl.arange(0, G)
    sums = tl.zeros((B, Z, G), ACC)
    for first in range(start, stop, B):
        edge = first + tl.arange(0, B)
        live = edge < stop
        found = tl.load(bucket + edge, mask=live, other=0).to(tl.int32)
        mask = live[:, None] & (head < HEADS)[None, :]
        v = tl.load(values + edge[:, None] * HEADS + head[None, :], mask=mask, other=0).to(ACC)
        hit = found[:, None] == row[None, :]
        sums += tl.where(hit[:, :, None], v[:, None, :], 0.0)
    mask = (row < BUCKETS)[:, None] & (head < HEADS)[None, :]
    first_row = tl.program_id(0).to(tl.int64) * BUCKETS
    at = out + (first_row + row[:, None]) * HEADS + head[None, :]
    tl.store(at, tl.sum(sums, 0), mask=mask)
