"""Dot products, softmax, sums and maxima of rows, on tensors and on wide ones within other calls.

The gradient of the largest weighted value of each row and feature takes two loops over whole rows:
one over targets counts the edges that have this value, and divides the gradient among them; one
over sources adds up what each of these edges brings. Which edges they are is asked again by the
same product, so nothing by edge is kept.
"""

from __future__ import annotations

from torch import Tensor

from graphtheory.ops.backends.cpu import launch
from graphtheory.ops.backends.cpu.attention import rows
from graphtheory.ops.backends.cpu.attention.rows import AHEAD, edge_of, first_to_prefetch
from graphtheory.ops.backends.cpu.compiling import shared_part
from graphtheory.ops.backends.cpu.launch import next_chunk, rows_of, take_chunk
from graphtheory.ops.backends.cpu.memory import empty
from graphtheory.ops.backends.cpu.vector.lanes import (
    add_hits,
    clear,
    count_hits,
    dot_hits,
    invert,
    maximum_product_,
    multiply,
    prefetch_rows,
    scale_into,
)
from graphtheory.ops.call import widened

EXP = 32  # the cost of an exponential, in multiply-adds


def dot(indptr: Tensor, indices: Tensor, query: Tensor, key: Tensor) -> Tensor:
    """Dot products [E, H] of wide tensors."""
    out = empty((indices.size(0), query.size(1)), query)
    work, chunks = out.numel() * key.size(2), launch.chunks_of(indptr, out)
    launch.run(rows.edge_dot, work, chunks, indptr, indices, query, key, out)
    return out


