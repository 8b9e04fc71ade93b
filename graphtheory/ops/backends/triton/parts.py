"""What the kernels share: which edges a program has, how rows are read, which weights drop.

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
    """Store [R, F]."""
    mask = live[:, None] & exists[None, :]
    tl.store(base + place[:, None] * WIDTH + column[None, :], what, mask=mask)


@triton.jit
def put_per_row(base, place, live, head, head_live, what, HEADS: tl.constexpr):
    """Store [R, G]."""
    mask = live[:, None] & head_live[None, :]
    tl.store(base + place[:, None] * HEADS + head[None, :], what, mask=mask)


@triton.jit
def put_per_edge(base, edge, live, head, head_live, what, HEADS: tl.constexpr):
    """Store [R, B, G]."""
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
