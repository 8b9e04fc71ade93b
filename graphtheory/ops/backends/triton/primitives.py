"""What the kernels share, and those of the primitives: dot products, softmax of rows, and sums.

Shared are which edges a program has, how rows are read, and which weights drop. There are no
atomics: every sum has one program, or parts that are added in a fixed order.

Names: a tile is [R, B, F] for R rows, B edges of each and F = G C numbers of G heads with C
features each, powers of two; HEADS and DIM are the true sizes, and what lies beyond them is masked.
ACC is the type of sums. The numbers of a node are one axis, so that neighboring threads hold
neighboring numbers: beside an axis of heads Triton gives edges to neighboring threads instead, and
each sum over edges passes numbers between them, 3 times the time on an H100.
"""

from __future__ import annotations

import triton
import triton.language as tl

# Arguments that change from one graph to the next and must not compile a kernel again.
SIZES = ("count", "edges", "threshold")


@triton.jit
def span(rows, starts, indptr, count, R: tl.constexpr, CHUNK: tl.constexpr):
    """Of this program's rows: row, place of its or its chunk's result, if any, first edge, end."""
    item = tl.program_id(0).to(tl.int64) * R + tl.arange(0, R)
    live = item < count
    row = item
    if rows is not None:
        row = tl.load(rows + item, mask=live, other=0).to(tl.int64)
    stop = tl.load(indptr + row + 1, mask=live, other=0).to(tl.int64)
    if CHUNK > 0:
        start = tl.load(starts + item, mask=live, other=0)
        stop = tl.minimum(start + CHUNK, stop)
    else:
        start = tl.load(indptr + row, mask=live, other=0).to(tl.int64)
    place = item if CHUNK > 0 else row
    return row, place, live, start, tl.where(live, stop, start)


@triton.jit
def next_edges(start, stop, offset, B: tl.constexpr):
    """The B next edges of each row, [R, B], and whether they are some."""
    edge = start[:, None] + offset + tl.arange(0, B)[None, :]
    return edge, edge < stop[:, None]


@triton.jit
def entries(indices, perm, start, stop, offset, B: tl.constexpr):
    """The B next entries of each row: edge, by `perm` if given, if it is one, its other end."""
    edge, here = next_edges(start, stop, offset, B)
    node = tl.load(indices + edge, mask=here, other=0).to(tl.int64)
    if perm is not None:
        edge = tl.load(perm + edge, mask=here, other=0).to(tl.int64)
    return edge, here, node


@triton.jit
def features(HEADS: tl.constexpr, DIM: tl.constexpr, G: tl.constexpr, C: tl.constexpr):
    """Of this program's heads: head [G], whether it exists, column in a node's row [F], same."""
    head = tl.program_id(1) * G + tl.arange(0, G)
    number = tl.arange(0, G * C)
    if DIM == C:
        column = tl.program_id(1) * (G * C) + number
        exists = column < HEADS * DIM
    else:
        of, feature = tl.program_id(1) * G + number // C, number % C
        column = of * DIM + feature
        exists = (of < HEADS) & (feature < DIM)
    return head, head < HEADS, column, exists


@triton.jit
def by_head(x, G: tl.constexpr, C: tl.constexpr):
    """Sums over the features of each head: [R, B, F] to [R, B, G]."""
    return tl.sum(tl.reshape(x, (x.shape[0], x.shape[1], G, C)), 3)


@triton.jit
def spread(x, C: tl.constexpr):
    """The number of a head for each of its features: [R, B, G] to [R, B, F]."""
    R: tl.constexpr = x.shape[0]
    B: tl.constexpr = x.shape[1]
    G: tl.constexpr = x.shape[2]
    return tl.reshape(tl.broadcast_to(x[:, :, :, None], (R, B, G, C)), (R, B, G * C))


@triton.jit
def row_by_head(x, G: tl.constexpr, C: tl.constexpr):
    """Sums over the features of each head: [R, F] to [R, G]."""
    return tl.sum(tl.reshape(x, (x.shape[0], G, C)), 2)


