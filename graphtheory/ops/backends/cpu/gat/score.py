"""Loops of the additive score, plain functions that `launch` compiles, and their calls.

Nothing has both an edge axis and a feature axis but the terms of edge features, features @ matrix,
which one product gives for some edges at a time. The conventions are those of `attention.rows`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

from graphtheory.ops.backends.cpu import run as calls
from graphtheory.ops.backends.cpu.attention.rows import AHEAD, FAR, first_row
from graphtheory.ops.backends.cpu.counters import next_chunk, take_chunk
from graphtheory.ops.backends.cpu.decorators import part
from graphtheory.ops.backends.cpu.gat.attention import columns_loop as sum_by_source
from graphtheory.ops.backends.cpu.memory import empty
from graphtheory.ops.backends.cpu.vector.lanes import warm
from graphtheory.ops.backends.precision import widened

_AT_ONCE = 2**20  # numbers of the terms that one product gives: 4 MiB of float32


@part
def copy_term(terms, e, h, term):
    """The term of an edge and head, or what `term` holds, zeros, where edges have no features."""
    if terms.shape[0] > 0:
        for c in range(term.shape[0]):
            term[c] = terms[e, h, c]


@part
def score_rows(
    first, last, indptr, indices, source, target, att, terms, slope, out, term
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
                copy_term(terms, e, h, term)
                total = zero
                for c in range(dim):
                    z = source[j, h, c] + target[i, h, c] + term[c]
                    total += att[h, c] * (z if z > zero else slope * z)
                out[e, h] = total


def score_loop(turns, chunks, indptr, indices, source, target, att, terms, slope, out):
    """Write out[e, h] = <att[h], leaky(source[j, h] + target[i, h] + terms[e, h])>."""
    term = np.zeros(att.shape[1], out.dtype)
    chunk = take_chunk(turns)
    while chunk < chunks:
        first, last = first_row(indptr, chunk, chunks), first_row(indptr, chunk + 1, chunks)
        score_rows(first, last, indptr, indices, source, target, att, terms, slope, out, term)
        chunk = next_chunk(turns)


@part
def flow_rows(
    first, last, indptr, indices, grad, source, target, att, terms, slope,
    grad_target, grad_att, term,
):  # fmt: skip
    """The part of `rows_loop` of rows first..last-1, with the tables of a chunk."""
    (heads, dim), size, far = att.shape, att.size, source.nbytes > FAR
    zero, one = grad.dtype.type(0), grad.dtype.type(1)
    for i in range(first, last):
        for e in range(indptr[i], indptr[i + 1]):
            j = indices[e]
            if far:
                warm(indices, e + AHEAD, e + AHEAD + 1, source, size)
            for h in range(heads):
                copy_term(terms, e, h, term)
                up = grad[e, h]
                for c in range(dim):
                    z = source[j, h, c] + target[i, h, c] + term[c]
                    g = up * (one if z > zero else slope)
                    grad_att[h, c] += g * z
                    flow = g * att[h, c]
                    grad_target[i, h, c] += flow
                    if terms.shape[0] > 0:
                        terms[e, h, c] = flow


def rows_loop(
    turns, chunks, indptr, indices, grad, source, target, att, terms, slope, grad_target, grad_att
):  # fmt: skip
    """Pass over targets: add their gradients, write those of the terms over the terms.

    That of att has one table a chunk.
    """
    term = np.zeros(att.shape[1], grad.dtype)
    chunk = take_chunk(turns)
    while chunk < chunks:
        first, last = first_row(indptr, chunk, chunks), first_row(indptr, chunk + 1, chunks)
        grad_att[chunk] = 0
        flow_rows(
            first, last, indptr, indices, grad, source, target, att, terms, slope,
            grad_target, grad_att[chunk], term,
        )  # fmt: skip
        chunk = next_chunk(turns)


@part
def flow_columns(
    first, last, t_indptr, targets, perm, grad, source, target, att, terms, slope, grad_source,
    term,
):  # fmt: skip
    """The part of `columns_loop` of rows first..last-1."""
    (heads, dim), size, far = att.shape, att.size, target.nbytes > FAR
    zero, one = grad.dtype.type(0), grad.dtype.type(1)
    for j in range(first, last):
        for t in range(t_indptr[j], t_indptr[j + 1]):
            i = targets[t]
            if far:
                warm(targets, t + AHEAD, t + AHEAD + 1, target, size)
            for h in range(heads):
                copy_term(terms, t, h, term)
                up = grad[perm[t], h]
                for c in range(dim):
                    z = source[j, h, c] + target[i, h, c] + term[c]
                    grad_source[j, h, c] += up * (one if z > zero else slope)


def columns_loop(
    turns, chunks, t_indptr, targets, perm, grad, source, target, att, terms, slope, grad_source
):  # fmt: skip
    """Pass over sources, by the transposed structure: add their gradients divided by att."""
    term = np.zeros(att.shape[1], grad.dtype)
    chunk = take_chunk(turns)
    while chunk < chunks:
        first, last = first_row(t_indptr, chunk, chunks), first_row(t_indptr, chunk + 1, chunks)
        flow_columns(
            first, last, t_indptr, targets, perm, grad, source, target, att, terms, slope,
            grad_source, term,
        )  # fmt: skip
        chunk = next_chunk(turns)


def _parts(indptr: Tensor, num_edges: int, width: int) -> Iterator[tuple[slice, slice, Tensor]]:
    """Rows, edges and row pointers of parts; one part where edges have no features, `width` 0."""
    if not width or not num_edges:
        yield slice(0, len(indptr) - 1), slice(0, num_edges), indptr
        return
    size = max(1, _AT_ONCE // width)
    for start in range(0, num_edges, size):
        stop = min(start + size, num_edges)
        low = int(torch.searchsorted(indptr, start, right=True)) - 1
        high = int(torch.searchsorted(indptr, stop))
        local = indptr[low : high + 1].clamp(start, stop) - start
        yield slice(low, high), slice(start, stop), local


def _terms(features: Tensor, flat: Tensor, att: Tensor) -> Tensor:
    """The terms of edges, features @ flat, [E, H, C]; nothing where there are no features."""
    if not len(flat):
        return features.new_empty(0, *att.shape)
    with _on_one_thread():
        return (features @ flat).view(len(features), *att.shape)


def _flat(matrix: Tensor) -> Tensor:
    """[heads, edge_dim, dim] as [edge_dim, heads * dim]."""
    heads, edge_dim, dim = matrix.shape
    return matrix.transpose(0, 1).reshape(edge_dim, heads * dim)


@contextmanager
def _on_one_thread() -> Iterator[None]:
    """Products of torch, whose bits depend on the number of threads on some processors."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def score(
    indptr: Tensor, indices: Tensor, source: Tensor, target: Tensor, att: Tensor,
    features: Tensor, matrix: Tensor, slope: float,
) -> Tensor:  # fmt: skip
    """Scores [E, H] in the dtype of `source`."""
    dtype = source.dtype
    source, target, att, features, matrix = widened(source, target, att, features, matrix)
    out, flat = empty((indices.size(0), att.size(0)), source), _flat(matrix)
    for rows, edges, ptr in _parts(indptr, len(indices), len(flat) and att.numel()):
        ids, terms = indices[edges], _terms(features[edges], flat, att)
        work, chunks = 2 * len(ids) * att.numel(), calls.chunks_of(ptr, ids)
        given = (ptr, ids, source, target[rows], att, terms, calls.number(slope, out))
        calls.run(score_loop, work, chunks, *given, out[edges])
    return out.to(dtype)


