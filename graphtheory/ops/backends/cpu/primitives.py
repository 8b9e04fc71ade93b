"""Dot products, softmax and sums of rows, on tensors and on wide tensors within other calls."""

from __future__ import annotations

from torch import Tensor

from graphtheory.ops.backends.cpu import run as calls
from graphtheory.ops.backends.cpu.attention import rows
from graphtheory.ops.backends.cpu.memory import empty
from graphtheory.ops.backends.precision import widened

EXP = 32  # an exponential costs as much as so many multiply-adds


def dot(indptr: Tensor, indices: Tensor, query: Tensor, key: Tensor) -> Tensor:
    """Dot products [E, H] of wide tensors."""
    out = empty((indices.size(0), query.size(1)), query)
    work, chunks = out.numel() * key.size(2), calls.chunks_of(indptr, out)
    calls.run(rows.edge_dot, work, chunks, indptr, indices, query, key, out)
    return out


def softmax_(
    indptr: Tensor, logits: Tensor, scale: float = 1.0, bias: Tensor | None = None,
    bucket: Tensor | None = None, table: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Softmax in place."""
    given = (*calls.options(logits, bias, bucket, table), calls.number(scale, logits))
    work, chunks = EXP * logits.numel(), calls.chunks_of(indptr, logits)
    calls.run(rows.softmax, work, chunks, indptr, logits, *given, logits)
    return logits


def softmax_backward_(
    indptr: Tensor, weights: Tensor, grad: Tensor, bucket: Tensor | None = None,
    num_buckets: int = 0, dropout: float = 0.0, seed: int = 0,
) -> Tensor:  # fmt: skip
    """Gradient of the logits in place of `grad`; returns the gradient of the table."""
    chunks = calls.chunks_of(indptr, weights)
    tables = calls.tables_of(weights, chunks, num_buckets)
    arrays = (weights, grad, calls.buckets(bucket), dropout, seed, grad, tables)
    calls.run(rows.softmax_backward, 4 * weights.numel(), chunks, indptr, *arrays)
    return calls.sum_tables(tables, num_buckets, weights)


def sums(
    indptr: Tensor, indices: Tensor, weights: Tensor, value: Tensor, perm: Tensor = calls.NO_EDGES,
    scale: float = 1.0, dropout: float = 0.0, seed: int = 0,
) -> Tensor:  # fmt: skip
    """Sums [N, H, D] of wide tensors, scaled, by the weights that dropout keeps."""
    out = empty((indptr.size(0) - 1, value.size(1), value.size(2)), value)
    work, chunks = weights.numel() * value.size(2), calls.chunks_of(indptr, weights)
    carried, carry = calls.room_to_carry(chunks, out)
    numbers = (calls.number(scale, value), dropout, seed)
    arrays = (indptr, indices, perm, weights, value, *numbers, out, carried, carry)
    calls.run(rows.aggregate, work, chunks, *arrays)
    calls.run_merge(rows.merge, carried, carry, out)
    return out


def edge_dot(indptr: Tensor, indices: Tensor, query: Tensor, key: Tensor) -> Tensor:
    """Logits [E, H]."""
    dtype = query.dtype
    query, key = widened(query, key)
    return dot(indptr, indices, query, key).to(dtype)


def edge_softmax(indptr: Tensor, logits: Tensor) -> Tensor:
    """Weights [E, H]."""
    (wide,) = widened(logits)
    return softmax_(indptr, wide.clone()).to(logits.dtype)


def edge_softmax_backward(indptr: Tensor, weights: Tensor, grad: Tensor) -> Tensor:
    """Gradient of the logits [E, H]."""
    wide, grad = widened(weights, grad)
    grad = grad.clone()
    softmax_backward_(indptr, wide, grad)
    return grad.to(weights.dtype)


def aggregate(
    indptr: Tensor, indices: Tensor, weights: Tensor, value: Tensor, perm: Tensor = calls.NO_EDGES
) -> Tensor:
    """Sums [N, H, D]; entry t of a row has the weight of edge perm[t], if `perm` is given."""
    dtype = value.dtype
    weights, value = widened(weights, value)
    return sums(indptr, indices, weights, value, perm).to(dtype)
