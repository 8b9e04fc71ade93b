"""Attention whose weights are so many that the backward pass computes them again.

The norm of rows [N, 2, H] is kept: a size near the largest logit, and one over the sum of
exponentials of the logits less it. The loops are those of `_numba_tiles`; tensors are wide.
"""

from __future__ import annotations

from torch import Tensor

from graphtheory.ops.backends import _numba_run as calls
from graphtheory.ops.backends import _numba_tiles as tiles
from graphtheory.ops.backends import _numba_tiles_backward as backward
from graphtheory.ops.backends._numba_kernels import merge
from graphtheory.ops.backends._pages import empty


def attention(
    indptr: Tensor, indices: Tensor, query: Tensor, key: Tensor, value: Tensor,
    bias: Tensor | None, bucket: Tensor | None, table: Tensor | None,
    scale: float, dropout: float, seed: int,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Output, and the norm of rows."""
    (rows, heads, dim), chunks = query.shape, calls.chunks_of(indptr, indices)
    out, norm = empty(query.shape, query), query.new_empty(rows, 2, heads)
    carried, *carry = calls.room_to_carry(chunks, out, norm)
    arrays = (indptr, indices, query, key, value, *calls.options(query, bias, bucket, table))
    numbers, work = (calls.number(scale, query), dropout, seed), 2 * len(indices) * heads * dim
    calls.run(tiles.forward, work, chunks, *arrays, *numbers, norm, out, carried, *carry)
    calls.merge(tiles.merge, carried, *carry, norm, out)
    return out, norm


def attention_backward(
    indptr: Tensor, indices: Tensor, t_indptr: Tensor, receivers: Tensor, perm: Tensor,
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, norm: Tensor,
    bucket: Tensor | None, num_buckets: int, scale: float, dropout: float, seed: int,
    *, out: Tensor, bias: Tensor | None, table: Tensor | None,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Gradients of query, key, value, the logits and the table; of logits without bias [0, H]."""
    (rows, heads, dim), chunks = query.shape, calls.chunks_of(indptr, indices)
    facts, work = grad.new_empty(rows, 3, heads), 4 * len(indices) * heads * dim
    calls.run(
        backward.know_rows, grad.numel(), calls.chunks_of(indptr, out), norm, grad, out, facts
    )
    given = (*calls.options(grad, bias, bucket, table), calls.number(scale, grad), dropout, seed)
    nodes = (query, key, value, grad, facts, *given)
    of_query, logits = empty(query.shape, query), grad.new_empty(0, heads)
    if bias is not None:
        logits = empty(bias.shape, grad)
    tables = calls.tables_of(logits, chunks, num_buckets)
    carried, carry = calls.room_to_carry(chunks, of_query)
    outs = (logits, tables, of_query, carried, carry)
    calls.run(backward.by_receiver, work, chunks, indptr, indices, *nodes, *outs)
    calls.merge(merge, carried, carry, of_query)
    of_key, of_value = empty(key.shape, key), empty(value.shape, value)
    if t_indptr.numel():
        chunks, graph = calls.chunks_of(t_indptr, receivers), (t_indptr, receivers, perm)
        carried, *carries = calls.room_to_carry(chunks, key, value)
        of_senders = (of_key, of_value, carried, *carries)
        calls.run(backward.by_sender, work, chunks, *graph, *nodes, *of_senders)
        calls.merge(merge, carried, carries[0], of_key)
        calls.merge(merge, carried, carries[1], of_value)
    return of_query, of_key, of_value, logits, calls.sum_tables(tables, num_buckets, logits)
