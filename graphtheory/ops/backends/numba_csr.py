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
from graphtheory.ops.backends._pages import empty
from graphtheory.ops.backends._wide import widened

# Multiply-adds of a sum below which rows stay whole: three loops become one. Above, rows are asked
# for ahead, which near ones need not be, and hubs are shared. What three loops take of the time of
# one, 8 heads of 16, on an EPYC: 1.4 million 1.3, 2.6 million 1.0, 3.8 million 0.9, 7.7 million
# 0.7; molecules, whose edges are short, 1.4 to 1.3 at any size.
_WHOLE = 2**22
# Bytes of the weights [E, H] from which on they are not kept for the backward pass, and how many
# of those that it computes again it holds at once.
_HANDED = 2**26
_AT_ONCE = 3 * 2**23
_EXP = 32  # an exponential costs as much as so many multiply-adds
# NumPy's: where this module is imported while torch traces, torch would make fake ones.
_NO_EDGES: Any = np.empty(0, np.int64)
NO_BUCKETS: Any = np.empty(0, np.uint8)
NO_ROWS: Any = {t: np.empty((0, 0), n) for t, n in (
    (torch.float32, np.float32), (torch.float64, np.float64)
)}  # fmt: skip


def _arrays(*args: Any) -> list[Any]:
    return [a.numpy() if isinstance(a, Tensor) else a for a in args]


def chunks_of(indptr: Tensor, per_edge: Tensor) -> int:
    """Number of chunks of a structure, whose edges are the first axis of `per_edge`."""
    return loops.count_chunks(indptr.size(0) - 1, per_edge.size(0))


def run(loop: Callable[..., None], work: int, chunks: int, *args: Any) -> None:
    """Launch a loop over chunks of rows on tensors and numbers."""
    launch(loop, chunks, work, chunks, *_arrays(*args))


def number(x: float, like: Tensor) -> np.floating[Any]:
    """Of the type of the sums."""
    return np.float64(x) if like.dtype == torch.float64 else np.float32(x)


