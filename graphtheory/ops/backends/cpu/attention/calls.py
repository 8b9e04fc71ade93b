"""Attention on CSR rows in the regime that suits its size; see the README of the folder above.

With features of edges it is always the three loops, of which those of `features` take the place of
the softmax, and the weights [E, H] are kept for the backward pass at any size.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from torch import Tensor

from graphtheory.ops.backends.cpu import launch
from graphtheory.ops.backends.cpu.attention import features as loops
from graphtheory.ops.backends.cpu.attention import rows, tiles
from graphtheory.ops.backends.cpu.launch import ONE, cast, options
from graphtheory.ops.backends.cpu.memory import empty, keeps_weights, rows_stay_whole
from graphtheory.ops.backends.cpu.primitives import EXP, dot, softmax_, softmax_backward_, sums
from graphtheory.ops.call import widened


def run_whole(
    loop: Callable[..., None], weights: Tensor, value: Tensor, *args: Any, passes: int = 1
) -> None:
    """Launch a loop over whole rows, whose first argument is the row pointers."""
    work = passes * weights.numel() * (2 * value.size(2) + EXP)
    launch.run(loop, work, launch.chunks_of(args[0], weights), *args, passes=passes)


def attention(
    indptr: Tensor, indices: Tensor, query: Tensor, key: Tensor, value: Tensor,
    bias: Tensor | None, bucket: Tensor | None, table: Tensor | None,
    scale: float, dropout: float, seed: Tensor | None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Output as `query`, and weights [E, H] before dropout or, of many, statistics; see `tiles`."""
    dtype, drop = query.dtype, (dropout, 0 if seed is None else int(seed))
    query, key, value = widened(query, key, value)
    edges, (num_rows, heads, dim) = indices.size(0), query.shape
    keeps = keeps_weights(edges, heads, query.element_size())
    if keeps and not rows_stay_whole(indices, value):
        weights = softmax_(indptr, dot(indptr, indices, query, key), scale, bias, bucket, table)
        out = sums(indptr, indices, weights, value, dropout=dropout, seed=drop[1])
        return out.to(dtype), weights
    given = (*options(query, bias, bucket, table), cast(scale, query))
    out = empty(query.shape, query)
    if keeps:
        weights = empty((edges, heads), query)
        run_whole(
            rows.whole_forward, weights, value, indptr, indices, query, key, value, *given,
            ONE[query.dtype], *drop, weights, out,
        )  # fmt: skip
        return out.to(dtype), weights
    work, chunks = 2 * edges * heads * dim, launch.chunks_of(indptr, indices)
    stats = query.new_empty(num_rows, 2, heads)
    split_row, *partials = launch.partial_buffers(chunks, out, stats)
    launch.run(
        tiles.forward, work, chunks, indptr, indices, query, key, value, *given, *drop, stats,
        out, split_row, *partials,
    )  # fmt: skip
    launch.run_merge(tiles.merge_rows, split_row, *partials, stats, out)
    return out.to(dtype), stats


