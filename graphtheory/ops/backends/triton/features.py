"""Attention with features of edges on a GPU: kernels that each do one step, weights [E, H] kept.

Logits, softmax and sums are launches of their own, since the features would double what a program
of the fused kernel holds in registers; no tensor has an edge axis and a feature axis but the
features and, if asked for, their gradient. A program holds the features of its edges once for all
heads of its tile. A row number counts as a vector with a single 1, which is made in registers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from graphtheory.ops.backends.triton import primitives
from graphtheory.ops.backends.triton.launch import (
    by_bucket,
    over_logits,
    over_rows,
    plain,
    room,
    room_like,
    weighted_sums,
)
from graphtheory.ops.backends.triton.primitives import (
    SIZES,
    cast,
    features,
    next_edges,
    own,
    per_edge,
    put_own,
    put_per_edge,
    span,
)
from graphtheory.ops.call import sum_type
from graphtheory.ops.dropout import dropout_factor
from graphtheory.ops.recorded import made


@triton.jit
def _of_edges(given, row, edge, live, C: tl.constexpr, DIM: tl.constexpr, ACC: tl.constexpr):
    """The features of each edge, [R, B, C], or the vector that its row number stands for."""
    at = tl.arange(0, C)
    if row is not None:
        found = tl.load(row + edge, mask=live, other=0).to(tl.int32)
        hit = (found[:, :, None] == at[None, None, :]) & live[:, :, None]
        out = tl.where(hit, tl.full((), 1.0, ACC), tl.full((), 0.0, ACC))
    else:
        mask = live[:, :, None] & (at < DIM)[None, None, :]
        place = given + edge[:, :, None] * DIM + at[None, None, :]
        out = tl.load(place, mask=mask, other=0).to(ACC)
    return out


@triton.jit(do_not_specialize=SIZES)
def add_dots(
    rows, starts, indptr, count,
    query, given, of_edge, out, scale: tl.float64,
    HEADS: tl.constexpr, DIM: tl.constexpr, ACC: tl.constexpr,
    CHUNK: tl.constexpr, R: tl.constexpr, B: tl.constexpr, G: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Add <query[i, h], features of e> to out[e, h], and multiply the sum by the scale."""
    row, _, live, start, stop = span(rows, starts, indptr, count, R, CHUNK)
    head, head_live, column, exists = features(HEADS, DIM, G, C)
    q = own(query, row, live, column, exists, HEADS * DIM, ACC)
    longest = tl.max(stop - start, 0).to(tl.int32)
    for offset in range(0, longest, B):
        edge, here = next_edges(start, stop, offset, B)
        f = _of_edges(given, of_edge, edge, here, C, DIM, ACC)
        more = tl.sum(tl.reshape(q, (R, 1, G, C)) * f[:, :, None, :], 3)
        found = per_edge(out, edge, here, head, head_live, HEADS, ACC) + more
        put_per_edge(out, edge, here, head, head_live, found * cast(scale, ACC), HEADS)