@triton.jit
def spread_row(x, C: tl.constexpr):
    """The number of a head for each of its features: [R, G] to [R, F]."""
    R: tl.constexpr = x.shape[0]
    G: tl.constexpr = x.shape[1]
    return tl.reshape(tl.broadcast_to(x[:, :, None], (R, G, C)), (R, G * C))


@triton.jit
def own(base, row, live, column, exists, WIDTH: tl.constexpr, ACC: tl.constexpr):
    """One node's row for each of the R rows: [R, F]."""
    mask = live[:, None] & exists[None, :]
    return tl.load(base + row[:, None] * WIDTH + column[None, :], mask=mask, other=0).to(ACC)


@triton.jit
def gather(base, node, live, column, exists, WIDTH: tl.constexpr, ACC: tl.constexpr):
    """One node's row for each of the R x B edges: [R, B, F]."""
    mask = live[:, :, None] & exists[None, None, :]
    at = base + node[:, :, None] * WIDTH + column[None, None, :]
    return tl.load(at, mask=mask, other=0).to(ACC)


@triton.jit
def per_edge(base, edge, live, head, head_live, HEADS: tl.constexpr, ACC: tl.constexpr):
    """One number for each edge and head: [R, B, G]."""
    mask = live[:, :, None] & head_live[None, None, :]
    return tl.load(base + edge[:, :, None] * HEADS + head[None, None, :], mask=mask, other=0).to(
        ACC
    )


@triton.jit
def per_row(base, row, live, head, head_live, HEADS: tl.constexpr, ACC: tl.constexpr):
    """One number for each of the R rows and each head: [R, G]."""
    mask = live[:, None] & head_live[None, :]
    return tl.load(base + row[:, None] * HEADS + head[None, :], mask=mask, other=0).to(ACC)


@triton.jit
def put_own(base, place, live, column, exists, what, WIDTH: tl.constexpr):
    """Store features of rows, [R, F]."""
    mask = live[:, None] & exists[None, :]
    tl.store(base + place[:, None] * WIDTH + column[None, :], what, mask=mask)


@triton.jit
def put_per_row(base, place, live, head, head_live, what, HEADS: tl.constexpr):
    """Store numbers of rows, [R, G]."""
    mask = live[:, None] & head_live[None, :]
    tl.store(base + place[:, None] * HEADS + head[None, :], what, mask=mask)


@triton.jit
def put_per_edge(base, edge, live, head, head_live, what, HEADS: tl.constexpr):
    """Store numbers of edges, [R, B, G]."""
    mask = live[:, :, None] & head_live[None, None, :]
    tl.store(base + edge[:, :, None] * HEADS + head[None, None, :], what, mask=mask)


@triton.jit
def cast(x, ACC: tl.constexpr):
    """A float64 argument in the type of sums."""
    return tl.full((), x, ACC)


@triton.jit
def finite(top):
    """A maximum that may be subtracted: 0 in place of minus infinity."""
    return tl.where(top == float("-inf"), 0.0, top)


@triton.jit
def _mix(x):
    x = (x ^ (x >> 16)) * 0x7FEB352D
    x = (x ^ (x >> 15)) * 0x846CA68B
    return x ^ (x >> 16)


@triton.jit
def factor_of(counter, seed, threshold, kept, ACC: tl.constexpr):
    """Factor of the weights with these numbers: the rule of `ops.dropout.dropout_factor`."""
    low, high = counter.to(tl.uint32), (counter >> 32).to(tl.uint32)
    draw = _mix(_mix(low ^ tl.load(seed).to(tl.uint32)) ^ high)
    return tl.where(draw.to(tl.int64) >= threshold, cast(kept, ACC), 0.0)


@triton.jit
def dropout_factor(edge, head, seed, threshold, kept, HEADS: tl.constexpr, ACC: tl.constexpr):
    """Factor of each weight [R, B, G]."""
    counter = edge[:, :, None] * HEADS + head[None, None, :]
    return factor_of(counter, seed, threshold, kept, ACC)


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
