"""CPU backend: compiled loops over rows, no tensor with both an edge axis and a feature axis."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import Tensor

from graphtheory.ops.backends import _numba_again as again
from graphtheory.ops.backends import _numba_kernels as loops
from graphtheory.ops.backends import _numba_run as calls
from graphtheory.ops.backends import _numba_whole as whole
from graphtheory.ops.backends._pages import empty
from graphtheory.ops.backends._wide import widened

# Multiply-adds of a sum below which rows stay whole: three loops become one. Above, hubs are shared
# out, and rows asked for ahead where they are far. What three loops took of the time of one when
# near rows were asked for, too, 8 heads of 16, on an EPYC: 1.4 million 1.3, 2.6 million 1.0, 3.8
# million 0.9, 7.7 million 0.7; molecules, whose edges are short, 1.4 to 1.3 at any size.
_WHOLE = 2**22
# Bytes of the weights [E, H] from which on they are not kept for the backward pass.
_HANDED = 2**26
_EXP = 32  # an exponential costs as much as so many multiply-adds


def dot(indptr: Tensor, indices: Tensor, query: Tensor, key: Tensor) -> Tensor:
    """Dot products [E, H] of wide tensors."""
    out = empty((indices.size(0), query.size(1)), query)
    work, chunks = out.numel() * key.size(2), calls.chunks_of(indptr, out)
    calls.run(loops.edge_dot, work, chunks, indptr, indices, query, key, out)
    return out


def softmax_(
    indptr: Tensor, logits: Tensor, scale: float = 1.0, bias: Tensor | None = None,
    bucket: Tensor | None = None, table: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Softmax in place."""
    given = (*calls.options(logits, bias, bucket, table), calls.number(scale, logits))
    work, chunks = _EXP * logits.numel(), calls.chunks_of(indptr, logits)
    calls.run(loops.softmax, work, chunks, indptr, logits, *given, logits)
    return logits


def few(indices: Tensor, value: Tensor) -> bool:
    """Whether the multiply-adds of a sum are so few that rows stay whole."""
    return indices.size(0) * value.size(1) * value.size(2) < _WHOLE


def hands_over(num_edges: int, num_heads: int, itemsize: int) -> bool:
    """Whether the backward pass is given the weights [E, H]; else it computes them again."""
    return num_edges * num_heads * itemsize < _HANDED


def run_whole(
    loop: Callable[..., None], weights: Tensor, value: Tensor, *args: Any, passes: int = 1
) -> None:
    """Launch a loop over whole rows, whose first argument is the row pointers."""
    work = passes * weights.numel() * (2 * value.size(2) + _EXP)
    calls.run(loop, work, calls.chunks_of(args[0], weights), *args, passes=passes)


def softmax_backward_(
    indptr: Tensor, weights: Tensor, grad: Tensor, bucket: Tensor | None = None,
    num_buckets: int = 0, dropout: float = 0.0, seed: int = 0,
) -> Tensor:  # fmt: skip
    """Gradient of the logits in place of `grad`; returns the gradient of the table."""
    chunks = calls.chunks_of(indptr, weights)
    tables = calls.tables_of(weights, chunks, num_buckets)
    arrays = (weights, grad, calls.buckets(bucket), dropout, seed, grad, tables)
    calls.run(loops.softmax_backward, 4 * weights.numel(), chunks, indptr, *arrays)
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
    calls.run(loops.aggregate, work, chunks, *arrays)
    calls.run_merge(loops.merge, carried, carry, out)
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


