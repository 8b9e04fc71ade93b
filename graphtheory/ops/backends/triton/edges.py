"""Kernels whose result has an edge axis: dot products, and the softmax of rows both ways."""

from __future__ import annotations

import triton
import triton.language as tl

from graphtheory.ops.backends.triton.parts import (
    SIZES,
    by_head,
    entries,
    features,
    finite,
    gather,
    next_edges,
    own,
    per_edge,
    put_per_edge,
    span,
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
