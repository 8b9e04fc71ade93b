"""CPU backend: compiled loops over rows, no tensor with both an edge axis and a feature axis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphtheory.ops.backends import _numba_kernels as loops
from graphtheory.ops.backends import _numba_whole as whole
from graphtheory.ops.backends._launch import launch
from graphtheory.ops.backends._wide import widened

# Multiply-adds of a sum below which rows stay whole, so that three loops become one. Above, where
# node arrays outgrow the cache, two of them at once cost more than launches, and hubs are shared.
_WHOLE = 2**23
_EXP = 32  # an exponential costs as much as so many multiply-adds
_NO_EDGES = torch.empty(0, dtype=torch.int64)
_NO_BUCKETS = torch.empty(0, dtype=torch.uint8)


def _arrays(*args: Any) -> list[Any]:
    return [a.numpy() if isinstance(a, Tensor) else a for a in args]


def chunks_of(indptr: Tensor, per_edge: Tensor) -> int:
    """Number of chunks of a structure, whose edges are the first axis of `per_edge`."""
    return loops.count_chunks(indptr.size(0) - 1, per_edge.size(0))


def run(loop: Callable[..., None], work: int, chunks: int, *args: Any) -> None:
    """Launch a loop over chunks of rows on tensors and numbers."""
    launch(loop, chunks, work, chunks, *_arrays(*args))


def _number(x: float, like: Tensor) -> np.floating[Any]:
    return np.float64(x) if like.dtype == torch.float64 else np.float32(x)


def dot(indptr: Tensor, indices: Tensor, query: Tensor, key: Tensor) -> Tensor:
    """Dot products [E, H] of wide tensors."""
    out = query.new_empty(indices.size(0), query.size(1))
    work, chunks = out.numel() * key.size(2), chunks_of(indptr, out)
    run(loops.edge_dot, work, chunks, indptr, indices, query, key, out)
    return out


def softmax_(
    indptr: Tensor, logits: Tensor, scale: float = 1.0, bias: Tensor | None = None,
    bucket: Tensor | None = None, table: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Softmax in place."""
    numbers = (logits, *_options(logits, bias, bucket, table), _number(scale, logits))
    run(loops.softmax, _EXP * logits.numel(), chunks_of(indptr, logits), indptr, *numbers, logits)
    return logits