def dot(
    indptr: Tensor, indices: Tensor, query: Tensor, key: Tensor, head: int = 0,
    out: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Dot products [E, H] of wide tensors, or in `out` those of some heads from `head` on."""
    if out is None:
        out = empty((indices.size(0), query.size(1)), query)
    work, chunks = out.numel() * key.size(2), chunks_of(indptr, out)
    run(loops.edge_dot, work, chunks, indptr, indices, query, key, head, out)
    return out


def softmax_(
    indptr: Tensor, logits: Tensor, scale: float = 1.0, bias: Tensor | None = None,
    bucket: Tensor | None = None, table: Tensor | None = None, head: int = 0,
) -> Tensor:  # fmt: skip
    """Softmax in place; the logits may be those of some heads from `head` on."""
    numbers = (logits, *options(logits, bias, bucket, table), number(scale, logits), head)
    run(loops.softmax, _EXP * logits.numel(), chunks_of(indptr, logits), indptr, *numbers, logits)
    return logits


def options(
    like: Tensor, bias: Tensor | None, bucket: Tensor | None, table: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Absent parts as empty arrays, so that one machine code serves all."""
    none = NO_ROWS[like.dtype]
    bias, table = (
        none if t is None else t.detach().to(like.dtype).contiguous() for t in (bias, table)
    )
    return bias, _buckets(bucket), table


def _buckets(bucket: Tensor | None) -> Tensor:
    return NO_BUCKETS if bucket is None else bucket.contiguous()


def _tables(weights: Tensor, chunks: int, num_buckets: int) -> Tensor:
    """One [Z * H] a chunk."""
    if num_buckets == 0:
        return NO_ROWS[weights.dtype]
    return weights.new_empty(chunks, num_buckets * weights.size(1))


def _of_table(tables: Tensor, num_buckets: int, weights: Tensor) -> Tensor:
    """Their sum [Z, H]."""
    heads = weights.size(1)
    return tables.sum(0).view(num_buckets, heads) if num_buckets else weights.new_empty(0, heads)


def few(indices: Tensor, value: Tensor) -> bool:
    """Whether the multiply-adds of a sum are so few that rows stay whole."""
    return indices.size(0) * value.size(1) * value.size(2) < _WHOLE


def hands_over(num_edges: int, num_heads: int, itemsize: int) -> bool:
    """Whether the backward pass is given the weights [E, H]; else it computes them again."""
    return num_edges * num_heads * itemsize < _HANDED


def _heads_at_once(num_edges: int, num_heads: int, itemsize: int, room: int = 0) -> int:
    """Of heads whose weights are not kept: the most whose weights are few or fit `room` bytes.

    It divides all heads.
    """
    most = max(1, max(_AT_ONCE, room) // (num_edges * itemsize))
    return max(n for n in range(1, min(most, num_heads) + 1) if num_heads % n == 0)


def run_whole(loop: Callable[..., None], weights: Tensor, value: Tensor, *args: Any) -> None:
    """Launch a loop of `_numba_whole`, whose first argument is the row pointers."""
    work = weights.numel() * (2 * value.size(2) + _EXP)
    run(loop, work, chunks_of(args[0], weights), *args)


def softmax_backward_(
    indptr: Tensor, weights: Tensor, grad: Tensor, bucket: Tensor | None = None,
    num_buckets: int = 0, dropout: float = 0.0, seed: int = 0, head: int = 0,
    of_all: int | None = None,
) -> Tensor:  # fmt: skip
    """Gradient of the logits in place of `grad`; returns the gradient of the table.

    The weights may be those of some heads from `head` on, `of_all` there are.
    """
    chunks = chunks_of(indptr, weights)
    tables = _tables(weights, chunks, num_buckets)
    heads = (head, weights.size(1) if of_all is None else of_all)
    arrays = (weights, grad, _buckets(bucket), dropout, seed, *heads, grad, tables)
    run(loops.softmax_backward, 4 * weights.numel(), chunks, indptr, *arrays)
    return _of_table(tables, num_buckets, weights)


def sums(
    indptr: Tensor, indices: Tensor, weights: Tensor, value: Tensor, perm: Tensor = _NO_EDGES,
    scale: float = 1.0, dropout: float = 0.0, seed: int = 0, head: int = 0,
    out: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Sums [N, H, D] of wide tensors, scaled, by the weights that dropout keeps.

    The weights may be those of some heads from `head` on, which then are written to `out`.
    """
    if out is None:
        out = empty((indptr.size(0) - 1, value.size(1), value.size(2)), value)
    work, chunks = weights.numel() * value.size(2), chunks_of(indptr, weights)
    carried, carry = torch.empty(chunks, dtype=torch.int64), out.new_empty(chunks, *out.shape[1:])
    numbers = (number(scale, value), dropout, seed, head)
    arrays = (indptr, indices, perm, weights, value, *numbers, out, carried, carry)
    run(loops.aggregate, work, chunks, *arrays)
    launch(
        loops.merge,
        chunks,
        0,
        chunks,
        *_arrays(carried, carry),
        head,
        weights.size(1),
        *_arrays(out),
    )
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
    """Output as `query`, and the weights [E, H] before dropout in the type of the sums.

    Of many weights none are returned, [0, H], and the backward pass computes them again.
    """
    dtype, drawn = query.dtype, 0 if seed is None else int(seed)
    query, key, value = widened(query, key, value)
    out = empty(query.shape, query)
    (edges, heads), size = (indices.size(0), query.size(1)), query.element_size()
    kept = bias is not None or hands_over(edges, heads, size)
    if kept and few(indices, value):
        weights = empty((edges, heads), query)
        arrays = (indptr, indices, query, key, value)
        given = (*options(weights, bias, bucket, table), number(scale, weights))
        numbers = (number(1.0, weights), dropout, drawn)
        run_whole(whole.forward, weights, value, *arrays, *given, *numbers, weights, out)
        return out.to(dtype), weights
    # They go before the backward pass writes gradients that are larger; those of `empty` stay.
    part = heads if kept else _heads_at_once(edges, heads, size, out.nbytes)
    weights = empty((edges, heads), query) if kept else query.new_empty(edges, part)
    for head in range(0, heads, part):
        dot(indptr, indices, query, key, head, weights)
        softmax_(indptr, weights, scale, bias, bucket, table, head)
        sums(indptr, indices, weights, value, dropout=dropout, seed=drawn, head=head, out=out)
    return out.to(dtype), weights if kept else query.new_empty(0, heads)


def attention_backward(
    indptr: Tensor, indices: Tensor, t_indptr: Tensor, receivers: Tensor, perm: Tensor,
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, weights: Tensor,
    bucket: Tensor | None, num_buckets: int, scale: float, dropout: float, seed: Tensor | None,
    table: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of query, key, value, the logits [E, H] and the bias table [num_buckets, H].

    Without a transposed structure, whose pointers then are empty, key and value get nothing;
    without weights the logits get nothing, [0, H].
    """
    dtype, drawn = query.dtype, 0 if seed is None else int(seed)
    grad, query, key, value, weights = widened(grad, query, key, value, weights)
    of_query, of_key, of_value = (empty(t.shape, t) for t in (query, key, value))
    edges, heads = indices.size(0), query.size(1)
    kept = weights.size(0) == edges
    if kept and few(indices, value):
        logits, one, times = empty(weights.shape, grad), number(1.0, grad), number(scale, grad)
        tables = _tables(weights, chunks_of(indptr, weights), num_buckets)
        arrays = (indptr, indices, key, value, grad, weights, _buckets(bucket))
        outs = (logits, of_query, tables)
        run_whole(whole.backward, weights, value, *arrays, times, dropout, drawn, *outs)
        if t_indptr.numel():
            back = (t_indptr, receivers, perm, query, grad, logits, weights)
            numbers = (times, one, dropout, drawn)
            run_whole(whole.backward_senders, weights, value, *back, *numbers, of_key, of_value)
        of_table = _of_table(tables, num_buckets, weights)
        return of_query.to(dtype), of_key.to(dtype), of_value.to(dtype), logits, of_table
    part = heads if kept else _heads_at_once(edges, heads, query.element_size())
    logits, of_tables = empty((edges, part), grad), []
    if not kept:
        weights = empty((edges, part), grad)
    for head in range(0, heads, part):
        if not kept:
            dot(indptr, indices, query, key, head, weights)
            softmax_(indptr, weights, scale, None, bucket, table, head)
        dot(indptr, indices, grad, value, head, logits)  # so far the gradient of the weights
        drop = (dropout, drawn, head)
        of_tables.append(
            softmax_backward_(indptr, weights, logits, bucket, num_buckets, *drop, heads)
        )
        sums(indptr, indices, logits, key, scale=scale, head=head, out=of_query)
        if t_indptr.numel():
            sums(t_indptr, receivers, logits, query, perm, scale, head=head, out=of_key)
            sums(t_indptr, receivers, weights, grad, perm, 1.0, *drop, out=of_value)
    if not kept:
        logits = grad.new_empty(0, heads)
    of_table = torch.cat(of_tables, 1)
    return of_query.to(dtype), of_key.to(dtype), of_value.to(dtype), logits, of_table
