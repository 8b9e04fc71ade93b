"""Attention with features of edges on a GPU: kernels that each do one step, weights [E, H] kept.

Logits, softmax and sums are launches of their own, since the features would double what a program
of the fused kernel holds in registers; no tensor has an edge axis and a feature axis but the
features and, if asked for, their gradient.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from graphtheory.ops.backends.triton import edges as edge_kernels
from graphtheory.ops.backends.triton import features as kernels
from graphtheory.ops.backends.triton import sums as sum_kernels
from graphtheory.ops.backends.triton.launch import (
    by_bucket,
    over_logits,
    over_rows,
    plain,
    sum_type,
)
from graphtheory.ops.dropout import dropout_factor


class _Part(NamedTuple):
    """Features [E, D] or row numbers [E], and the places of D or R that they have in sums."""

    features: Tensor | None
    row: Tensor | None
    first: int
    dim: int

    def of(self, wide: Tensor) -> Tensor:
        """The part of queries or sums [N, H, D + R] that is this one's."""
        return wide[..., self.first : self.first + self.dim].contiguous()


def _parts(features: Tensor | None, row: Tensor | None, num_rows: int) -> list[_Part]:
    found = []
    dim = 0 if features is None else features.size(1)
    if features is not None:
        found.append(_Part(plain(features)[0], None, 0, dim))
    if row is not None:
        found.append(_Part(None, plain(row)[0], dim, num_rows))
    return [part for part in found if part.dim]


def _dot(indptr: Tensor, indices: Tensor, query: Tensor, key: Tensor) -> Tensor:
    """Dot products [E, H] in the type of the sums."""
    (heads, dim), acc = query.shape[1:], sum_type(query)
    out = query.new_empty(indices.size(0), heads, dtype=acc)
    over_rows(
        edge_kernels.dot, indptr, (heads, dim), [], [*plain(indices, query, key), out], ACC=acc
    )
    return out


def _add_dots(indptr: Tensor, parts: list[_Part], query: Tensor, logits: Tensor) -> None:
    for part in parts:
        args = [part.of(query.detach()), part.features, part.row, logits]
        shape = (logits.size(1), part.dim)
        over_rows(kernels.dots, indptr, shape, [], args, ACC=logits.dtype)


def _sums(indptr: Tensor, weights: Tensor, parts: list[_Part], scale: float) -> Tensor:
    """Sums [N, H, D + R] by weights [E, H]."""
    num_dst, heads = indptr.size(0) - 1, weights.size(1)
    found = [weights.new_empty(num_dst, heads, 0)]
    for part in parts:
        out = weights.new_empty(num_dst, heads, part.dim)
        args = [weights, part.features, part.row, scale]
        over_rows(kernels.sums, indptr, (heads, part.dim), [out], args, ACC=weights.dtype)
        found.append(out)
    return torch.cat(found, 2)


def _dropped(weights: Tensor, dropout: float, seed: Tensor | None) -> Tensor:
    return weights if seed is None else weights * dropout_factor(dropout, seed, weights)


def attention(
    indptr: Tensor, indices: Tensor, query: Tensor, key: Tensor, value: Tensor,
    features: Tensor | None, edge_query: Tensor | None, row: Tensor | None, num_rows: int,
    bias: Tensor | None, bucket: Tensor | None, table: Tensor | None,
    scale: float, dropout: float, seed: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Output as `query`; sums [N, H, D + R] and weights [E, H] in the type of the sums."""
    parts = _parts(features, row, num_rows)
    logits = _dot(indptr, indices, query, key)
    if edge_query is not None:
        _add_dots(indptr, parts, edge_query, logits)
    logits *= scale
    if bias is not None:
        logits += bias.detach()
    if bucket is not None and table is not None:
        logits += table.detach()[bucket.long()]
    weights, acc = torch.empty_like(logits), logits.dtype
    over_logits(edge_kernels.softmax, indptr, query.size(1), [logits, weights], acc)
    dropped = _dropped(weights, dropout, seed)
    out = torch.empty_like(query, memory_format=torch.contiguous_format)
    args = [*plain(indices, None, dropped, value), None, None, 1.0]
    shape = (query.size(1), query.size(2))
    over_rows(sum_kernels.weighted, indptr, shape, [out, None], args, ACC=acc)
    return out, _sums(indptr, dropped, parts, 1.0), weights


def attention_backward(
    indptr: Tensor, indices: Tensor, t_indptr: Tensor, sources_rows: Tensor, perm: Tensor,
    grad: Tensor, grad_sums: Tensor, query: Tensor, key: Tensor, value: Tensor,
    features: Tensor | None, edge_query: Tensor | None, row: Tensor | None, num_rows: int,
    weights: Tensor, bucket: Tensor | None, num_buckets: int, of_features: bool,
    scale: float, dropout: float, seed: Tensor | None,
    *, out: Tensor | None, bias: Tensor | None, table: Tensor | None, sums: Tensor | None,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Gradients of query, key, value, edge query, features, logits and the bias table.

    What is absent, or not asked for by `of_features`, gets [0].
    """
    parts = _parts(features, row, num_rows)
    shape, acc = (query.size(1), query.size(2)), weights.dtype
    up = _dot(indptr, indices, grad, value)
    _add_dots(indptr, parts, grad_sums, up)
    up = _dropped(up, dropout, seed)
    logits = torch.empty_like(up)
    over_logits(edge_kernels.softmax_backward, indptr, shape[0], [weights, up, logits], acc)
    dropped = _dropped(weights, dropout, seed)
    of_query, of_key, of_value = (
        torch.empty_like(t, memory_format=torch.contiguous_format) for t in (query, key, value)
    )
    args = [*plain(indices, None, logits, key), None, None, scale]
    over_rows(sum_kernels.weighted, indptr, shape, [of_query, None], args, ACC=acc)
    args = [*plain(sources_rows, perm, logits, query, dropped, grad), scale]
    over_rows(sum_kernels.weighted, t_indptr, shape, [of_key, of_value], args, ACC=acc)
    of_asked = of_edges = weights.new_empty(0)
    if edge_query is not None:
        of_asked = _sums(indptr, logits, parts, scale)
    if of_features and features is not None:
        part, of_edges = parts[0] if parts else None, weights.new_empty(features.shape)
        if part is not None and part.features is not None:
            asked = None if edge_query is None else part.of(edge_query.detach())
            args = [logits, asked, dropped, part.of(grad_sums), of_edges, scale]
            over_rows(kernels.slopes, indptr, (1, part.dim), [], args, OF=shape[0], ACC=acc)
    of_table = by_bucket(bucket, logits, num_buckets)
    return of_query, of_key, of_value, of_asked, of_edges, logits, of_table
