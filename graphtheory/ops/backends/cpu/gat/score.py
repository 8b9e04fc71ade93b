"""Loops of the additive score, plain functions that `launch` compiles, and their calls.

The sum of an edge lives in registers: nothing has both an edge axis and a feature axis. The
conventions are those of `attention.rows`; the matrix of edge features is [heads, edge_dim, dim].
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from graphtheory.ops.backends.cpu import run as calls
from graphtheory.ops.backends.cpu.attention.rows import AHEAD, FAR, first_row
from graphtheory.ops.backends.cpu.counters import next_chunk, take_chunk
from graphtheory.ops.backends.cpu.decorators import part
from graphtheory.ops.backends.cpu.memory import empty
from graphtheory.ops.backends.cpu.vector.lanes import warm
from graphtheory.ops.backends.precision import widened


@part
def edge_term(out, features, matrix, e, h):
    """Write out = features[e] @ matrix[h]."""
    for c in range(out.shape[0]):
        out[c] = features[e, 0] * matrix[h, 0, c]
    for f in range(1, features.shape[1]):
        for c in range(out.shape[0]):
            out[c] += features[e, f] * matrix[h, f, c]


@part
def edge_term_backward(flow, features, matrix, e, h, grad_features, grad_matrix):
    """Add the gradients of features[e] and matrix[h], given that of the term."""
    for f in range(features.shape[1]):
        total = flow.dtype.type(0)
        for c in range(flow.shape[0]):
            total += flow[c] * matrix[h, f, c]
        grad_features[e, f] += total
        for c in range(flow.shape[0]):
            grad_matrix[h, f, c] += flow[c] * features[e, f]


@part
def score_rows(
    first, last, indptr, indices, source, target, att, features, matrix, slope, out, term
):  # fmt: skip
    """The part of `score_loop` of rows first..last-1; `term` is room for a head's features."""
    (heads, dim), size, far = att.shape, att.size, source.nbytes > FAR
    zero = out.dtype.type(0)
    for i in range(first, last):
        for e in range(indptr[i], indptr[i + 1]):
            j = indices[e]
            if far:
                warm(indices, e + AHEAD, e + AHEAD + 1, source, size)
            for h in range(heads):
                if features.shape[1] > 0:
                    edge_term(term, features, matrix, e, h)
                total = zero
                for c in range(dim):
                    z = source[j, h, c] + target[i, h, c] + term[c]
                    total += att[h, c] * (z if z > zero else slope * z)
                out[e, h] = total


def score_loop(
    turns, chunks, indptr, indices, source, target, att, features, matrix, slope, out
):  # fmt: skip
    """Write out[e, h] = <att[h], leaky(source[j, h] + target[i, h] + features[e] @ matrix[h])>."""
    term = np.zeros(att.shape[1], out.dtype)
    chunk = take_chunk(turns)
    while chunk < chunks:
        first, last = first_row(indptr, chunk, chunks), first_row(indptr, chunk + 1, chunks)
        score_rows(
            first, last, indptr, indices, source, target, att, features, matrix, slope, out, term
        )
        chunk = next_chunk(turns)


@part
def flow_rows(
    first, last, indptr, indices, grad, source, target, att, features, matrix, slope,
    grad_target, grad_att, grad_features, grad_matrix, term, flow,
):  # fmt: skip
    """The part of `rows_loop` of rows first..last-1, with the tables of a chunk."""
    (heads, dim), size, far = att.shape, att.size, source.nbytes > FAR
    zero, one = grad.dtype.type(0), grad.dtype.type(1)
    for i in range(first, last):
        grad_target[i] = zero
        for e in range(indptr[i], indptr[i + 1]):
            j = indices[e]
            if far:
                warm(indices, e + AHEAD, e + AHEAD + 1, source, size)
            for f in range(features.shape[1]):
                grad_features[e, f] = zero
            for h in range(heads):
                if features.shape[1] > 0:
                    edge_term(term, features, matrix, e, h)
                up = grad[e, h]
                for c in range(dim):
                    z = source[j, h, c] + target[i, h, c] + term[c]
                    g = up * (one if z > zero else slope)
                    grad_att[h, c] += g * z
                    flow[c] = g * att[h, c]
                    grad_target[i, h, c] += flow[c]
                if features.shape[1] > 0:
                    edge_term_backward(flow, features, matrix, e, h, grad_features, grad_matrix)


