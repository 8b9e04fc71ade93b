"""Sums of ReLU(source + edge) and their gradients, GINE's: loops over whole rows.

The conventions are those of `attention.rows`; nodes are [N, H * D]. Features of edges are like
nodes, or what `terms` makes of them by a matrix. Edge t of a row has row order[t] of them, or row t
where `order` is empty. Which numbers the ReLU lets through is asked again by the same sum; with a
matrix it is kept, a bit each, so that the backward pass makes no term again.
"""

from __future__ import annotations

import torch
from torch import Tensor

from graphtheory.ops.backends.cpu import launch
from graphtheory.ops.backends.cpu.attention.rows import AHEAD, FAR, edge_of
from graphtheory.ops.backends.cpu.compiling import shared_part
from graphtheory.ops.backends.cpu.gat.attention import columns_loop as sum_by_source
from graphtheory.ops.backends.cpu.launch import next_chunk, rows_of, take_chunk
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
from graphtheory.ops.backends.cpu.vector.lanes import add_relu, clear, prefetch_rows, relu_grad
from graphtheory.ops.backends.cpu.vector.relus import (
    add_relu_signs,
    add_where,
    keep_where,
    words_of,
)
from graphtheory.ops.call import widened


@shared_part
def _sum_rows(first, last, indptr, indices, order, value, features, out):
    width, far = value.shape[1], value.nbytes > FAR
    for i in range(first, last):
        clear(out, i * width, width)
        for t in range(indptr[i], indptr[i + 1]):
            if far:
                prefetch_rows(indices, t + AHEAD, t + AHEAD + 1, value, width)
            j, e = indices[t] * width, edge_of(order, t) * width
            add_relu(out, i * width, value, j, features, e, width)


def sum_loop(counters, chunks, indptr, indices, order, value, features, out):
    """Write out[i] = the sum over the row of ReLU(value[j] + features[e])."""
    chunk = take_chunk(counters)
    while chunk < chunks:
        first, last = rows_of(indptr, chunk, chunks)
        _sum_rows(first, last, indptr, indices, order, value, features, out)
        chunk = next_chunk(counters)


@shared_part
def _grad_rows(first, last, indptr, indices, order, value, features, grad, out):
    width, far = value.shape[1], value.nbytes > FAR
    for i in range(first, last):
        for t in range(indptr[i], indptr[i + 1]):
            if far:
                prefetch_rows(indices, t + AHEAD, t + AHEAD + 1, value, width)
            j, e = indices[t] * width, edge_of(order, t) * width
            relu_grad(out, e, value, j, features, e, grad, i * width, width)


def grad_loop(counters, chunks, indptr, indices, order, value, features, grad, out):
    """Write out[e] = grad[i] where value[j] + features[e] is positive, else 0."""
    chunk = take_chunk(counters)
    while chunk < chunks:
        first, last = rows_of(indptr, chunk, chunks)
        _grad_rows(first, last, indptr, indices, order, value, features, grad, out)
        chunk = next_chunk(counters)


def relu_sum(
    indptr: Tensor, indices: Tensor, order: Tensor, value: Tensor, features: Tensor
) -> Tensor:
    """Sums [N, H, D] in the dtype of `value`."""
    dtype = value.dtype
    value, features = widened(value, features)
    out = empty((indptr.size(0) - 1, *value.shape[1:]), value)
    flat = (t.flatten(1) for t in (value, features, out))
    chunks = launch.chunks_of(indptr, indices)
    launch.run(sum_loop, features.numel(), chunks, indptr, indices, order, *flat)
    return out.to(dtype)


