"""Sums of ReLU(source + edge) and their gradient: loops over whole rows.

The conventions are those of `attention.rows`; features of edges are [E, H, D] like nodes. Edge t of
a row has row order[t] of them, or row t without `order`. Which numbers the ReLU lets through is
asked again by the same sum, so nothing by edge is kept.
"""

from __future__ import annotations

from torch import Tensor

from graphtheory.ops.backends.cpu import run as calls
from graphtheory.ops.backends.cpu.attention.rows import AHEAD, FAR, edge_of, first_row
from graphtheory.ops.backends.cpu.decorators import part
from graphtheory.ops.backends.cpu.gat.attention import columns_loop as sum_by_source
from graphtheory.ops.backends.cpu.launch import next_chunk, take_chunk
from graphtheory.ops.backends.cpu.memory import empty
from graphtheory.ops.backends.cpu.vector.lanes import add_relu, clear, relu_flow, warm
from graphtheory.ops.backends.precision import widened


@part
def _sum_rows(first, last, indptr, indices, order, value, features, out):
    width, far = value.shape[1], value.nbytes > FAR
    for i in range(first, last):
        clear(out, i * width, width)
        for t in range(indptr[i], indptr[i + 1]):
            if far:
                warm(indices, t + AHEAD, t + AHEAD + 1, value, width)
            j, e = indices[t] * width, edge_of(order, t) * width
            add_relu(out, i * width, value, j, features, e, width)


def sum_loop(turns, chunks, indptr, indices, order, value, features, out):
    """Write out[i] = the sum over the row of ReLU(value[j] + features[e])."""
    chunk = take_chunk(turns)
    while chunk < chunks:
        first, last = first_row(indptr, chunk, chunks), first_row(indptr, chunk + 1, chunks)
        _sum_rows(first, last, indptr, indices, order, value, features, out)
        chunk = next_chunk(turns)


@part
def _flow_rows(first, last, indptr, indices, order, value, features, grad, flow):
    width, far = value.shape[1], value.nbytes > FAR
    for i in range(first, last):
        for t in range(indptr[i], indptr[i + 1]):
            if far:
                warm(indices, t + AHEAD, t + AHEAD + 1, value, width)
            j, e = indices[t] * width, edge_of(order, t) * width
            relu_flow(flow, e, value, j, features, e, grad, i * width, width)


def flow_loop(turns, chunks, indptr, indices, order, value, features, grad, flow):
    """Write flow[e] = grad[i] where value[j] + features[e] is positive, else 0."""
    chunk = take_chunk(turns)
    while chunk < chunks:
        first, last = first_row(indptr, chunk, chunks), first_row(indptr, chunk + 1, chunks)
        _flow_rows(first, last, indptr, indices, order, value, features, grad, flow)
        chunk = next_chunk(turns)


def relu_sum(
    indptr: Tensor, indices: Tensor, order: Tensor, value: Tensor, features: Tensor
) -> Tensor:
    """Sums [N, H, D] in the dtype of `value`."""
    dtype = value.dtype
    value, features = widened(value, features)
    out = empty((indptr.size(0) - 1, *value.shape[1:]), value)
    flat = (t.flatten(1) for t in (value, features, out))
    chunks = calls.chunks_of(indptr, indices)
    calls.run(sum_loop, features.numel(), chunks, indptr, indices, order, *flat)
    return out.to(dtype)


def relu_sum_backward(
    indptr: Tensor, indices: Tensor, order: Tensor, t_indptr: Tensor, edges: Tensor,
    grad: Tensor, value: Tensor, features: Tensor,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Gradients of value and features."""
    dtype = value.dtype
    grad, value, features = widened(grad, value, features)
    of_value, flow = empty(value.shape, value), empty(features.shape, features)
    work, chunks = features.numel(), calls.chunks_of(indptr, indices)
    flat = (t.flatten(1) for t in (value, features, grad, flow))
    calls.run(flow_loop, work, chunks, indptr, indices, order, *flat)
    chunks = calls.chunks_of(t_indptr, indices)
    calls.run(sum_by_source, work, chunks, t_indptr, edges, flow.flatten(1), of_value.flatten(1))
    return of_value.to(dtype), flow.to(dtype)