def rows_loop(
    turns, chunks, indptr, indices, grad, source, target, att, features, matrix, slope,
    grad_target, grad_att, grad_features, grad_matrix,
):  # fmt: skip
    """Pass over targets: all gradients but that of source; att and matrix one table a chunk."""
    term, flow = np.zeros(att.shape[1], grad.dtype), np.empty(att.shape[1], grad.dtype)
    chunk = take_chunk(turns)
    while chunk < chunks:
        first, last = first_row(indptr, chunk, chunks), first_row(indptr, chunk + 1, chunks)
        grad_att[chunk] = 0
        grad_matrix[chunk] = 0
        flow_rows(
            first, last, indptr, indices, grad, source, target, att, features, matrix, slope,
            grad_target, grad_att[chunk], grad_features, grad_matrix[chunk], term, flow,
        )  # fmt: skip
        chunk = next_chunk(turns)


@part
def flow_columns(
    first, last, t_indptr, targets, perm, grad, source, target, att, features, matrix,
    slope, grad_source, term,
):  # fmt: skip
    """The part of `columns_loop` of rows first..last-1."""
    (heads, dim), size, far = att.shape, att.size, target.nbytes > FAR
    zero, one = grad.dtype.type(0), grad.dtype.type(1)
    for j in range(first, last):
        grad_source[j] = zero
        for t in range(t_indptr[j], t_indptr[j + 1]):
            i, e = targets[t], perm[t]
            if far:
                warm(targets, t + AHEAD, t + AHEAD + 1, target, size)
            for h in range(heads):
                if features.shape[1] > 0:
                    edge_term(term, features, matrix, e, h)
                up = grad[e, h]
                for c in range(dim):
                    z = source[j, h, c] + target[i, h, c] + term[c]
                    grad_source[j, h, c] += up * (one if z > zero else slope)
        for h in range(heads):
            for c in range(dim):
                grad_source[j, h, c] *= att[h, c]


def columns_loop(
    turns, chunks, t_indptr, targets, perm, grad, source, target, att, features, matrix,
    slope, grad_source,
):  # fmt: skip
    """Pass over sources, by the transposed structure: the gradient of source."""
    term = np.zeros(att.shape[1], grad.dtype)
    chunk = take_chunk(turns)
    while chunk < chunks:
        first, last = first_row(t_indptr, chunk, chunks), first_row(t_indptr, chunk + 1, chunks)
        flow_columns(
            first, last, t_indptr, targets, perm, grad, source, target, att, features, matrix,
            slope, grad_source, term,
        )  # fmt: skip
        chunk = next_chunk(turns)


def _real(slope: float, like: Tensor) -> np.floating:
    return np.float64(slope) if like.dtype == torch.float64 else np.float32(slope)


def _work(indices: Tensor, matrix: Tensor) -> int:
    heads, edge_dim, dim = matrix.shape
    return 2 * indices.size(0) * heads * dim * (1 + edge_dim)


def score(
    indptr: Tensor, indices: Tensor, source: Tensor, target: Tensor, att: Tensor,
    features: Tensor, matrix: Tensor, slope: float,
) -> Tensor:  # fmt: skip
    """Scores [E, H] in the dtype of `source`."""
    dtype = source.dtype
    tensors = widened(source, target, att, features, matrix)
    out = empty((indices.size(0), att.size(0)), tensors[0])
    work, chunks = _work(indices, matrix), calls.chunks_of(indptr, indices)
    calls.run(score_loop, work, chunks, indptr, indices, *tensors, _real(slope, out), out)
    return out.to(dtype)


def score_backward(
    indptr: Tensor, indices: Tensor, t_indptr: Tensor, targets: Tensor, perm: Tensor,
    grad: Tensor, source: Tensor, target: Tensor, att: Tensor, features: Tensor, matrix: Tensor,
    slope: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of source, target, att, features and matrix."""
    inputs = (source, target, att, features, matrix)
    grad, *tensors = widened(grad, *inputs)
    out_source, out_target, _, out_features, _ = (empty(t.shape, t) for t in tensors)
    chunks = calls.chunks_of(indptr, indices)
    out_att, out_matrix = (grad.new_empty(chunks, *t.shape) for t in (att, matrix))
    options = (grad, *tensors, _real(slope, grad))
    work = 2 * _work(indices, matrix)
    edges = (out_target, out_att, out_features, out_matrix)
    calls.run(rows_loop, work, chunks, indptr, indices, *options, *edges)
    turned = (t_indptr, targets, perm)
    calls.run(columns_loop, work, calls.chunks_of(*turned[:2]), *turned, *options, out_source)
    out = (out_source, out_target, out_att.sum(0), out_features, out_matrix.sum(0))
    return tuple(g.to(t.dtype) for g, t in zip(out, inputs, strict=True))  # type: ignore[return-value]
