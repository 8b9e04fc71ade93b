"""Attention whose weights are so many that the backward pass computes them again.

The norm of rows [N, 2, H] is kept: the largest logit, and one over the sum of exponentials of the
logits less it. The loops are those of `tiles`; tensors are wide.
"""

from __future__ import annotations

from torch import Tensor

from graphtheory.ops.backends.cpu import run as calls
from graphtheory.ops.backends.cpu.attention import tiles as tiles
from graphtheory.ops.backends.cpu.attention import tiles_backward as backward
from graphtheory.ops.backends.cpu.attention.rows import merge
from graphtheory.ops.backends.cpu.memory import empty


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
    calls.run_merge(tiles.merge_rows, carried, *carry, norm, out)
    return out, norm


def attention_backward(
    indptr: Tensor, indices: Tensor, t_indptr: Tensor, targets: Tensor, perm: Tensor,
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, norm: Tensor,
    bucket: Tensor | None, num_buckets: int, scale: float, dropout: float, seed: int,
    *, bias: Tensor | None, table: Tensor | None,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Gradients of query, key, value, the logits and the table; of logits without bias [0, H].

    Without a transposed structure those of query alone.
    """
    (rows, heads, dim), chunks = query.shape, calls.chunks_of(indptr, indices)
    work, nodes = 5 * len(indices) * heads * dim, (query, key, value, grad)
    numbers = (calls.number(scale, grad), dropout, seed)
    given = (*calls.options(grad, bias, bucket, table), *numbers)
    of_query, of_key, of_value = (empty(t.shape, t) for t in (query, key, value))
    facts = grad.new_empty(rows, 3, heads)
    carried, rest, *carry = calls.room_to_carry(chunks, query, query, query, facts)
    sums = (of_query, facts, rest)
    calls.run(
        backward.by_target, work, chunks, indptr, indices, *nodes, norm, *given, *sums, carried,
        *carry,
    )  # fmt: skip
    calls.run_merge(backward.merge_queries, carried, *carry, norm, numbers[0], *sums)
    logits = grad.new_empty(0, heads) if bias is None else empty(bias.shape, grad)
    chunks = calls.chunks_of(t_indptr, targets)
    tables = calls.tables_of(logits, chunks, num_buckets)
    if t_indptr.numel():
        carried, *carry = calls.room_to_carry(chunks, key, value)
        outs = (of_key, of_value, logits, tables, carried, *carry)
        graph = (t_indptr, targets, perm)
        calls.run(backward.by_source, work, chunks, *graph, *nodes, facts, *given, *outs)
        calls.run_merge(merge, carried, carry[0], of_key)
        calls.run_merge(merge, carried, carry[1], of_value)
    return of_query, of_key, of_value, logits, calls.sum_tables(tables, num_buckets, logits)
