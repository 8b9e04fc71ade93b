"""Loops of scores that are leaky sums of a source's, a target's and an edge's number.

The conventions are those of `attention.rows`; node arrays are [N, H] here. `received` and `edge`
may have no rows. An edge whose own value is -inf is excluded.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor

from graphtheory.ops.backends.cpu import primitives
from graphtheory.ops.backends.cpu import run as calls
from graphtheory.ops.backends.cpu.attention.calls import run_whole
from graphtheory.ops.backends.cpu.attention.rows import (
    add_entries,
    dot_entries,
    first_row,
    softmax_backward_rows,
    softmax_rows,
)
from graphtheory.ops.backends.cpu.attention.whole import sum_rows
from graphtheory.ops.backends.cpu.decorators import part
from graphtheory.ops.backends.cpu.launch import next_chunk, take_chunk, wait_for
from graphtheory.ops.backends.cpu.memory import empty
from graphtheory.ops.backends.cpu.regimes import rows_stay_whole
from graphtheory.ops.backends.cpu.vector.lanes import (
    add,
    clear,
    leaky_flow,
    leaky_sum,
    put,
)
from graphtheory.ops.backends.precision import widened


@njit(inline="always")
def of_none(array, like):
    """The array and how far apart its rows are; without rows one of zeros for all, 0 apart."""
    heads = like.shape[1]
    if array.shape[0] > 0:
        return array, heads
    return np.zeros((1, heads), like.dtype), 0


@part
def score_rows(first, last, indptr, indices, sent, received, of_row, edge, of_edge, slope, out):
    """The part of `scores_loop` of rows first..last-1."""
    heads = sent.shape[1]
    for i in range(first, last):
        for e in range(indptr[i], indptr[i + 1]):
            j = indices[e] * heads
            leaky_sum(
                out, e * heads, slope, sent, j, received, i * of_row, edge, e * of_edge, heads
            )


@part
def flow_rows(
    first, last, indptr, indices, sent, received, of_row, edge, of_edge, slope, grad, of_received,
    total,
):  # fmt: skip
    """The part of `rows_loop` of rows first..last-1; `total` is room for a number of each head."""
    heads, one = sent.shape[1], grad.dtype.type(1)
    for i in range(first, last):
        clear(total, 0, heads)
        for e in range(indptr[i], indptr[i + 1]):
            j = indices[e] * heads
            leaky_flow(
                grad,
                e * heads,
                slope,
                sent,
                j,
                received,
                i * of_row,
                edge,
                e * of_edge,
                heads,
            )
            add(total, 0, one, grad, e * heads, heads)
        if of_row > 0:
            put(of_received, i * heads, one, total, 0, heads)


def scores_loop(turns, chunks, indptr, indices, sent, received, edge, slope, out):
    """Write out[e, h] = leaky(sent[j, h] + received[i, h] + edge[e, h])."""
    (received, of_row), (edge, of_edge) = of_none(received, out), of_none(edge, out)
    chunk = take_chunk(turns)
    while chunk < chunks:
        first, last = first_row(indptr, chunk, chunks), first_row(indptr, chunk + 1, chunks)
        score_rows(first, last, indptr, indices, sent, received, of_row, edge, of_edge, slope, out)
        chunk = next_chunk(turns)


def rows_loop(
    turns, chunks, indptr, indices, sent, received, edge, slope, grad, of_received
):  # fmt: skip
    """Replace the gradient of the scores by that of the sums, and add it up by target."""
    (received, of_row), (edge, of_edge) = of_none(received, grad), of_none(edge, grad)
    total = np.empty(grad.shape[1], grad.dtype)
    chunk = take_chunk(turns)
    while chunk < chunks:
        first, last = first_row(indptr, chunk, chunks), first_row(indptr, chunk + 1, chunks)
        flow_rows(
            first, last, indptr, indices, sent, received, of_row, edge, of_edge, slope, grad,
            of_received, total,
        )  # fmt: skip
        chunk = next_chunk(turns)


@part
def sum_columns(first, last, t_indptr, perm, grad, of_sent):
    """The part of `columns_loop` of rows first..last-1."""
    heads, one = grad.shape[1], grad.dtype.type(1)
    for j in range(first, last):
        clear(of_sent, j * heads, heads)
        for t in range(t_indptr[j], t_indptr[j + 1]):
            add(of_sent, j * heads, one, grad, perm[t] * heads, heads)


def columns_loop(turns, chunks, t_indptr, perm, grad, of_sent):
    """Add up the gradient of the sums by source."""
    chunk = take_chunk(turns)
    while chunk < chunks:
        first, last = first_row(t_indptr, chunk, chunks), first_row(t_indptr, chunk + 1, chunks)
        sum_columns(first, last, t_indptr, perm, grad, of_sent)
        chunk = next_chunk(turns)


def forward(
    turns, chunks, indptr, indices, sent, received, edge, slope, value, nothing, no_bucket, p, seed,
    weights, out,
):  # fmt: skip
    """Whole rows: write the weights of the edges and the sums of the values."""
    one, each = weights.dtype.type(1), np.empty(weights.shape[1], weights.dtype)
    (received, of_row), (edge, of_edge) = of_none(received, weights), of_none(edge, weights)
    chunk = take_chunk(turns)
    while chunk < chunks:
        first, last = first_row(indptr, chunk, chunks), first_row(indptr, chunk + 1, chunks)
        score_rows(
            first,
            last,
            indptr,
            indices,
            sent,
            received,
            of_row,
            edge,
            of_edge,
            slope,
            weights,
        )
        softmax_rows(first, last, indptr, weights, nothing, no_bucket, nothing, one, weights, each)
        sum_rows(first, last, indptr, indices, weights, one, p, seed, value, out)
        chunk = next_chunk(turns)


@part
def sum_sources(
    first, last, t_indptr, targets, perm, value, grad, weights, p, seed, flow, of_value
):  # fmt: skip
    """The first pass of `backward` over rows first..last-1."""
    width, one = value.shape[1] * value.shape[2], weights.dtype.type(1)
    for j in range(first, last):
        low, high = t_indptr[j], t_indptr[j + 1]
        dot_entries(j, low, high, targets, perm, value, grad, flow)
        clear(of_value, j * width, width)
        add_entries(of_value, j, low, high, targets, perm, weights, one, p, seed, grad)


def backward(
    turns, chunks, indptr, indices, t_indptr, targets, perm, sent, received, edge, slope, value,
    grad, weights, nothing, no_bucket, p, seed, flow, of_value, of_sent, of_received,
):  # fmt: skip
    """Whole rows: three passes, each of which needs what the one before wrote.

    The gradients of the kept weights go to `flow`, with those of the values; then that of the sums
    takes their place, added up by target; then by source.
    """
    (received, of_row), (edge, of_edge) = of_none(received, flow), of_none(edge, flow)
    each = np.empty(flow.shape[1], flow.dtype)
    chunk = take_chunk(turns)
    while chunk < chunks:
        first, last = first_row(t_indptr, chunk, chunks), first_row(t_indptr, chunk + 1, chunks)
        sum_sources(
            first, last, t_indptr, targets, perm, value, grad, weights, p, seed, flow, of_value
        )
        chunk = next_chunk(turns)
    wait_for(turns, chunks)
    while chunk < 2 * chunks:
        here = chunk - chunks
        first, last = first_row(indptr, here, chunks), first_row(indptr, here + 1, chunks)
        softmax_backward_rows(
            first, last, indptr, weights, flow, no_bucket, p, seed, flow, nothing, here, each
        )
        flow_rows(
            first, last, indptr, indices, sent, received, of_row, edge, of_edge, slope, flow,
            of_received, each,
        )  # fmt: skip
        chunk = next_chunk(turns)
    wait_for(turns, 2 * chunks)
    while chunk < 3 * chunks:
        here = chunk - 2 * chunks
        first, last = first_row(t_indptr, here, chunks), first_row(t_indptr, here + 1, chunks)
        sum_columns(first, last, t_indptr, perm, flow, of_sent)
        chunk = next_chunk(turns)


def _options(
    sent: Tensor, received: Tensor | None, edge: Tensor | None, slope: float
) -> tuple[Any, ...]:
    """Absent parts as empty arrays, so that one machine code serves all."""
    none, parts = calls.NO_ROWS[sent.dtype], (received, edge)
    given = (none if t is None else t.detach().to(sent.dtype).contiguous() for t in parts)
    return sent, *given, calls.number(slope, sent)


def attention(
    indptr: Tensor, indices: Tensor, value: Tensor, sent: Tensor, received: Tensor | None,
    edge: Tensor | None, slope: float, dropout: float, seed: Tensor | None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Output as `value`, and the weights [E, H] before dropout in the type of the sums."""
    dtype, drawn = value.dtype, 0 if seed is None else int(seed)
    value, sent = widened(value, sent)
    weights = empty((indices.size(0), sent.size(1)), sent)
    options = _options(sent, received, edge, slope)
    if rows_stay_whole(indices, value):
        out = empty((indptr.size(0) - 1, *value.shape[1:]), value)
        absent = (calls.NO_ROWS[value.dtype], calls.NO_BUCKETS)
        arrays = (indptr, indices, *options, value, *absent, dropout, drawn, weights, out)
        run_whole(forward, weights, value, *arrays)
        return out.to(dtype), weights
    chunks = calls.chunks_of(indptr, weights)
    calls.run(scores_loop, 4 * weights.numel(), chunks, indptr, indices, *options, weights)
    primitives.softmax_(indptr, weights)
    out = primitives.sums(indptr, indices, weights, value, dropout=dropout, seed=drawn)
    return out.to(dtype), weights