def _options(
    like: Tensor, bias: Tensor | None, bucket: Tensor | None, table: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Absent parts as empty arrays, so that one machine code serves all."""
    none = like.new_empty(0, like.size(1))
    bias, table = (
        none if t is None else t.detach().to(like.dtype).contiguous() for t in (bias, table)
    )
    return bias, _buckets(bucket), table


def _buckets(bucket: Tensor | None) -> Tensor:
    return _NO_BUCKETS if bucket is None else bucket.contiguous()


def _tables(weights: Tensor, chunks: int, num_buckets: int) -> Tensor:
    return weights.new_empty(chunks if num_buckets else 0, num_buckets * weights.size(1))


def _few(indices: Tensor, value: Tensor) -> bool:
    """Whether rows stay whole."""
    return indices.size(0) * value.size(1) * value.size(2) < _WHOLE


def _run_whole(loop: Callable[..., None], weights: Tensor, value: Tensor, *args: Any) -> None:
    """Launch a loop of `_numba_whole`, whose first argument is the row pointers."""
    work = weights.numel() * (2 * value.size(2) + _EXP)
    run(loop, work, chunks_of(args[0], weights), *args)


def softmax_backward_(
    indptr: Tensor, weights: Tensor, grad: Tensor, bucket: Tensor | None = None,
    num_buckets: int = 0, dropout: float = 0.0, seed: int = 0,
) -> Tensor:  # fmt: skip
    """Gradient of the logits in place of `grad`; returns the gradient of the table."""
    chunks = chunks_of(indptr, weights)
    tables = _tables(weights, chunks, num_buckets)
    arrays = (weights, grad, _buckets(bucket), dropout, seed, grad, tables)
    run(loops.softmax_backward, 4 * weights.numel(), chunks, indptr, *arrays)
    return tables.sum(0).view(num_buckets, weights.size(1))


def sums(
    indptr: Tensor, indices: Tensor, weights: Tensor, value: Tensor, perm: Tensor = _NO_EDGES,
    scale: float = 1.0, dropout: float = 0.0, seed: int = 0,
) -> Tensor:  # fmt: skip
    """Sums [N, H, D] of wide tensors, scaled, by the weights that dropout keeps."""
    out = value.new_empty(indptr.size(0) - 1, value.size(1), value.size(2))
    work, chunks = weights.numel() * value.size(2), chunks_of(indptr, weights)
    carried, carry = torch.empty(chunks, dtype=torch.int64), out.new_empty(chunks, *out.shape[1:])
    numbers = (_number(scale, value), dropout, seed)
    arrays = (indptr, indices, perm, weights, value, *numbers, out, carried, carry)
    run(loops.aggregate, work, chunks, *arrays)
    launch(loops.merge, chunks, 0, *_arrays(carried, carry, out))
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
    indptr: Tensor, indices: Tensor, weights: Tensor, value: Tensor, perm: Tensor = _NO_EDGES
) -> Tensor:
    """Sums [N, H, D]; entry t of a row has the weight of edge perm[t], if `perm` is given."""
    dtype = value.dtype
    weights, value = widened(weights, value)
    return sums(indptr, indices, weights, value, perm).to(dtype)


def attention(
    indptr: Tensor, indices: Tensor, query: Tensor, key: Tensor, value: Tensor,
    bias: Tensor | None, bucket: Tensor | None, table: Tensor | None,
    scale: float, dropout: float, seed: Tensor | None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Output as `query`, and the weights [E, H] before dropout in the type of the sums."""
    dtype, drawn = query.dtype, 0 if seed is None else int(seed)
    query, key, value = widened(query, key, value)
    if _few(indices, value):
        weights, out = query.new_empty(indices.size(0), query.size(1)), torch.empty_like(query)
        arrays = (indptr, indices, _NO_EDGES, query, key, value)
        options = (*_options(weights, bias, bucket, table), _number(scale, weights))
        numbers = (_number(1.0, weights), dropout, drawn)
        _run_whole(whole.forward, weights, value, *arrays, *options, *numbers, weights, out)
        return out.to(dtype), weights
    weights = dot(indptr, indices, query, key)
    softmax_(indptr, weights, scale, bias, bucket, table)
    out = sums(indptr, indices, weights, value, dropout=dropout, seed=drawn)
    return out.to(dtype), weights


def attention_backward(
    indptr: Tensor, indices: Tensor, t_indptr: Tensor, receivers: Tensor, perm: Tensor,
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, weights: Tensor,
    bucket: Tensor | None, num_buckets: int, scale: float, dropout: float, seed: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of query, key, value, the logits [E, H] and the bias table [num_buckets, H].

    Without a transposed structure, whose pointers then are empty, key and value get nothing.
    """
    dtype, drawn = query.dtype, 0 if seed is None else int(seed)
    grad, query, key, value, weights = widened(grad, query, key, value, weights)
    if _few(indices, value) and t_indptr.numel():
        of_query, of_key, of_value = (torch.empty_like(t) for t in (query, key, value))
        logits, one, times = torch.empty_like(weights), _number(1.0, grad), _number(scale, grad)
        tables = _tables(weights, chunks_of(indptr, weights), num_buckets)
        arrays = (indptr, indices, _NO_EDGES, key, value, grad, weights, _buckets(bucket))
        outs = (logits, of_query, tables)
        _run_whole(whole.backward, weights, value, *arrays, times, dropout, drawn, *outs)
        back = (t_indptr, receivers, perm, query, grad, logits, weights)
        numbers = (times, one, dropout, drawn)
        _run_whole(whole.backward_senders, weights, value, *back, *numbers, of_key, of_value)
        table = tables.sum(0).view(num_buckets, weights.size(1))
        return of_query.to(dtype), of_key.to(dtype), of_value.to(dtype), logits, table
    logits = dot(indptr, indices, grad, value)  # so far the gradient of the weights
    table = softmax_backward_(indptr, weights, logits, bucket, num_buckets, dropout, drawn)
    of_query = sums(indptr, indices, logits, key, scale=scale)
    if t_indptr.numel() == 0:
        return of_query.to(dtype), torch.empty_like(key), torch.empty_like(value), logits, table
    of_key = sums(t_indptr, receivers, logits, query, perm, scale)
    of_value = sums(t_indptr, receivers, weights, grad, perm, 1.0, dropout, drawn)
    return of_query.to(dtype), of_key.to(dtype), of_value.to(dtype), logits, table