def score_backward(
    indptr: Tensor, indices: Tensor, t_indptr: Tensor, targets: Tensor, perm: Tensor,
    grad: Tensor, source: Tensor, target: Tensor, att: Tensor, features: Tensor, matrix: Tensor,
    slope: float, of_features: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of source, target, att, features ([0] unless asked for) and matrix."""
    inputs = (source, target, att, features, matrix)
    grad, source, target, att, features, matrix = widened(grad, *inputs)
    out_source, out_target, out_att, out_matrix = map(
        torch.zeros_like, (source, target, att, matrix)
    )
    out_features = empty(features.shape if of_features else (0,), features)
    heads, edge_dim, dim = matrix.shape
    width, real = edge_dim and att.numel(), calls.number(slope, grad)
    flat = _flat(matrix)
    of_flat = torch.zeros_like(flat)
    for rows, edges, ptr in _parts(indptr, len(indices), width):
        ids, terms = indices[edges], _terms(features[edges], flat, att)
        work, chunks = 4 * len(ids) * att.numel(), calls.chunks_of(ptr, ids)
        tables = grad.new_empty(chunks, heads, dim)
        given = (ptr, ids, grad[edges], source, target[rows], att, terms, real)
        calls.run(rows_loop, work, chunks, *given, out_target[rows], tables)
        out_att += tables.sum(0)
        if edge_dim:
            flow = terms.flatten(1)
            with _on_one_thread():
                if of_features:
                    torch.mm(flow, flat.T, out=out_features[edges])
                of_flat.addmm_(features[edges].T, flow)
    if edge_dim and len(terms) == len(indices):  # one part, whose terms are all gradients now
        work, chunks = terms.numel(), calls.chunks_of(t_indptr, perm)
        calls.run(sum_by_source, work, chunks, t_indptr, perm, flow, out_source.flatten(1))
    else:
        for rows, edges, ptr in _parts(t_indptr, len(targets), width):
            ids, at = targets[edges], perm[edges]
            terms = _terms(features[at] if edge_dim else features, flat, att)
            work, chunks = 4 * len(ids) * att.numel(), calls.chunks_of(ptr, ids)
            there = (source[rows], target, att, terms, real)
            calls.run(columns_loop, work, chunks, ptr, ids, at, grad, *there, out_source[rows])
        out_source *= att
    out_matrix = of_flat.view(edge_dim, heads, dim).transpose(0, 1).contiguous()
    out = (out_source, out_target, out_att, out_features, out_matrix)
    return tuple(g.to(t.dtype) for g, t in zip(out, inputs, strict=True))  # type: ignore[return-value]
