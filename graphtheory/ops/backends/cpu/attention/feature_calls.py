"""Attention with features of edges: the loops of `rows` and those of `features` in turn.

The weights [E, H] are kept for the backward pass at any size.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from graphtheory.ops.backends.cpu import run as calls
from graphtheory.ops.backends.cpu.attention import features as loops
from graphtheory.ops.backends.cpu.attention.rows import merge
from graphtheory.ops.backends.cpu.memory import empty
from graphtheory.ops.backends.cpu.primitives import dot, softmax_, softmax_backward_, sums
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

    def add_dots(self, indptr: Tensor, query: Tensor, logits: Tensor) -> None:
        """To dot products [E, H]; queries without rows add nothing."""
        if query.numel():
            work, chunks = logits.numel() * query.size(2), calls.chunks_of(indptr, logits)
            calls.run(loops.dots, work, chunks, indptr, query, *self, logits)

    def sums(
        self, indptr: Tensor, weights: Tensor, width: int, scale: float, dropout: float, seed: int
    ) -> Tensor:
        """Sums [N, H, width] by the weights that dropout keeps."""
        out = empty((indptr.size(0) - 1, weights.size(1), width), weights)
        work, chunks = weights.numel() * width, calls.chunks_of(indptr, weights)
        carried, carry = calls.room_to_carry(chunks, out)
        numbers = (calls.number(scale, weights), dropout, seed)
        calls.run(loops.sums, work, chunks, indptr, weights, *numbers, *self, out, carried, carry)
        calls.run_merge(merge, carried, carry, out)
        return out

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
    logits = dot(indptr, indices, query, key)
    edges.add_dots(indptr, _queries(edge_query, query), logits)
    weights = softmax_(indptr, logits, scale, bias, bucket, table)
    out = sums(indptr, indices, weights, value, dropout=dropout, seed=drop[1])
    width = num_rows + (0 if features is None else features.size(1))
    return out.to(dtype), edges.sums(indptr, weights, width, 1.0, *drop), weights


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
    grad_sums = _queries(grad_sums, query)
    logits = dot(indptr, indices, grad, value)  # so far the gradient of the weights
    edges.add_dots(indptr, grad_sums, logits)
    of_table = softmax_backward_(indptr, weights, logits, bucket, num_buckets, *drop)
    of_query = sums(indptr, indices, logits, key, scale=scale)
    of_asked = of_edges = weights.new_empty(0)
    if edge_query is not None:
        of_asked = edges.sums(indptr, logits, edge_query.size(2), scale, 0.0, 0)
    if of_features:
        of_edges = edges.slopes(indptr, logits, asked, scale, weights, grad_sums, *drop)
    of_key, of_value = (t.new_empty(t.shape) for t in (key, value))
    if t_indptr.numel():
        of_key = sums(t_indptr, targets, logits, query, perm, scale)
        of_value = sums(t_indptr, targets, weights, grad, perm, 1.0, *drop)
    nodes = (t.to(dtype) for t in (of_query, of_key, of_value))
    return (*nodes, of_asked, of_edges, logits, of_table)