def attention_backward(
    indptr: Tensor, indices: Tensor, t_indptr: Tensor, targets: Tensor, perm: Tensor,
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, saved: Tensor,
    bucket: Tensor | None, num_buckets: int, scale: float, dropout: float, seed: Tensor | None,
    *, bias: Tensor | None, table: Tensor | None,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Gradients of query, of key and value if there are sources, of logits and the bias table."""
    dtype, drop = query.dtype, (dropout, 0 if seed is None else int(seed))
    nodes = widened(grad, query, key, value, saved)
    backward: Callable[..., tuple[Tensor, ...]] = _three_loops_backward
    if saved.dim() == 3:
        backward = partial(_recomputed_backward, bias=bias, table=table)
    elif rows_stay_whole(indices, value):
        backward = _whole_backward
    *of_nodes, logits, of_table = backward(
        indptr, indices, t_indptr, targets, perm, *nodes, bucket, num_buckets, scale, *drop
    )
    return *(t.to(dtype) for t in of_nodes), logits, of_table


def _whole_backward(
    indptr: Tensor, indices: Tensor, t_indptr: Tensor, targets: Tensor, perm: Tensor,
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, weights: Tensor,
    bucket: Tensor | None, num_buckets: int, scale: float, dropout: float, seed: int,
) -> tuple[Tensor, ...]:  # fmt: skip
    of_query, of_key, of_value, logits = (empty(t.shape, t) for t in (query, key, value, weights))
    tables = launch.tables_of(weights, launch.chunks_of(indptr, weights), num_buckets)
    run_whole(
        rows.whole_backward, weights, value, indptr, indices, t_indptr, targets, perm, grad, query,
        key, value, weights, launch.buckets(bucket), cast(scale, grad), ONE[grad.dtype], dropout,
        seed, logits, of_query, tables, of_key, of_value, passes=2 if t_indptr.numel() else 1,
    )  # fmt: skip
    return of_query, of_key, of_value, logits, launch.sum_tables(tables, num_buckets, weights)


def _three_loops_backward(
    indptr: Tensor, indices: Tensor, t_indptr: Tensor, targets: Tensor, perm: Tensor,
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, weights: Tensor,
    bucket: Tensor | None, num_buckets: int, scale: float, dropout: float, seed: int,
) -> tuple[Tensor, ...]:  # fmt: skip
    logits, drop = dot(indptr, indices, grad, value), (dropout, seed)  # so far that of the weights
    of_table = softmax_backward_(indptr, weights, logits, bucket, num_buckets, *drop)
    of_query = sums(indptr, indices, logits, key, scale=scale)
    transposed = (t_indptr, targets, perm)
    of_key, of_value = _by_source(transposed, grad, query, key, value, weights, logits, scale, drop)
    return of_query, of_key, of_value, logits, of_table


def _by_source(
    transposed: tuple[Tensor, Tensor, Tensor], grad: Tensor, query: Tensor, key: Tensor,
    value: Tensor, weights: Tensor, logits: Tensor, scale: float, drop: tuple[float, int],
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Gradients of key and value; nothing is written without a transposed structure."""
    indptr, targets, perm = transposed
    if not indptr.numel():
        return key.new_empty(key.shape), value.new_empty(value.shape)
    of_key = sums(indptr, targets, logits, query, perm, scale)
    return of_key, sums(indptr, targets, weights, grad, perm, 1.0, *drop)


def _recomputed_backward(
    indptr: Tensor, indices: Tensor, t_indptr: Tensor, targets: Tensor, perm: Tensor,
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, stats: Tensor,
    bucket: Tensor | None, num_buckets: int, scale: float, dropout: float, seed: int,
    *, bias: Tensor | None, table: Tensor | None,
) -> tuple[Tensor, ...]:  # fmt: skip
    (num_rows, heads, dim), chunks = query.shape, launch.chunks_of(indptr, indices)
    work, nodes = 5 * len(indices) * heads * dim, (query, key, value, grad)
    given = (*options(grad, bias, bucket, table), cast(scale, grad), dropout, seed)
    of_query, of_key, of_value = (empty(t.shape, t) for t in (query, key, value))
    row_stats = grad.new_empty(num_rows, 3, heads)
    split_row, rest, *partials = launch.partial_buffers(chunks, query, query, query, row_stats)
    outs = (of_query, row_stats, rest)
    launch.run(
        tiles.by_target, work, chunks, indptr, indices, *nodes, stats, *given, *outs, split_row,
        *partials,
    )  # fmt: skip
    launch.run_merge(tiles.merge_queries, split_row, *partials, stats, cast(scale, grad), *outs)
    logits = grad.new_empty(0, heads) if bias is None else empty(bias.shape, grad)
    chunks = launch.chunks_of(t_indptr, targets)
    tables = launch.tables_of(logits, chunks, num_buckets)
    if t_indptr.numel():
        split_row, *partials = launch.partial_buffers(chunks, key, value)
        launch.run(
            tiles.by_source, work, chunks, t_indptr, targets, perm, *nodes, row_stats, *given,
            of_key, of_value, logits, tables, split_row, *partials,
        )  # fmt: skip
        launch.run_merge(rows.merge, split_row, partials[0], of_key)
        launch.run_merge(rows.merge, split_row, partials[1], of_value)
    return of_query, of_key, of_value, logits, launch.sum_tables(tables, num_buckets, logits)


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
        order = launch.NO_EDGES if order is None else order.contiguous()
        return cls(launch.wide(features, like), order, launch.buckets(row))

    def attend(
        self, indptr: Tensor, logits: Tensor, query: Tensor, width: int, scale: float,
        bias: Tensor | None, bucket: Tensor | None, table: Tensor | None, dropout: float, seed: int,
    ) -> Tensor:  # fmt: skip
        """Softmax in place of dot products, to which those of features are added; their sums."""
        out = empty((indptr.size(0) - 1, logits.size(1), width), logits)
        work, chunks = (EXP + 2 * width) * logits.numel(), launch.chunks_of(indptr, logits)
        numbers = (cast(scale, logits), ONE[logits.dtype], dropout, seed)
        given = (indptr, query, *self, *options(logits, bias, bucket, table), *numbers)
        launch.run(loops.attend, work, chunks, *given, logits, out)
        return out

    def attend_backward(
        self, indptr: Tensor, weights: Tensor, grad: Tensor, grad_sums: Tensor, width: int,
        scale: float, bucket: Tensor | None, num_buckets: int, dropout: float, seed: int,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """Gradient of the logits in place of `grad`; those of the table, and of feature queries."""
        out = empty((indptr.size(0) - 1, weights.size(1), width), weights)
        work, chunks = (4 + 2 * width) * weights.numel(), launch.chunks_of(indptr, weights)
        tables = launch.tables_of(weights, chunks, num_buckets)
        numbers = (launch.buckets(bucket), cast(scale, weights), dropout, seed)
        given = (indptr, grad_sums, *self, weights, *numbers)
        launch.run(loops.attend_backward, work, chunks, *given, grad, tables, out)
        return launch.sum_tables(tables, num_buckets, weights), out

    def feature_grad(
        self, indptr: Tensor, logits: Tensor, query: Tensor, scale: float, weights: Tensor,
        grad_sums: Tensor, dropout: float, seed: int,
    ) -> Tensor:  # fmt: skip
        """The gradient of the features, in their order."""
        out = empty(self.features.shape, logits)
        work, chunks = 2 * logits.numel() * out.size(1), launch.chunks_of(indptr, logits)
        numbers = (weights, grad_sums, dropout, seed, self.order)
        given = (indptr, logits, query, cast(scale, logits), *numbers)
        launch.run(loops.feature_grad, work, chunks, *given, out)
        return out


def _queries(edge_query: Tensor | None, like: Tensor) -> Tensor:
    return (
        like.new_empty(0, like.size(1), 0) if edge_query is None else launch.wide(edge_query, like)
    )


def edge_attention(
    indptr: Tensor, indices: Tensor, query: Tensor, key: Tensor, value: Tensor,
    features: Tensor | None, edge_query: Tensor | None, row: Tensor | None, num_rows: int,
    bias: Tensor | None, bucket: Tensor | None, table: Tensor | None,
    scale: float, dropout: float, seed: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Output as `query`; sums [N, H, D + R] and weights [E, H] in the type of the sums."""
    dtype, drop = query.dtype, (dropout, 0 if seed is None else int(seed))
    query, key, value = widened(query, key, value)
    edges, weights = EdgeRows.of(features, row, query), dot(indptr, indices, query, key)
    asked, width = _queries(edge_query, query), edges.features.shape[1] + num_rows
    found = edges.attend(indptr, weights, asked, width, scale, bias, bucket, table, *drop)
    out = sums(indptr, indices, weights, value, dropout=dropout, seed=drop[1])
    return out.to(dtype), found, weights


def edge_attention_backward(
    indptr: Tensor, indices: Tensor, t_indptr: Tensor, targets: Tensor, perm: Tensor,
    grad: Tensor, grad_sums: Tensor, query: Tensor, key: Tensor, value: Tensor,
    features: Tensor | None, edge_query: Tensor | None, row: Tensor | None, num_rows: int,
    weights: Tensor, bucket: Tensor | None, num_buckets: int, of_features: bool,
    scale: float, dropout: float, seed: Tensor | None,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Gradients of query, key, value, edge query, features, logits and table; [0] of the absent."""
    dtype, drop = query.dtype, (dropout, 0 if seed is None else int(seed))
    grad, query, key, value, weights = widened(grad, query, key, value, weights)
    edges, asked = EdgeRows.of(features, row, query), _queries(edge_query, query)
    grad_sums, of_edges = _queries(grad_sums, query), weights.new_empty(0)
    logits = dot(indptr, indices, grad, value)  # so far the gradient of the weights
    of_table, of_edge_query = edges.attend_backward(
        indptr, weights, logits, grad_sums, asked.size(2), scale, bucket, num_buckets, *drop
    )
    of_edge_query = weights.new_empty(0) if edge_query is None else of_edge_query
    of_query = sums(indptr, indices, logits, key, scale=scale)
    if of_features:
        of_edges = edges.feature_grad(indptr, logits, asked, scale, weights, grad_sums, *drop)
    transposed = (t_indptr, targets, perm)
    of_sources = _by_source(transposed, grad, query, key, value, weights, logits, scale, drop)
    nodes = (t.to(dtype) for t in (of_query, *of_sources))
    return (*nodes, of_edge_query, of_edges, logits, of_table)
