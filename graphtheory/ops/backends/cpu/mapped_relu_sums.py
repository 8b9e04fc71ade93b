"""Sums of ReLU(source + term of the edge) and their gradients: loops over whole rows.

Terms are features of edges times a matrix, see `terms`. Which numbers the ReLU lets through is
kept, a bit each, so that the backward pass makes no term again. The conventions are those of
`attention.rows`; nodes are [N, H * D].
"""

from __future__ import annotations

import torch
from torch import Tensor

from graphtheory.ops.backends.cpu import run as calls
from graphtheory.ops.backends.cpu.attention.rows import AHEAD, FAR, first_row
from graphtheory.ops.backends.cpu.decorators import part
from graphtheory.ops.backends.cpu.launch import next_chunk, take_chunk
from graphtheory.ops.backends.cpu.memory import empty
from graphtheory.ops.backends.cpu.terms import (
    TILE,
    flat_of,
    give_back,
    of_matrix,
    room_for,
    room_to_turn,
    tables_for,
    take_features,
    turned_of,
    write_terms,
)
from graphtheory.ops.backends.cpu.vector.lanes import clear, warm
from graphtheory.ops.backends.cpu.vector.relus import add_relu, add_where, keep_where, words_of
from graphtheory.ops.backends.precision import widened


@part
def sum_rows(
    first, last, indptr, indices, order, value, features, given, terms, copy, bits, out
):  # fmt: skip
    """The part of `sum_loop` of rows first..last-1."""
    (width, words), step, far = (out.shape[1], bits.shape[1]), terms.shape[1], value.nbytes > FAR
    clear(out, first * width, (last - first) * width)
    i, low, end = first, indptr[first], indptr[last]
    while low < end:
        high = min(low + TILE, end)
        write_terms(low, high, features, order, given, copy, width, terms)
        for e in range(low, high):
            while indptr[i + 1] <= e:
                i += 1
            if far:
                warm(indices, e + AHEAD, e + AHEAD + 1, value, width)
            j, at = indices[e] * width, (e - low) * step
            add_relu(out, i * width, bits, e * words, value, j, terms, at, width)
        low = high


def sum_loop(turns, chunks, indptr, indices, order, value, features, flat, bits, out):
    """Write out[i] = the sum over the row of ReLU(value[j] + term of e), and signs of the sums."""
    given, terms, copy = room_for(flat, out)
    chunk = take_chunk(turns)
    while chunk < chunks:
        first, last = first_row(indptr, chunk, chunks), first_row(indptr, chunk + 1, chunks)
        sum_rows(
            first, last, indptr, indices, order, value, features, given, terms, copy, bits, out
        )
        chunk = next_chunk(turns)


def rows_loop(
    turns, chunks, indptr, order, grad, features, flat, turned, bits, of_features, of_flat
):  # fmt: skip
    """Pass over targets: the gradient of the matrix, a table a chunk, and of features if asked."""
    given, flows, _ = room_for(flat, grad)
    (across, found), step = room_to_turn(turned, grad), flows.shape[1]
    (dim, width), words, asked = flat.shape, bits.shape[1], turned.shape[1] > 0
    chunk = take_chunk(turns)
    while chunk < chunks:
        first, last = first_row(indptr, chunk, chunks), first_row(indptr, chunk + 1, chunks)
        i, low, end = first, indptr[first], indptr[last]
        while low < end:
            high = min(low + TILE, end)
            take_features(low, high, features, order, given)
            for e in range(low, high):
                while indptr[i + 1] <= e:
                    i += 1
                keep_where(flows, (e - low) * step, bits, e * words, grad, i * width, width)
            give_back(
                low, high, flows, order, given, dim, width, across, asked, found, of_features,
                of_flat[chunk],
            )  # fmt: skip
            low = high
        chunk = next_chunk(turns)


@part
def sum_columns(first, last, t_indptr, targets, perm, grad, bits, out):
    """The part of `columns_loop` of rows first..last-1."""
    (width, words), far = (out.shape[1], bits.shape[1]), grad.nbytes > FAR
    for j in range(first, last):
        clear(out, j * width, width)
        for t in range(t_indptr[j], t_indptr[j + 1]):
            if far:
                warm(targets, t + AHEAD, t + AHEAD + 1, grad, width)
                warm(perm, t + AHEAD, t + AHEAD + 1, bits, words)
            add_where(out, j * width, bits, perm[t] * words, grad, targets[t] * width, width)


def columns_loop(turns, chunks, t_indptr, targets, perm, grad, bits, out):
    """Pass over sources: the sums of the gradients that the ReLU lets through."""
    chunk = take_chunk(turns)
    while chunk < chunks:
        first, last = first_row(t_indptr, chunk, chunks), first_row(t_indptr, chunk + 1, chunks)
        sum_columns(first, last, t_indptr, targets, perm, grad, bits, out)
        chunk = next_chunk(turns)


def mapped_relu_sum(
    indptr: Tensor, indices: Tensor, order: Tensor, value: Tensor, features: Tensor, matrix: Tensor
) -> tuple[Tensor, Tensor]:
    """Sums [N, H, D] in the dtype of `value`; signs of the terms' sums, int16 [E, words]."""
    dtype = value.dtype
    value, features, matrix = widened(value, features, matrix)
    out, flat = empty((indptr.size(0) - 1, *value.shape[1:]), value), flat_of(matrix)
    edges, width = len(indices), flat.size(1)
    bits = torch.empty(edges, words_of(width), dtype=torch.int16)
    given = (indptr, indices, order, value.flatten(1), features, flat, bits, out.flatten(1))
    work = edges * (1 + len(flat)) * width
    calls.run(sum_loop, work, calls.chunks_of(indptr, indices), *given)
    return out.to(dtype), bits


def mapped_relu_sum_backward(
    indptr: Tensor, indices: Tensor, t_indptr: Tensor, targets: Tensor, perm: Tensor,
    order: Tensor, grad: Tensor, features: Tensor, matrix: Tensor, bits: Tensor, of_features: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of value, features ([0] unless asked for) and matrix."""
    dtype = grad.dtype
    grad, features, matrix = widened(grad, features, matrix)
    of_value = empty((t_indptr.size(0) - 1, *grad.shape[1:]), grad)
    of_edges = empty(features.shape, features) if of_features else calls.NO_ROWS[grad.dtype]
    flat, rows = flat_of(matrix), grad.flatten(1)
    each, turned = len(indices) * flat.size(1), turned_of(flat, of_features)
    chunks, tables = tables_for(indptr, indices, matrix)
    work = each * (1 + (1 + of_features) * len(flat))
    given = (indptr, order, rows, features, flat, turned, bits, of_edges, tables)
    calls.run(rows_loop, work, chunks, *given)
    chunks, back = calls.chunks_of(t_indptr, indices), (t_indptr, targets, perm, rows, bits)
    calls.run(columns_loop, each, chunks, *back, of_value.flatten(1))
    of_edges = of_edges if of_features else features.new_empty(0)
    return tuple(t.to(dtype) for t in (of_value, of_edges, of_matrix(tables, matrix)))  # type: ignore[return-value]
