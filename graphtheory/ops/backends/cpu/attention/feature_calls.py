"""Attention with features of edges: the loops of `rows` and those of `features` in turn.

The weights [E, H] are kept for the backward pass at any size.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from graphtheory.ops.backends.cpu import run as calls
from graphtheory.ops.backends.cpu.attention import features as loops
from graphtheory.ops.backends.cpu.memory import empty
from graphtheory.ops.backends.cpu.primitives import EXP, dot, sums
from graphtheory.ops.backends.precision import widened


class EdgeRows(NamedTuple):
    """Features [E, D], their order [E], and row numbers [E] of edges; each may have no rows."""

    features: Tensor
    order: Tensor
    row: Tensor

    @classmethod
    def of(
        cls, features: Tensor | None, row: Tensor | None, like: Tensor, order: Tensor | None = None
    ) -> EdgeRows:
        """Edge e has row order[e] of the features."""
        order = calls.NO_EDGES if order is None else order.contiguous()
        return cls(_rows(features, like), order, calls.buckets(row))

    def attend(
        self, indptr: Tensor, logits: Tensor, query: Tensor, width: int, scale: float,
        bias: Tensor | None, bucket: Tensor | None, table: Tensor | None, dropout: float, seed: int,
    ) -> Tensor:  # fmt: skip
        """Softmax of dot products [E, H] and those with the features, in place; sums [N, H, width].

        Queries without rows add nothing; the sums are by the weights that dropout keeps.
        """
        out = empty((indptr.size(0) - 1, logits.size(1), width), logits)
        work, chunks = (EXP + 2 * width) * logits.numel(), calls.chunks_of(indptr, logits)
        numbers = (*(calls.number(x, logits) for x in (scale, 1.0)), dropout, seed)
        given = calls.options(logits, bias, bucket, table)
        calls.run(
            loops.attend, work, chunks, indptr, query, *self, *given, *numbers, logits, out
        )  # fmt: skip
        return out

    def attend_backward(
        self, indptr: Tensor, weights: Tensor, grad: Tensor, grad_sums: Tensor, width: int,
        scale: float, bucket: Tensor | None, num_buckets: int, dropout: float, seed: int,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """The gradient of the logits in place of `grad`, of the kept weights and nodes alone.

        Returns:
            The gradient of the table, and the sums [N, H, width] of the features by that of the
            logits; of width 0 none.
        """
        out = empty((indptr.size(0) - 1, weights.size(1), width), weights)
        work, chunks = (4 + 2 * width) * weights.numel(), calls.chunks_of(indptr, weights)
        tables = calls.tables_of(weights, chunks, num_buckets)
        given = (weights, calls.buckets(bucket), calls.number(scale, weights), dropout, seed)
        calls.run(
            loops.attend_backward, work, chunks, indptr, grad_sums, *self, *given, grad, tables, out
        )  # fmt: skip
        return calls.sum_tables(tables, num_buckets, weights), out

    def slopes(
        self, indptr: Tensor, logits: Tensor, query: Tensor, scale: float, weights: Tensor,
        grad_sums: Tensor, dropout: float, seed: int,
    ) -> Tensor:  # fmt: skip
        """The gradient of the features, in their order."""
        out = empty(self.features.shape, logits)
        work, chunks = 2 * logits.numel() * out.size(1), calls.chunks_of(indptr, logits)
        numbers = (weights, grad_sums, dropout, seed, self.order)
        given = (indptr, logits, query, calls.number(scale, logits), *numbers, out)
        calls.run(loops.slopes, work, chunks, *given)
        return out


def _rows(tensor: Tensor | None, like: Tensor) -> Tensor:
    """In the type of the sums; of nothing [0, 0]."""
    if tensor is None:
        return calls.NO_ROWS[like.dtype]
    return tensor.detach().to(like.dtype).contiguous()


def attention(
    indptr: Tensor, indices: Tensor, query: Tensor, key: Tensor, value: Tensor,
    features: Tensor | None, edge_query: Tensor | None, row: Tensor | None, num_rows: int,
    bias: Tensor | None, bucket: Tensor | None, table: Tensor | None,
    scale: float, dropout: float, seed: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Output as `query`; sums [N, H, D + R] and weights [E, H] in the type of the sums."""
    dtype, drop = query.dtype, (dropout, 0 if seed is None else int(seed))
    query, key, value = widened(query, key, value)
    edges = EdgeRows.of(features, row, query)
    weights = dot(indptr, indices, query, key)  # so far the logits
    asked, width = _queries(edge_query, query), edges.features.shape[1] + num_rows
    found = edges.attend(indptr, weights, asked, width, scale, bias, bucket, table, *drop)
    out = sums(indptr, indices, weights, value, dropout=dropout, seed=drop[1])
    return out.to(dtype), found, weights


def _queries(edge_query: Tensor | None, like: Tensor) -> Tensor:
    """In the type of the sums; of nothing [0, H, 0]."""
    if edge_query is None:
        return like.new_empty(0, like.size(1), 0)
    return edge_query.detach().to(like.dtype).contiguous()


def attention_backward(
    indptr: Tensor, indices: Tensor, t_indptr: Tensor, targets: Tensor, perm: Tensor,
    grad: Tensor, grad_sums: Tensor, query: Tensor, key: Tensor, value: Tensor,
    features: Tensor | None, edge_query: Tensor | None, row: Tensor | None, num_rows: int,
    weights: Tensor, bucket: Tensor | None, num_buckets: int, of_features: bool,
    scale: float, dropout: float, seed: Tensor | None,
    *, bias: Tensor | None, table: Tensor | None,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Gradients of query, key, value, edge query, features, logits and the bias table.

    What is absent, or not asked for by `of_features`, gets [0].
    """
    dtype, drop = query.dtype, (dropout, 0 if seed is None else int(seed))
    grad, query, key, value, weights = widened(grad, query, key, value, weights)
    edges, asked = EdgeRows.of(features, row, query), _queries(edge_query, query)
    grad_sums, of_edges = _queries(grad_sums, query), weights.new_empty(0)
    logits = dot(indptr, indices, grad, value)  # so far the gradient of the weights
    of_table, of_asked = edges.attend_backward(
        indptr, weights, logits, grad_sums, asked.size(2), scale, bucket, num_buckets, *drop
    )
    of_asked = weights.new_empty(0) if edge_query is None else of_asked
    of_query = sums(indptr, indices, logits, key, scale=scale)
    if of_features:
        of_edges = edges.slopes(indptr, logits, asked, scale, weights, grad_sums, *drop)
    of_key, of_value = (t.new_empty(t.shape) for t in (key, value))
    if t_indptr.numel():
        of_key = sums(t_indptr, targets, logits, query, perm, scale)
        of_value = sums(t_indptr, targets, weights, grad, perm, 1.0, *drop)
    nodes = (t.to(dtype) for t in (of_query, of_key, of_value))
    return (*nodes, of_asked, of_edges, logits, of_table)
