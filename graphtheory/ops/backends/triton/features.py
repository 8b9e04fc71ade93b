"""Features of edges on a GPU: what they add to logits and sums, and their gradient.

A program holds the features of its edges once for all heads of its tile. A row number counts as a
vector with a single 1, which is made in registers.
"""

from __future__ import annotations

import triton
import triton.language as tl

from graphtheory.ops.backends.triton.parts import (
    SIZES,
    features,
    next_edges,
    number,
    own,
    per_edge,
    put_own,
    put_per_edge,
    span,
)


@triton.jit
def _of_edges(given, row, edge, live, C: tl.constexpr, DIM: tl.constexpr, ACC: tl.constexpr):
    """The features of each edge, [R, B, C], or the vector that its row number stands for."""
    at = tl.arange(0, C)
    if row is not None:
        found = tl.load(row + edge, mask=live, other=0).to(tl.int32)
        hit = (found[:, :, None] == at[None, None, :]) & live[:, :, None]
        out = tl.where(hit, tl.full((), 1.0, ACC), tl.full((), 0.0, ACC))
    else:
        mask = live[:, :, None] & (at < DIM)[None, None, :]
        place = given + edge[:, :, None] * DIM + at[None, None, :]
        out = tl.load(place, mask=mask, other=0).to(ACC)
    return out


@triton.jit(do_not_specialize=SIZES)
def dots(
    rows, starts, indptr, count,
    query, given, of_edge, out,
    HEADS: tl.constexpr, DIM: tl.constexpr, ACC: tl.constexpr,
    CHUNK: tl.constexpr, R: tl.constexpr, B: tl.constexpr, G: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Add <query[i, h], features of e> to out[e, h]."""
    row, _, live, start, stop = span(rows, starts, indptr, count, R, CHUNK)
    head, head_live, column, exists = features(HEADS, DIM, G, C)
    q = own(query, row, live, column, exists, HEADS * DIM, ACC)
    longest = tl.max(stop - start, 0).to(tl.int32)
    for offset in range(0, longest, B):
        edge, here = next_edges(start, stop, offset, B)
        f = _of_edges(given, of_edge, edge, here, C, DIM, ACC)
        more = tl.sum(tl.reshape(q, (R, 1, G, C)) * f[:, :, None, :], 3)
        found = per_edge(out, edge, here, head, head_live, HEADS, ACC) + more
        put_per_edge(out, edge, here, head, head_live, found, HEADS)


@triton.jit(do_not_specialize=SIZES)
def sums(
    rows, starts, indptr, count, out,
    weights, given, row, scale: tl.float64,
    HEADS: tl.constexpr, DIM: tl.constexpr, ACC: tl.constexpr,
    CHUNK: tl.constexpr, R: tl.constexpr, B: tl.constexpr, G: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Write scale * sum over the row of weights[e, h] * features of e."""
    _, place, live, start, stop = span(rows, starts, indptr, count, R, CHUNK)
    head, head_live, column, exists = features(HEADS, DIM, G, C)
    total = tl.zeros((R, G * C), ACC)
    longest = tl.max(stop - start, 0).to(tl.int32)
    for offset in range(0, longest, B):
        edge, here = next_edges(start, stop, offset, B)
        w = per_edge(weights, edge, here, head, head_live, HEADS, ACC)
        f = _of_edges(given, row, edge, here, C, DIM, ACC)
        flow = w[:, :, :, None] * f[:, :, None, :]
        total += tl.sum(tl.reshape(flow, (R, B, G * C)), 1)
    put_own(out, place, live, column, exists, total * number(scale, ACC), HEADS * DIM)


@triton.jit(do_not_specialize=SIZES)
def slopes(
    rows, starts, indptr, count,
    logits, query, weights, grad, out, scale: tl.float64,
    OF: tl.constexpr,
    HEADS: tl.constexpr, DIM: tl.constexpr, ACC: tl.constexpr,
    CHUNK: tl.constexpr, R: tl.constexpr, B: tl.constexpr, G: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Write the gradient of features [E, D], one of OF heads after the other.

    out[e] = sum over h of scale * logits[e, h] * query[i, h] + weights[e, h] * grad[i, h].
    """
    row, _, live, start, stop = span(rows, starts, indptr, count, R, CHUNK)
    _, _, column, exists = features(HEADS, DIM, G, C)
    longest = tl.max(stop - start, 0).to(tl.int32)
    for offset in range(0, longest, B):
        edge, here = next_edges(start, stop, offset, B)
        total = tl.zeros((R, B, C), ACC)
        for h in range(OF):
            place = edge * OF + h
            w = tl.load(weights + place, mask=here, other=0).to(ACC)
            g = own(grad + h * DIM, row, live, column, exists, OF * DIM, ACC)
            total += w[:, :, None] * g[:, None, :]
            if query is not None:
                s = tl.load(logits + place, mask=here, other=0).to(ACC) * number(scale, ACC)
                q = own(query + h * DIM, row, live, column, exists, OF * DIM, ACC)
                total += s[:, :, None] * q[:, None, :]
        mask = here[:, :, None] & exists[None, None, :]
        tl.store(out + edge[:, :, None] * DIM + column[None, None, :], total, mask=mask)