@triton.jit(do_not_specialize=SIZES)
def feature_sums(
    rows, starts, indptr, count, out,
    weights, given, row, scale: tl.float64,
    HEADS: tl.constexpr, DIM: tl.constexpr, ACC: tl.constexpr,
    CHUNK: tl.constexpr, R: tl.constexpr, B: tl.constexpr, G: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Write scale * sum over the row of weights[e, h] * features of e."""
    _, place, live, start, stop = span(rows, starts, indptr, count, R, CHUNK)
    head, head_live, column, exists = features(HEADS, DIM, G, C)
    total = tl.zeros((R, G * C), ACC)
    longest = tl.max(stop - start, 0).to(tl.int32)
    for offset in range(0, longest, B):
        edge, here = next_edges(start, stop, offset, B)
        w = per_edge(weights, edge, here, head, head_live, HEADS, ACC)
        f = _of_edges(given, row, edge, here, C, DIM, ACC)
        products = w[:, :, :, None] * f[:, :, None, :]
        total += tl.sum(tl.reshape(products, (R, B, G * C)), 1)
    put_own(out, place, live, column, exists, total * cast(scale, ACC), HEADS * DIM)


@triton.jit(do_not_specialize=SIZES)
def feature_grads(
    rows, starts, indptr, count,
    logits, query, weights, grad, out, scale: tl.float64,
    OF: tl.constexpr,
    HEADS: tl.constexpr, DIM: tl.constexpr, ACC: tl.constexpr,
    CHUNK: tl.constexpr, R: tl.constexpr, B: tl.constexpr, G: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Write sums over OF heads of scale * logits[e] * query[i] + weights[e] * grad[i], [E, D]."""
    row, _, live, start, stop = span(rows, starts, indptr, count, R, CHUNK)
    _, _, column, exists = features(HEADS, DIM, G, C)
    longest = tl.max(stop - start, 0).to(tl.int32)
    for offset in range(0, longest, B):
        edge, here = next_edges(start, stop, offset, B)
        total = tl.zeros((R, B, C), ACC)
        for h in range(OF):
            place = edge * OF + h
            w = tl.load(weights + place, mask=here, other=0).to(ACC)
            g = own(grad + h * DIM, row, live, column, exists, OF * DIM, ACC)
            total += w[:, :, None] * g[:, None, :]
            if query is not None:
                s = tl.load(logits + place, mask=here, other=0).to(ACC) * cast(scale, ACC)
                q = own(query + h * DIM, row, live, column, exists, OF * DIM, ACC)
                total += s[:, :, None] * q[:, None, :]
        mask = here[:, :, None] & exists[None, None, :]
        tl.store(out + edge[:, :, None] * DIM + column[None, None, :], total, mask=mask)


class _Part(NamedTuple):
    """Features [E, D] or row numbers [E], and the places of D or R that they have in sums."""

    features: Tensor | None
    row: Tensor | None
    first: int
    dim: int

    def of(self, wide: Tensor) -> Tensor:
        """The part of queries or sums [N, H, D + R] that is this one's."""
        if self.dim == wide.size(2):
            return wide if wide.is_contiguous() else made(Tensor.contiguous, wide)
        at = slice(self.first, self.first + self.dim)
        return made(lambda wide: wide[..., at].contiguous(), wide)


def _parts(features: Tensor | None, row: Tensor | None, num_rows: int) -> list[_Part]:
    found = []
    dim = 0 if features is None else features.size(1)
    if features is not None:
        found.append(_Part(plain(features)[0], None, 0, dim))
    if row is not None:
        found.append(_Part(None, plain(row)[0], dim, num_rows))
    return [part for part in found if part.dim]


def edge_dot(
    indptr: Tensor, indices: Tensor, query: Tensor, key: Tensor, *, wide: bool = False
) -> Tensor:
    """Logits [E, H], as `query` or in the type of the sums."""
    acc = sum_type(query, key)
    dtype = acc if wide else query.dtype
    out = room(query, indices.size(0), query.size(1), dtype=dtype)
    args = [*plain(indices, query, key), out]
    over_rows(primitives.dot, indptr, query.shape[1:], [], args, ACC=acc)
    return out


def _add_dots(
    indptr: Tensor, parts: list[_Part], query: Tensor, logits: Tensor, scale: float = 1.0
) -> None:
    for part in parts:
        last = part is parts[-1]
        args = [part.of(query), part.features, part.row, logits, scale if last else 1.0]
        shape = (logits.size(1), part.dim)
        over_rows(add_dots, indptr, shape, [], args, ACC=logits.dtype)


def _sums(indptr: Tensor, weights: Tensor, parts: list[_Part], scale: float) -> Tensor:
    num_dst, heads = indptr.size(0) - 1, weights.size(1)
    found = []
    for part in parts:
        out = room(weights, num_dst, heads, part.dim)
        args = [weights, part.features, part.row, scale]
        over_rows(feature_sums, indptr, (heads, part.dim), [out], args, ACC=weights.dtype)
        found.append(out)
    if not found:
        return room(weights, num_dst, heads, 0)
    return found[0] if len(found) == 1 else made(lambda *some: torch.cat(some, 2), *found)


def _dropped(weights: Tensor, dropout: float, seed: Tensor | None) -> Tensor:
    if seed is None:
        return weights
    return made(lambda w, seed: w * dropout_factor(dropout, seed, w), weights, seed)


def edge_attention(
    indptr: Tensor, indices: Tensor, query: Tensor, key: Tensor, value: Tensor,
    features: Tensor | None, edge_query: Tensor | None, row: Tensor | None, num_rows: int,
    bias: Tensor | None, bucket: Tensor | None, table: Tensor | None,
    scale: float, dropout: float, seed: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Output as `query`; sums [N, H, D + R] and weights [E, H] in the type of the sums."""
    parts = _parts(features, row, num_rows)
    logits = edge_dot(indptr, indices, query, key, wide=True)
    if edge_query is not None and parts:
        _add_dots(indptr, parts, edge_query, logits, scale)
    else:
        made(lambda logits: logits.mul_(scale), logits)
    if bias is not None:
        made(lambda logits, bias: logits.add_(bias.detach()), logits, bias)
    if bucket is not None and table is not None:
        made(
            lambda logits, table, row: logits.add_(table.detach()[row.long()]),
            logits,
            table,
            bucket,
        )
    weights, acc = over_logits(primitives.softmax, indptr, logits), logits.dtype
    dropped = _dropped(weights, dropout, seed)
    (out,) = room_like(query)
    weighted_sums(indptr, indices, None, dropped, value, out, acc)
    return out, _sums(indptr, dropped, parts, 1.0), weights


def edge_attention_backward(
    indptr: Tensor, indices: Tensor, t_indptr: Tensor, sources_rows: Tensor, perm: Tensor,
    grad: Tensor, grad_sums: Tensor, query: Tensor, key: Tensor, value: Tensor,
    features: Tensor | None, edge_query: Tensor | None, row: Tensor | None, num_rows: int,
    weights: Tensor, bucket: Tensor | None, num_buckets: int, of_features: bool,
    scale: float, dropout: float, seed: Tensor | None, into: Sequence[Tensor] = (),
) -> tuple[Tensor, ...]:  # fmt: skip
    """Gradients of query, key, value, edge query, features, logits and table; [0] of the absent.

    The first three are written `into` tensors without gaps, if there are any.
    """
    parts = _parts(features, row, num_rows)
    shape, acc = query.shape[1:], weights.dtype
    up = edge_dot(indptr, indices, grad, value, wide=True)
    _add_dots(indptr, parts, grad_sums, up)
    up = _dropped(up, dropout, seed)
    logits = over_logits(primitives.softmax_backward, indptr, weights, up)
    dropped = _dropped(weights, dropout, seed)
    of_query, of_key, of_value = into or room_like(query, key, value)
    weighted_sums(indptr, indices, None, logits, key, of_query, acc, scale)
    args = [*plain(sources_rows, perm, logits, query, dropped, grad), None, None, scale]
    outs = [of_key, of_value]
    over_rows(primitives.weighted, t_indptr, shape, outs, args, ACC=acc, BY_NODE=False)
    of_edge_query = of_edges = room(weights, 0)
    if edge_query is not None:
        of_edge_query = _sums(indptr, logits, parts, scale)
    if of_features and features is not None:
        part, of_edges = parts[0] if parts else None, room(weights, *features.shape)
        if part is not None and part.features is not None:
            own = None if edge_query is None else part.of(edge_query)
            args = [logits, own, dropped, part.of(grad_sums), of_edges, scale]
            over_rows(feature_grads, indptr, (1, part.dim), [], args, OF=shape[0], ACC=acc)
    of_table = by_bucket(bucket, logits, num_buckets)
    return of_query, of_key, of_value, of_edge_query, of_edges, logits, of_table