def attention_backward(
    indptr: Tensor, indices: Tensor, t_indptr: Tensor, targets: Tensor, perm: Tensor,
    grad: Tensor, value: Tensor, sent: Tensor, received: Tensor | None, edge: Tensor | None,
    weights: Tensor, slope: float, dropout: float, seed: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of value, sent, received (no rows without it) and the sums [E, H]."""
    dtypes, drawn = (value.dtype, sent.dtype), 0 if seed is None else int(seed)
    grad, value, sent, weights = widened(grad, value, sent, weights)
    options = _options(sent, received, edge, slope)
    of_sent, rows = torch.empty_like(sent), 0 if received is None else received.size(0)
    of_received = sent.new_empty(rows, sent.size(1))
    if rows_stay_whole(indices, value):
        flow, of_value = empty(weights.shape, weights), empty(value.shape, value)
        run_whole(
            backward, weights, value, indptr, indices, t_indptr, targets, perm, *options, value,
            grad, weights, calls.NO_ROWS[value.dtype], calls.NO_BUCKETS, dropout, drawn, flow,
            of_value, of_sent, of_received, passes=3,
        )  # fmt: skip
    else:
        work, chunks = 8 * weights.numel(), calls.chunks_of(indptr, weights)
        of_value = primitives.sums(t_indptr, targets, weights, grad, perm, 1.0, dropout, drawn)
        flow = primitives.dot(indptr, indices, grad, value)  # so far the gradient of the weights
        primitives.softmax_backward_(indptr, weights, flow, None, 0, dropout, drawn)
        calls.run(rows_loop, work, chunks, indptr, indices, *options, flow, of_received)
        chunks = calls.chunks_of(t_indptr, weights)
        calls.run(columns_loop, work, chunks, t_indptr, perm, flow, of_sent)
    return of_value.to(dtypes[0]), of_sent.to(dtypes[1]), of_received.to(dtypes[1]), flow
