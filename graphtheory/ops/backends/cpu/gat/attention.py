"""GAT's attention: scores are leaky sums of a source's, a target's and an edge's value per head.

The conventions are those of `attention.rows`; node arrays are [N, H] here. Where there
is no `dst_score` or `edge`, it is a row of zeros. An edge whose own value is -inf is excluded.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from graphtheory.ops.backends.cpu import launch, primitives
from graphtheory.ops.backends.cpu.attention.calls import run_whole
from graphtheory.ops.backends.cpu.attention.rows import (
    add_entries,
    dot_entries,
    softmax_backward_rows,
    softmax_rows,
    sum_rows,
)
from graphtheory.ops.backends.cpu.compiling import part, shared_part
from graphtheory.ops.backends.cpu.launch import next_chunk, rows_of, take_chunk, wait_for
from graphtheory.ops.backends.cpu.memory import empty, rows_stay_whole
from graphtheory.ops.backends.cpu.vector.lanes import add, clear, leaky_grad, leaky_sum, scale_into
from graphtheory.ops.call import widened


@part
def apart(terms):
    """How far apart rows are. One row counts for all: of zeros, where there are no terms."""
    return terms.shape[1] if terms.shape[0] > 1 else 0


@shared_part
def _score_rows(first, last, indptr, indices, src_score, dst_score, edge, slope, out):
    heads, of_row, of_edge = src_score.shape[1], apart(dst_score), apart(edge)
    for i in range(first, last):
        at_i = i * of_row
        for e in range(indptr[i], indptr[i + 1]):
            at_j, at = indices[e] * heads, e * heads
            leaky_sum(out, at, slope, src_score, at_j, dst_score, at_i, edge, e * of_edge, heads)


@shared_part
def _grad_rows(
    first, last, indptr, indices, src_score, dst_score, edge, slope, grad, of_dst_score, total
):
    """`rows_loop` of rows first..last-1; `total` has a value per head."""
    heads, one = src_score.shape[1], grad.dtype.type(1)
    of_row, of_edge = apart(dst_score), apart(edge)
    for i in range(first, last):
        at_i = i * of_row
        clear(total, 0, heads)
        for e in range(indptr[i], indptr[i + 1]):
            at_j, at = indices[e] * heads, e * heads
            leaky_grad(grad, at, slope, src_score, at_j, dst_score, at_i, edge, e * of_edge, heads)
            add(total, 0, one, grad, at, heads)
        if of_dst_score.shape[0] > 0:
            scale_into(of_dst_score, i * heads, one, total, 0, heads)


def scores_loop(counters, chunks, indptr, indices, src_score, dst_score, edge, slope, out):
    """Write out[e, h] = leaky(src_score[j, h] + dst_score[i, h] + edge[e, h])."""
    chunk = take_chunk(counters)
    while chunk < chunks:
        first, last = rows_of(indptr, chunk, chunks)
        _score_rows(first, last, indptr, indices, src_score, dst_score, edge, slope, out)
        chunk = next_chunk(counters)


def rows_loop(
    counters, chunks, indptr, indices, src_score, dst_score, edge, slope, grad, of_dst_score
):  # fmt: skip
    """Replace the gradient of the scores by that of the sums, and add it up by target."""
    total = np.empty(grad.shape[1], grad.dtype)
    chunk = take_chunk(counters)
    while chunk < chunks:
        first, last = rows_of(indptr, chunk, chunks)
        _grad_rows(
            first, last, indptr, indices, src_score, dst_score, edge, slope, grad, of_dst_score,
            total,
        )  # fmt: skip
        chunk = next_chunk(counters)


@shared_part
def _sum_columns(first, last, t_indptr, perm, grad, out):
    heads, one = grad.shape[1], grad.dtype.type(1)
    for j in range(first, last):
        clear(out, j * heads, heads)
        for t in range(t_indptr[j], t_indptr[j + 1]):
            add(out, j * heads, one, grad, perm[t] * heads, heads)


def columns_loop(counters, chunks, t_indptr, perm, grad, out):
    """Add up rows of a gradient, by edge, for each source."""
    chunk = take_chunk(counters)
    while chunk < chunks:
        first, last = rows_of(t_indptr, chunk, chunks)
        _sum_columns(first, last, t_indptr, perm, grad, out)
        chunk = next_chunk(counters)


def forward(
    counters, chunks, indptr, indices, src_score, dst_score, edge, slope, value, nothing,
    no_bucket, p, seed, weights, out,
):  # fmt: skip
    """Whole rows: write the weights of the edges and the sums of the values."""
    one, each = weights.dtype.type(1), np.empty(weights.shape[1], weights.dtype)
    chunk = take_chunk(counters)
    while chunk < chunks:
        first, last = rows_of(indptr, chunk, chunks)
        _score_rows(first, last, indptr, indices, src_score, dst_score, edge, slope, weights)
        softmax_rows(first, last, indptr, weights, nothing, no_bucket, nothing, one, weights, each)
        sum_rows(first, last, indptr, indices, weights, one, p, seed, value, out)
        chunk = next_chunk(counters)


@shared_part
def _sum_sources(
    first, last, t_indptr, targets, perm, value, grad, weights, p, seed, edge_grad, of_value
):  # fmt: skip
    """The first pass of `backward` over rows first..last-1."""
    width, one = value.shape[1] * value.shape[2], weights.dtype.type(1)
    for j in range(first, last):
        low, high = t_indptr[j], t_indptr[j + 1]
        dot_entries(j, low, high, targets, perm, value, grad, edge_grad, 0)
        clear(of_value, j * width, width)
        add_entries(of_value, j, low, high, targets, perm, weights, one, p, seed, grad, 0)


def backward(
    counters, chunks, indptr, indices, t_indptr, targets, perm, src_score, dst_score, edge, slope,
    value, grad, weights, nothing, no_bucket, p, seed, edge_grad, of_value, of_src_score,
    of_dst_score,
):  # fmt: skip
    """Whole rows: passes over sources, targets, sources, each needs what the one before wrote."""
    each = np.empty(edge_grad.shape[1], edge_grad.dtype)
    chunk = take_chunk(counters)
    while chunk < chunks:
        first, last = rows_of(t_indptr, chunk, chunks)
        _sum_sources(
            first, last, t_indptr, targets, perm, value, grad, weights, p, seed, edge_grad, of_value
        )
        chunk = next_chunk(counters)
    wait_for(counters, chunks)
    while chunk < 2 * chunks:
        first, last = rows_of(indptr, chunk - chunks, chunks)
        softmax_backward_rows(
            first, last, indptr, weights, edge_grad, no_bucket, p, seed, edge_grad, nothing, chunk,
            each,
        )  # fmt: skip
        _grad_rows(
            first, last, indptr, indices, src_score, dst_score, edge, slope, edge_grad,
            of_dst_score, each,
        )  # fmt: skip
        chunk = next_chunk(counters)
    wait_for(counters, 2 * chunks)
    while chunk < 3 * chunks:
        first, last = rows_of(t_indptr, chunk - 2 * chunks, chunks)
        _sum_columns(first, last, t_indptr, perm, edge_grad, of_src_score)
        chunk = next_chunk(counters)


def additive_attention(
    indptr: Tensor, indices: Tensor, value: Tensor, src_score: Tensor, dst_score: Tensor | None,
    edge: Tensor | None, slope: float, dropout: float, seed: Tensor | None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Output as `value`, and the weights [E, H] before dropout in the type of the sums."""
    dtype, drawn = value.dtype, 0 if seed is None else int(seed)
    value, src_score = widened(value, src_score)
    weights = empty((indices.size(0), src_score.size(1)), src_score)
    heads = src_score.size(1)
    scores = (src_score, *(launch.wide(t, value, heads) for t in (dst_score, edge)))
    given = (indptr, indices, *scores, launch.cast(slope, value))
    if rows_stay_whole(indices, value):
        out = empty((indptr.size(0) - 1, *value.shape[1:]), value)
        absent = (launch.NO_ROWS[value.dtype], launch.NO_BUCKETS)
        run_whole(forward, weights, value, *given, value, *absent, dropout, drawn, weights, out)
        return out.to(dtype), weights
    chunks = launch.chunks_of(indptr, weights)
    launch.run(scores_loop, 4 * weights.numel(), chunks, *given, weights)
    primitives.softmax_(indptr, weights)
    out = primitives.sums(indptr, indices, weights, value, dropout=dropout, seed=drawn)
    return out.to(dtype), weights


