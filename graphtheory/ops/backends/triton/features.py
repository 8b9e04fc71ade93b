"""Features of edges on a GPU: what they add to logits and sums, and their gradient.

A program holds the features of its edges once for all heads of its tile. A row number counts as a
vector with a single 1, which is made in registers.
"""

from __future__ import annotations

import triton
import triton.language as tl

from graphtheory.ops.backends.triton.parts import (
    SIZES,
    ends,
    features,
    gather,
    number,
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
    targets, edges, query, given, row, out,
    HEADS: tl.constexpr, DIM: tl.constexpr, ACC: tl.constexpr,
    B: tl.constexpr, G: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Add <query[i, h], features of e> to out[e, h] of B edges."""
    edge, live, i, _ = ends(targets, targets, edges, B)
    head, head_live, column, exists = features(HEADS, DIM, G, C)
    q = gather(query, i, live, column, exists, HEADS * DIM, ACC)
    f = _of_edges(given, row, edge, live, C, DIM, ACC)
    more = tl.sum(tl.reshape(q, (1, B, G, C)) * f[:, :, None, :], 3)
    found = per_edge(out, edge, live, head, head_live, HEADS, ACC) + more
    put_per_edge(out, edge, live, head, head_live, found, HEADS)


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
        edge = start[:, None] + offset + tl.arange(0, B)[None, :]
        here = edge < stop[:, None]
        w = per_edge(weights, edge, here, head, head_live, HEADS, ACC)
        f = _of_edges(given, row, edge, here, C, DIM, ACC)
        flow = w[:, :, :, None] * f[:, :, None, :]
        total += tl.sum(tl.reshape(flow, (R, B, G * C)), 1)
    put_own(out, place, live, column, exists, total * number(scale, ACC), HEADS * DIM)


@triton.jit(do_not_specialize=SIZES)
def slopes(
    targets, edges, logits, query, weights, grad, out, scale: tl.float64,
    HEADS: tl.constexpr, DIM: tl.constexpr, ACC: tl.constexpr,
    B: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Write the gradient of the features of B edges, one head after the other.

    out[e] = sum over h of scale * logits[e, h] * query[i, h] + weights[e, h] * grad[i, h].
    """
    edge = tl.program_id(0).to(tl.int64) * B + tl.arange(0, B)
    live, at = edge < edges, tl.arange(0, C)
    mask = live[:, None] & (at < DIM)[None, :]
    i = tl.load(targets + edge, mask=live, other=0).to(tl.int64)
    total = tl.zeros((B, C), ACC)
    for h in range(HEADS):
        place = (i[:, None] * HEADS + h) * DIM + at[None, :]
        w = tl.load(weights + edge * HEADS + h, mask=live, other=0).to(ACC)
        total += w[:, None] * tl.load(grad + place, mask=mask, other=0).to(ACC)
        if query is not None:
            s = tl.load(logits + edge * HEADS + h, mask=live, other=0).to(ACC)
            q = tl.load(query + place, mask=mask, other=0).to(ACC)
            total += (s * number(scale, ACC))[:, None] * q
    tl.store(out + edge[:, None] * DIM + at[None, :], total, mask=mask)