def attention(
    indptr: Tensor, indices: Tensor, query: Tensor, key: Tensor, value: Tensor,
    bias: Tensor | None, bucket: Tensor | None, table: Tensor | None,
    scale: float, dropout: float, seed: Tensor | None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Output as `query`, and the weights [E, H] before dropout in the type of the sums.

    Of many weights the norm of rows [num_dst, 2, H] instead, see `_numba_again`.
    """
    dtype, drawn = query.dtype, 0 if seed is None else int(seed)
    query, key, value = widened(query, key, value)
    edges, heads = indices.size(0), query.size(1)
    if not hands_over(edges, heads, query.element_size()):
        nodes, drop = (indptr, indices, query, key, value), (dropout, drawn)
        out, norm = again.attention(*nodes, bias, bucket, table, scale, *drop)
        return out.to(dtype), norm
    if few(indices, value):
        out, weights = empty(query.shape, query), empty((edges, heads), query)
        arrays = (indptr, indices, query, key, value)
        given = (*calls.options(weights, bias, bucket, table), calls.number(scale, weights))
        numbers = (calls.number(1.0, weights), dropout, drawn)
        run_whole(whole.forward, weights, value, *arrays, *given, *numbers, weights, out)
        return out.to(dtype), weights
    weights = softmax_(indptr, dot(indptr, indices, query, key), scale, bias, bucket, table)
    out = sums(indptr, indices, weights, value, dropout=dropout, seed=drawn)
    return out.to(dtype), weights


def attention_backward(
    indptr: Tensor, indices: Tensor, t_indptr: Tensor, receivers: Tensor, perm: Tensor,
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, saved: Tensor,
    bucket: Tensor | None, num_buckets: int, scale: float, dropout: float, seed: Tensor | None,
    *, bias: Tensor | None, table: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of query, key, value, the logits [E, H] and the bias table [num_buckets, H].

    Without a transposed structure, whose pointers then are empty, key and value get nothing. Where
    the norm is given, not the weights, the logits get [0, H] unless there is a bias by edge.
    """
    dtype, drawn = query.dtype, 0 if seed is None else int(seed)
    backward: Callable[..., Any] = _backward_of_whole_rows if few(indices, value) else _backward
    if saved.dim() == 3:
        backward = partial(again.attention_backward, bias=bias, table=table)
    nodes = widened(grad, query, key, value, saved)
    of_query, of_key, of_value, logits, of_table = backward(
        indptr, indices, t_indptr, receivers, perm, *nodes, bucket, num_buckets, scale, dropout,
        drawn,
    )  # fmt: skip
    return of_query.to(dtype), of_key.to(dtype), of_value.to(dtype), logits, of_table


def _backward_of_whole_rows(
    indptr: Tensor, indices: Tensor, t_indptr: Tensor, receivers: Tensor, perm: Tensor,
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, weights: Tensor,
    bucket: Tensor | None, num_buckets: int, scale: float, dropout: float, seed: int,
) -> tuple[Tensor, ...]:  # fmt: skip
    of_query, of_key, of_value, logits = (empty(t.shape, t) for t in (query, key, value, weights))
    tables = calls.tables_of(weights, calls.chunks_of(indptr, weights), num_buckets)
    run_whole(
        whole.backward, weights, value, indptr, indices, t_indptr, receivers, perm, grad, query,
        key, value, weights, calls.buckets(bucket), calls.number(scale, grad),
        calls.number(1.0, grad), dropout, seed, logits, of_query, tables, of_key, of_value,
        passes=2 if t_indptr.numel() else 1,
    )  # fmt: skip
    return of_query, of_key, of_value, logits, calls.sum_tables(tables, num_buckets, weights)


def _backward(
    indptr: Tensor, indices: Tensor, t_indptr: Tensor, receivers: Tensor, perm: Tensor,
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, weights: Tensor,
    bucket: Tensor | None, num_buckets: int, scale: float, dropout: float, seed: int,
) -> tuple[Tensor, ...]:  # fmt: skip
    logits = dot(indptr, indices, grad, value)  # so far the gradient of the weights
    drop = (dropout, seed)
    of_table = softmax_backward_(indptr, weights, logits, bucket, num_buckets, *drop)
    of_query = sums(indptr, indices, logits, key, scale=scale)
    of_key, of_value = (t.new_empty(t.shape) for t in (key, value))
    if t_indptr.numel():
        of_key = sums(t_indptr, receivers, logits, query, perm, scale)
        of_value = sums(t_indptr, receivers, weights, grad, perm, 1.0, *drop)
    return of_query, of_key, of_value, logits, of_table