def additive_attention_backward(
    indptr: Tensor, indices: Tensor, t_indptr: Tensor, targets: Tensor, perm: Tensor,
    grad: Tensor, value: Tensor, src_score: Tensor, dst_score: Tensor | None, edge: Tensor | None,
    weights: Tensor, slope: float, dropout: float, seed: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of value, src_score, dst_score (no rows without it) and the sums [E, H]."""
    dtypes, drawn = (value.dtype, src_score.dtype), 0 if seed is None else int(seed)
    grad, value, src_score, weights = widened(grad, value, src_score, weights)
    heads = src_score.size(1)
    scores = (src_score, *(launch.wide(t, value, heads) for t in (dst_score, edge)))
    given = (*scores, launch.cast(slope, value))
    of_src, rows = torch.empty_like(src_score), 0 if dst_score is None else dst_score.size(0)
    of_dst = src_score.new_empty(rows, src_score.size(1))
    if rows_stay_whole(indices, value):
        edge_grad, of_value = empty(weights.shape, weights), empty(value.shape, value)
        run_whole(
            backward, weights, value, indptr, indices, t_indptr, targets, perm, *given, value,
            grad, weights, launch.NO_ROWS[value.dtype], launch.NO_BUCKETS, dropout, drawn,
            edge_grad, of_value, of_src, of_dst, passes=3,
        )  # fmt: skip
    else:
        work, chunks = 8 * weights.numel(), launch.chunks_of(indptr, weights)
        of_value = primitives.sums(t_indptr, targets, weights, grad, perm, 1.0, dropout, drawn)
        edge_grad = primitives.dot(indptr, indices, grad, value)  # so far that of the weights
        primitives.softmax_backward_(indptr, weights, edge_grad, None, 0, dropout, drawn)
        launch.run(rows_loop, work, chunks, indptr, indices, *given, edge_grad, of_dst)
        chunks = launch.chunks_of(t_indptr, weights)
        launch.run(columns_loop, work, chunks, t_indptr, perm, edge_grad, of_src)
    return of_value.to(dtypes[0]), of_src.to(dtypes[1]), of_dst.to(dtypes[1]), edge_grad
