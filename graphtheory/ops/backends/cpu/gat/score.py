"""The additive score of GATv2.

The terms of edges, features @ matrix, are made for some edges at a time, where they are read.
Nothing has both an edge axis and a feature axis but the signs of the sums, a bit each, which the
backward pass keeps from its pass over targets for that over sources. The conventions are those of
`attention.rows`.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from graphtheory.ops.backends.cpu import launch
from graphtheory.ops.backends.cpu.attention.rows import AHEAD, FAR
from graphtheory.ops.backends.cpu.compiling import part, shared_part
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
    turned_of,
    write_terms,
)
from graphtheory.ops.backends.cpu.vector.lanes import clear, fill, multiply, prefetch_rows
from graphtheory.ops.backends.cpu.vector.products import matrix
from graphtheory.ops.backends.cpu.vector.relus import (
    add_by_sign,
    leaky_dot,
    leaky_gradients,
    words_of,
)
from graphtheory.ops.call import widened


@part
def _score_rows(
    first, last, indptr, indices, source, target, att, features, slope, given, terms, copy, out
):  # fmt: skip
    (heads, dim), width, far = att.shape, att.size, source.nbytes > FAR
    step = terms.shape[1] if features.shape[1] > 0 else 0
    i, low, end = first, indptr[first], indptr[last]
    while low < end:
        high = min(low + TILE, end)
        write_terms(low, high, features, indices[:0], given, copy, width, terms)
        for e in range(low, high):
            while indptr[i + 1] <= e:
                i += 1
            if far:
                prefetch_rows(indices, e + AHEAD, e + AHEAD + 1, source, width)
            j, at = indices[e] * width, (e - low) * step
            for h in range(heads):
                c = h * dim
                out[e, h] = leaky_dot(
                    slope, source, j + c, target, i * width + c, terms, at + c, att, c, dim
                )
        low = high


def score_loop(counters, chunks, indptr, indices, source, target, att, features, flat, slope, out):
    """Write out[e, h] = <att[h], leaky(source[j, h] + target[i, h] + term of e)>."""
    given, terms, copy = room_for(flat, out)
    chunk = take_chunk(counters)
    while chunk < chunks:
        first, last = rows_of(indptr, chunk, chunks)
        _score_rows(
            first, last, indptr, indices, source, target, att, features, slope, given, terms, copy,
            out,
        )  # fmt: skip
        chunk = next_chunk(counters)


@shared_part
def _grad_tile(
    i, low, high, indptr, indices, grad, source, target, att, slope, bits, terms, sum_grads,
    step, ups, of_target, of_att, at_att,
):  # fmt: skip
    """Write signs of sums of edges low..high-1, and gradients; return the row of the last."""
    (heads, dim), width, far = att.shape, att.size, source.nbytes > FAR
    words = bits.shape[1]
    for e in range(low, high):
        while indptr[i + 1] <= e:
            i += 1
        if far:
            prefetch_rows(indices, e + AHEAD, e + AHEAD + 1, source, width)
        j, at = indices[e] * width, (e - low) * step
        for h in range(heads):
            fill(ups, h * dim, grad[e, h], dim)
        leaky_gradients(
            ups, slope, source, j, target, i * width, terms, at, att, bits, e * words, sum_grads,
            at, of_target, of_att, at_att, width,
        )  # fmt: skip
    return i


def rows_loop(
    counters, chunks, indptr, indices, grad, source, target, att, features, flat, turned, slope,
    bits, of_target, of_att, of_features, of_flat,
):  # fmt: skip
    """Pass over targets: their gradients, tables of att and matrix, features if needed, signs."""
    given, terms, copy = room_for(flat, grad)
    (dim, width), needed = flat.shape, turned.shape[1] > 0
    sum_grads, step = matrix(len(terms), width, grad), 0
    if dim > 0:
        sum_grads, step = terms, terms.shape[1]
    (across, found), ups = room_to_turn(turned, grad), np.zeros(width, grad.dtype)
    chunk = take_chunk(counters)
    while chunk < chunks:
        first, last = rows_of(indptr, chunk, chunks)
        clear(of_target, first * width, (last - first) * width)
        clear(of_att, chunk * width, width)
        i, low, end = first, indptr[first], indptr[last]
        while low < end:
            high = min(low + TILE, end)
            write_terms(low, high, features, indices[:0], given, copy, width, terms)
            i = _grad_tile(
                i, low, high, indptr, indices, grad, source, target, att, slope, bits, terms,
                sum_grads, step, ups, of_target, of_att, chunk * width,
            )  # fmt: skip
            if dim > 0:
                give_back(
                    low, high, sum_grads, indices[:0], given, dim, width, across, needed, found,
                    of_features, of_flat[chunk],
                )  # fmt: skip
            low = high
        chunk = next_chunk(counters)


@shared_part
def _sum_columns(first, last, t_indptr, perm, grad, bits, att, slope, ups, out):
    (heads, dim), width, words, far = att.shape, att.size, bits.shape[1], grad.nbytes > FAR
    for j in range(first, last):
        low, high = t_indptr[j], t_indptr[j + 1]
        clear(out, j * width, width)
        for t in range(low, high):
            e = perm[t]
            if far:
                prefetch_rows(perm, t + AHEAD, t + AHEAD + 1, grad, heads)
                prefetch_rows(perm, t + AHEAD, t + AHEAD + 1, bits, words)
            for h in range(heads):
                fill(ups, h * dim, grad[e, h], dim)
            add_by_sign(out, j * width, bits, e * words, ups, 0, slope, width)
        if low < high:  # of none 0, whatever att is
            multiply(out, j * width, att, 0, width)


def columns_loop(counters, chunks, t_indptr, perm, grad, bits, att, slope, out):
    """Pass over sources: their gradients, from the signs of the sums of their edges."""
    ups = np.zeros(att.size, out.dtype)
    chunk = take_chunk(counters)
    while chunk < chunks:
        first, last = rows_of(t_indptr, chunk, chunks)
        _sum_columns(first, last, t_indptr, perm, grad, bits, att, slope, ups, out)
        chunk = next_chunk(counters)


def additive_score(
    indptr: Tensor, indices: Tensor, source: Tensor, target: Tensor, att: Tensor,
    features: Tensor, matrix: Tensor, slope: float,
) -> Tensor:  # fmt: skip
    """Scores [E, H] in the dtype of `source`."""
    dtype = source.dtype
    source, target, att, features, matrix = widened(source, target, att, features, matrix)
    out, flat = empty((indices.size(0), att.size(0)), source), flat_of(matrix)
    work, chunks = len(indices) * (2 + len(flat)) * att.numel(), launch.chunks_of(indptr, indices)
    given = (indptr, indices, source, target, att, features, flat, launch.cast(slope, out))
    launch.run(score_loop, work, chunks, *given, out)
    return out.to(dtype)


def additive_score_backward(
    indptr: Tensor, indices: Tensor, t_indptr: Tensor, targets: Tensor, perm: Tensor,
    grad: Tensor, source: Tensor, target: Tensor, att: Tensor, features: Tensor, matrix: Tensor,
    slope: float, of_features: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of source, target, att, features ([0] unless asked for) and matrix."""
    inputs = (source, target, att, features, matrix)
    grad, source, target, att, features, matrix = widened(grad, *inputs)
    (heads, edge_dim, dim), width, edges = matrix.shape, att.numel(), len(indices)
    of_source, of_target = empty(source.shape, source), empty(target.shape, target)
    of_given = empty(features.shape, features) if of_features else launch.NO_ROWS[grad.dtype]
    flat, real = flat_of(matrix), launch.cast(slope, grad)
    turned = turned_of(flat, of_features)
    bits = torch.empty(edges, words_of(width), dtype=torch.int16)
    chunks, tables = tables_for(indptr, indices, matrix)
    of_att = grad.new_empty(chunks, heads, dim)
    given = (indptr, indices, grad, source, target, att, features, flat, turned, real, bits)
    outs = (of_target, of_att, of_given, tables)
    work = edges * (4 + (2 + of_features) * edge_dim) * width
    launch.run(rows_loop, work, chunks, *given, *outs)
    chunks, back = launch.chunks_of(t_indptr, perm), (t_indptr, perm, grad, bits, att, real)
    launch.run(columns_loop, edges * width, chunks, *back, of_source)
    of_edges = of_given if of_features else features.new_empty(0)
    out = (of_source, of_target, of_att.sum(0), of_edges, of_matrix(tables, matrix))
    return tuple(g.to(t.dtype) for g, t in zip(out, inputs, strict=True))  # type: ignore[return-value]