def softmax_(
    indptr: Tensor, logits: Tensor, scale: float = 1.0, bias: Tensor | None = None,
    bucket: Tensor | None = None, table: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Replace logits by their softmax in place."""
    given = (*launch.options(logits, bias, bucket, table), launch.cast(scale, logits))
    work, chunks = EXP * logits.numel(), launch.chunks_of(indptr, logits)
    launch.run(rows.softmax, work, chunks, indptr, logits, *given, logits)
    return logits


def softmax_backward_(
    indptr: Tensor, weights: Tensor, grad: Tensor, bucket: Tensor | None = None,
    num_buckets: int = 0, dropout: float = 0.0, seed: int = 0,
) -> Tensor:  # fmt: skip
    """Gradient of the logits in place of `grad`; returns the gradient of the table."""
    chunks = launch.chunks_of(indptr, weights)
    tables = launch.tables_of(weights, chunks, num_buckets)
    arrays = (weights, grad, launch.buckets(bucket), dropout, seed, grad, tables)
    launch.run(rows.softmax_backward, 4 * weights.numel(), chunks, indptr, *arrays)
    return launch.sum_tables(tables, num_buckets, weights)


def sums(
    indptr: Tensor, indices: Tensor, weights: Tensor, value: Tensor, perm: Tensor = launch.NO_EDGES,
    scale: float = 1.0, dropout: float = 0.0, seed: int = 0,
) -> Tensor:  # fmt: skip
    """Sums [N, H, D] of wide tensors, scaled, by the weights that dropout keeps."""
    out = empty((indptr.size(0) - 1, value.size(1), value.size(2)), value)
    work, chunks = weights.numel() * value.size(2), launch.chunks_of(indptr, weights)
    split_row, partial_sum = launch.partial_buffers(chunks, out)
    numbers = (launch.cast(scale, value), dropout, seed)
    arrays = (indptr, indices, perm, weights, value, *numbers, out, split_row, partial_sum)
    launch.run(rows.aggregate, work, chunks, *arrays)
    launch.run_merge(rows.merge, split_row, partial_sum, out)
    return out


def edge_dot(indptr: Tensor, indices: Tensor, query: Tensor, key: Tensor) -> Tensor:
    """The logit of each edge, [E, H]."""
    dtype = query.dtype
    query, key = widened(query, key)
    return dot(indptr, indices, query, key).to(dtype)


def edge_softmax(indptr: Tensor, logits: Tensor) -> Tensor:
    """The weight of each edge, [E, H]."""
    (wide,) = widened(logits)
    return softmax_(indptr, wide.clone()).to(logits.dtype)


def edge_softmax_backward(indptr: Tensor, weights: Tensor, grad: Tensor) -> Tensor:
    """Gradient of the logits [E, H]."""
    wide, grad = widened(weights, grad)
    grad = grad.clone()
    softmax_backward_(indptr, wide, grad)
    return grad.to(weights.dtype)


def aggregate(
    indptr: Tensor, indices: Tensor, weights: Tensor, value: Tensor, perm: Tensor = launch.NO_EDGES
) -> Tensor:
    """Sums [N, H, D]; entry t of a row has the weight of edge perm[t], if `perm` is given."""
    dtype = value.dtype
    weights, value = widened(weights, value)
    return sums(indptr, indices, weights, value, perm).to(dtype)


@shared_part
def _largest_rows(first, last, indptr, indices, weights, value, out):
    heads, dim, width = value.shape[1], value.shape[2], value.shape[1] * value.shape[2]
    prefetched = first_to_prefetch(indptr[first], value)
    for i in range(first, last):
        low, high = indptr[i], indptr[i + 1]
        if low == high:
            clear(out, i * width, width)
        for t in range(low, high):
            while prefetched < min(t + AHEAD, high):
                prefetch_rows(indices, prefetched, prefetched + AHEAD, value, width)
                prefetched += AHEAD
            for h in range(heads):
                near, far = (i * heads + h) * dim, (indices[t] * heads + h) * dim
                if t == low:
                    scale_into(out, near, weights[t, h], value, far, dim)
                else:
                    maximum_product_(out, near, weights[t, h], value, far, dim)


def largest(counters, chunks, indptr, indices, weights, value, out):
    """Write out[i, h] = the largest of weights[e, h] * value[j, h] over the row; of none 0."""
    chunk = take_chunk(counters)
    while chunk < chunks:
        first, last = rows_of(indptr, chunk, chunks)
        _largest_rows(first, last, indptr, indices, weights, value, out)
        chunk = next_chunk(counters)


@shared_part
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


def divide(counters, chunks, indptr, indices, weights, value, out, grad, share, to_weights):
    """Write share[i, h] = grad[i, h] / edges that have out[i, h]; also of weights if wanted."""
    chunk = take_chunk(counters)
    while chunk < chunks:
        first, last = rows_of(indptr, chunk, chunks)
        _share_rows(first, last, indptr, indices, weights, value, out, grad, share, to_weights)
        chunk = next_chunk(counters)


@shared_part
def _source_rows(first, last, indptr, targets, perm, weights, value, out, share, to_value):
    heads, dim, width = value.shape[1], value.shape[2], value.shape[1] * value.shape[2]
    prefetched = first_to_prefetch(indptr[first], value)
    for j in range(first, last):
        low, high = indptr[j], indptr[j + 1]
        clear(to_value, j * width, width)
        for t in range(low, high):
            while prefetched < min(t + AHEAD, high):
                prefetch_rows(targets, prefetched, prefetched + AHEAD, out, width)
                prefetch_rows(targets, prefetched, prefetched + AHEAD, share, width)
                prefetched += AHEAD
            e = edge_of(perm, t)
            for h in range(heads):
                own, i = (j * heads + h) * dim, (targets[t] * heads + h) * dim
                add_hits(to_value, own, weights[e, h], value, own, out, i, share, i, dim)


def gather(counters, chunks, indptr, targets, perm, weights, value, out, share, to_value):
    """Write the gradient of the values: of each source's edges that have the largest value."""
    chunk = take_chunk(counters)
    while chunk < chunks:
        first, last = rows_of(indptr, chunk, chunks)
        _source_rows(first, last, indptr, targets, perm, weights, value, out, share, to_value)
        chunk = next_chunk(counters)


def aggregate_max(indptr: Tensor, indices: Tensor, weights: Tensor, value: Tensor) -> Tensor:
    """Largest weights[e, h] * value[j, h] by row and feature [N, H, D], in the type of sums."""
    weights, value = widened(weights, value)
    out = empty((indptr.size(0) - 1, value.size(1), value.size(2)), value)
    work, chunks = weights.numel() * value.size(2), launch.chunks_of(indptr, weights)
    launch.run(largest, work, chunks, indptr, indices, weights, value, out)
    return out


def aggregate_max_backward(
    indptr: Tensor, indices: Tensor, t_indptr: Tensor, targets: Tensor, perm: Tensor,
    grad: Tensor, out: Tensor, weights: Tensor, value: Tensor, of_weights: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Gradients of weights ([0] if not prefetched for) and value; equal edges of a row share it."""
    dtypes = weights.dtype, value.dtype
    grad, out, weights, value = widened(grad, out, weights, value)
    share, to_value = empty(out.shape, out), empty(value.shape, value)
    to_weights = empty(weights.shape, weights) if of_weights else weights.new_empty(0, 0)
    work, chunks = weights.numel() * value.size(2), launch.chunks_of(indptr, weights)
    shared = weights, value, out, grad, share, to_weights
    launch.run(divide, work, chunks, indptr, indices, *shared)
    chunks = launch.chunks_of(t_indptr, weights)
    gathered = weights, value, out, share, to_value
    launch.run(gather, work, chunks, t_indptr, targets, perm, *gathered)
    to_weights = to_weights if of_weights else to_weights.flatten()
    return to_weights.to(dtypes[0]), to_value.to(dtypes[1])