def relu_sum_backward(
    indptr: Tensor, indices: Tensor, order: Tensor, t_indptr: Tensor, edges: Tensor,
    grad: Tensor, value: Tensor, features: Tensor,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Gradients of value and features."""
    dtype = value.dtype
    grad, value, features = widened(grad, value, features)
    of_value, of_edges = empty(value.shape, value), empty(features.shape, features)
    work, chunks = features.numel(), launch.chunks_of(indptr, indices)
    flat = (t.flatten(1) for t in (value, features, grad, of_edges))
    launch.run(grad_loop, work, chunks, indptr, indices, order, *flat)
    chunks = launch.chunks_of(t_indptr, indices)
    launch.run(
        sum_by_source, work, chunks, t_indptr, edges, of_edges.flatten(1), of_value.flatten(1)
    )
    return of_value.to(dtype), of_edges.to(dtype)


@shared_part
def _mapped_sum_rows(
    first, last, indptr, indices, order, value, features, given, terms, copy, bits, out
):  # fmt: skip
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
                prefetch_rows(indices, e + AHEAD, e + AHEAD + 1, value, width)
            j, at = indices[e] * width, (e - low) * step
            add_relu_signs(out, i * width, bits, e * words, value, j, terms, at, width)
        low = high


def mapped_sum_loop(counters, chunks, indptr, indices, order, value, features, flat, bits, out):
    """Write out[i] = the sum over the row of ReLU(value[j] + term of e), and signs of the sums."""
    given, terms, copy = room_for(flat, out)
    chunk = take_chunk(counters)
    while chunk < chunks:
        first, last = rows_of(indptr, chunk, chunks)
        _mapped_sum_rows(
            first, last, indptr, indices, order, value, features, given, terms, copy, bits, out
        )
        chunk = next_chunk(counters)


def rows_loop(
    counters, chunks, indptr, order, grad, features, flat, turned, bits, of_features, of_flat
):  # fmt: skip
    """Pass over targets: the gradient of the matrix, a table a chunk, and of features if needed."""
    given, sum_grads, _ = room_for(flat, grad)
    (across, found), step = room_to_turn(turned, grad), sum_grads.shape[1]
    (dim, width), words, needed = flat.shape, bits.shape[1], turned.shape[1] > 0
    chunk = take_chunk(counters)
    while chunk < chunks:
        first, last = rows_of(indptr, chunk, chunks)
        i, low, end = first, indptr[first], indptr[last]
        while low < end:
            high = min(low + TILE, end)
            take_features(low, high, features, order, given)
            for e in range(low, high):
                while indptr[i + 1] <= e:
                    i += 1
                keep_where(sum_grads, (e - low) * step, bits, e * words, grad, i * width, width)
            give_back(
                low, high, sum_grads, order, given, dim, width, across, needed, found, of_features,
                of_flat[chunk],
            )  # fmt: skip
            low = high
        chunk = next_chunk(counters)


@shared_part
def _sum_columns(first, last, t_indptr, targets, perm, grad, bits, out):
    (width, words), far = (out.shape[1], bits.shape[1]), grad.nbytes > FAR
    for j in range(first, last):
        clear(out, j * width, width)
        for t in range(t_indptr[j], t_indptr[j + 1]):
            if far:
                prefetch_rows(targets, t + AHEAD, t + AHEAD + 1, grad, width)
                prefetch_rows(perm, t + AHEAD, t + AHEAD + 1, bits, words)
            add_where(out, j * width, bits, perm[t] * words, grad, targets[t] * width, width)


def columns_loop(counters, chunks, t_indptr, targets, perm, grad, bits, out):
    """Pass over sources: the sums of the gradients that the ReLU lets through."""
    chunk = take_chunk(counters)
    while chunk < chunks:
        first, last = rows_of(t_indptr, chunk, chunks)
        _sum_columns(first, last, t_indptr, targets, perm, grad, bits, out)
        chunk = next_chunk(counters)


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
    launch.run(mapped_sum_loop, work, launch.chunks_of(indptr, indices), *given)
    return out.to(dtype), bits


def mapped_relu_sum_backward(
    indptr: Tensor, indices: Tensor, t_indptr: Tensor, targets: Tensor, perm: Tensor,
    order: Tensor, grad: Tensor, features: Tensor, matrix: Tensor, bits: Tensor, of_features: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of value, features ([0] unless asked for) and matrix."""
    dtype = grad.dtype
    grad, features, matrix = widened(grad, features, matrix)
    of_value = empty((t_indptr.size(0) - 1, *grad.shape[1:]), grad)
    of_edges = empty(features.shape, features) if of_features else launch.NO_ROWS[grad.dtype]
    flat, rows = flat_of(matrix), grad.flatten(1)
    each, turned = len(indices) * flat.size(1), turned_of(flat, of_features)
    chunks, tables = tables_for(indptr, indices, matrix)
    work = each * (1 + (1 + of_features) * len(flat))
    given = (indptr, order, rows, features, flat, turned, bits, of_edges, tables)
    launch.run(rows_loop, work, chunks, *given)
    chunks, back = launch.chunks_of(t_indptr, indices), (t_indptr, targets, perm, rows, bits)
    launch.run(columns_loop, each, chunks, *back, of_value.flatten(1))
    of_edges = of_edges if of_features else features.new_empty(0)
    return tuple(t.to(dtype) for t in (of_value, of_edges, of_matrix(tables, matrix)))  # type: ignore[return-value]
