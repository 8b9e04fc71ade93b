"""The largest weighted value of each row and feature, and its gradient: loops over whole rows.

Backward, a loop over targets counts the edges that have the largest value, and divides the
gradient among them; a loop over sources adds up what each of these edges brings. Which edges they
are is asked again by the same product, so nothing by edge is kept.
"""

from __future__ import annotations

from torch import Tensor

from graphtheory.ops.backends.cpu import run as calls
from graphtheory.ops.backends.cpu.attention.rows import (
    AHEAD,
    edge_of,
    first_row,
    first_to_ask_for,
)
from graphtheory.ops.backends.cpu.decorators import part
from graphtheory.ops.backends.cpu.launch import next_chunk, take_chunk
from graphtheory.ops.backends.cpu.memory import empty
from graphtheory.ops.backends.cpu.vector.lanes import (
    add_hits,
    clear,
    count_hits,
    dot_hits,
    invert,
    multiply,
    put,
    raise_by,
    warm,
)
from graphtheory.ops.backends.precision import widened


@part
def _largest_rows(first, last, indptr, indices, weights, value, out):
    heads, dim, width = value.shape[1], value.shape[2], value.shape[1] * value.shape[2]
    asked = first_to_ask_for(indptr[first], value)
    for i in range(first, last):
        low, high = indptr[i], indptr[i + 1]
        if low == high:
            clear(out, i * width, width)
        for t in range(low, high):
            while asked < min(t + AHEAD, high):
                warm(indices, asked, asked + AHEAD, value, width)
                asked += AHEAD
            for h in range(heads):
                near, far = (i * heads + h) * dim, (indices[t] * heads + h) * dim
                if t == low:
                    put(out, near, weights[t, h], value, far, dim)
                else:
                    raise_by(out, near, weights[t, h], value, far, dim)


def largest(turns, chunks, indptr, indices, weights, value, out):
    """Write out[i, h] = the largest of weights[e, h] * value[j, h] over the row; of none 0."""
    chunk = take_chunk(turns)
    while chunk < chunks:
        first, last = first_row(indptr, chunk, chunks), first_row(indptr, chunk + 1, chunks)
        _largest_rows(first, last, indptr, indices, weights, value, out)
        chunk = next_chunk(turns)


@part
def _share_rows(first, last, indptr, indices, weights, value, out, grad, share, to_weights):
    heads, dim, width = value.shape[1], value.shape[2], value.shape[1] * value.shape[2]
    for i in range(first, last):
        low, high = indptr[i], indptr[i + 1]
        clear(share, i * width, width)
        for t in range(low, high):
            for h in range(heads):
                near, far = (i * heads + h) * dim, (indices[t] * heads + h) * dim
                count_hits(share, near, weights[t, h], value, far, out, near, dim)
        invert(share, i * width, width)
        multiply(share, i * width, grad, i * width, width)
        if to_weights.shape[0] > 0:
            for t in range(low, high):
                for h in range(heads):
                    near, far = (i * heads + h) * dim, (indices[t] * heads + h) * dim
                    w = weights[t, h]
                    to_weights[t, h] = dot_hits(w, value, far, out, near, share, near, dim)


def divide(turns, chunks, indptr, indices, weights, value, out, grad, share, to_weights):
    """Write share[i, h] = grad[i, h] / the number of edges that have out[i, h].

    Write the gradient of the weights, unless `to_weights` has no rows.
    """
    chunk = take_chunk(turns)
    while chunk < chunks:
        first, last = first_row(indptr, chunk, chunks), first_row(indptr, chunk + 1, chunks)
        _share_rows(first, last, indptr, indices, weights, value, out, grad, share, to_weights)
        chunk = next_chunk(turns)


@part
def _source_rows(first, last, indptr, targets, perm, weights, value, out, share, to_value):
    heads, dim, width = value.shape[1], value.shape[2], value.shape[1] * value.shape[2]
    asked = first_to_ask_for(indptr[first], value)
    for j in range(first, last):
        low, high = indptr[j], indptr[j + 1]
        clear(to_value, j * width, width)
        for t in range(low, high):
            while asked < min(t + AHEAD, high):
                warm(targets, asked, asked + AHEAD, out, width)
                warm(targets, asked, asked + AHEAD, share, width)
                asked += AHEAD
            e = edge_of(perm, t)
            for h in range(heads):
                own, i = (j * heads + h) * dim, (targets[t] * heads + h) * dim
                add_hits(to_value, own, weights[e, h], value, own, out, i, share, i, dim)


def gather(turns, chunks, indptr, targets, perm, weights, value, out, share, to_value):
    """Write the gradient of the values: of each source's edges that have the largest value."""
    chunk = take_chunk(turns)
    while chunk < chunks:
        first, last = first_row(indptr, chunk, chunks), first_row(indptr, chunk + 1, chunks)
        _source_rows(first, last, indptr, targets, perm, weights, value, out, share, to_value)
        chunk = next_chunk(turns)


def aggregate_max(indptr: Tensor, indices: Tensor, weights: Tensor, value: Tensor) -> Tensor:
    """Largest weights[e, h] * value[j, h] by row and feature [N, H, D], in the type of sums."""
    weights, value = widened(weights, value)
    out = empty((indptr.size(0) - 1, value.size(1), value.size(2)), value)
    work, chunks = weights.numel() * value.size(2), calls.chunks_of(indptr, weights)
    calls.run(largest, work, chunks, indptr, indices, weights, value, out)
    return out


def aggregate_max_backward(
    indptr: Tensor, indices: Tensor, t_indptr: Tensor, targets: Tensor, perm: Tensor,
    grad: Tensor, out: Tensor, weights: Tensor, value: Tensor, of_weights: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Gradients of weights ([0] if not asked for) and value; equal edges of a row share it."""
    dtypes = weights.dtype, value.dtype
    grad, out, weights, value = widened(grad, out, weights, value)
    share, to_value = empty(out.shape, out), empty(value.shape, value)
    to_weights = empty(weights.shape, weights) if of_weights else weights.new_empty(0, 0)
    work, chunks = weights.numel() * value.size(2), calls.chunks_of(indptr, weights)
    shared = weights, value, out, grad, share, to_weights
    calls.run(divide, work, chunks, indptr, indices, *shared)
    chunks = calls.chunks_of(t_indptr, weights)
    gathered = weights, value, out, share, to_value
    calls.run(gather, work, chunks, t_indptr, targets, perm, *gathered)
    to_weights = to_weights if of_weights else to_weights.flatten()
    return to_weights.to(dtypes[0]), to_value.to(dtypes[1])
