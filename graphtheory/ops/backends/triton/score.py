"""The additive score, and sums of messages, on a GPU: what is made of an edge lives in registers.

The gradient of `source` is summed over the rows of the transposed structure, that of `target` over
rows, and with it what a row adds to that of `att`, which torch then sums over the rows. The term of
an edge's features is computed where it is needed, from as many numbers as the edge has features;
the gradient of their matrix is added up by fixed shares of the edges. A message is that of GINE or
of a gated graph network; edge t has row order[t] of its features, or row t without `order`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from graphtheory.ops.backends.torch_csr import rows_of
from graphtheory.ops.backends.triton.bins import power, tile
from graphtheory.ops.backends.triton.launch import (
    ceiling,
    launch,
    over_rows,
    plain,
    room,
    room_like,
    weighted_sums,
)
from graphtheory.ops.backends.triton.primitives import (
    SIZES,
    by_head,
    cast,
    entries,
    features,
    gather,
    own,
    per_edge,
    put_own,
    put_per_edge,
    span,
    spread,
)
from graphtheory.ops.call import sum_type
from graphtheory.ops.recorded import made

# Edges, features of edges and features of nodes of one product in the gradient of the matrix.
_EDGES, _FEATURES, _COLUMNS = 16, 16, 128
# Shares of the edges whose sums are kept apart, and numbers of all of them: 16 MiB of float32.
_SHARES, _KEPT = 1024, 2**22


@triton.jit
def _with_term(
    z, edge, here, column, exists, given, matrix,
    EDGE_DIM: tl.constexpr, WIDTH: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Sums z [R, B, F] and the terms of edges, features times `matrix` [EDGE_DIM, WIDTH]."""
    if matrix is not None:
        for k in range(EDGE_DIM):
            f = tl.load(given + edge * EDGE_DIM + k, mask=here, other=0).to(ACC)
            m = tl.load(matrix + k * WIDTH + column, mask=exists, other=0).to(ACC)
            z += f[:, :, None] * m[None, None, :]
    return z


@triton.jit(do_not_specialize=SIZES)
def scores(
    rows, starts, indptr, count,
    indices, source, target, att, given, matrix, out, slope: tl.float64,
    EDGE_DIM: tl.constexpr, HEADS: tl.constexpr, DIM: tl.constexpr, ACC: tl.constexpr,
    CHUNK: tl.constexpr, R: tl.constexpr, B: tl.constexpr, G: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Write <att[h], leaky(source[j, h] + target[i, h] + term of e)> of rows, or of chunks."""
    row, _, live, start, stop = span(rows, starts, indptr, count, R, CHUNK)
    head, head_live, column, exists = features(HEADS, DIM, G, C)
    mine = own(target, row, live, column, exists, HEADS * DIM, ACC)
    a = tl.load(att + column, mask=exists, other=0).to(ACC)
    longest = tl.max(stop - start, 0).to(tl.int32)
    for offset in range(0, longest, B):
        edge, here, node = entries(indices, None, start, stop, offset, B)
        z = mine[:, None, :] + gather(source, node, here, column, exists, HEADS * DIM, ACC)
        z = _with_term(z, edge, here, column, exists, given, matrix, EDGE_DIM, HEADS * DIM, ACC)
        z = tl.where(z > 0, z, z * cast(slope, ACC))
        found = by_head(z * a[None, None, :], G, C)
        put_per_edge(out, edge, here, head, head_live, found, HEADS)


@triton.jit(do_not_specialize=SIZES)
def sums(
    rows, starts, indptr, count, out, leaky_out,
    indices, perm, grad, mine, other, att, given, matrix, given_out, slope: tl.float64,
    EDGE_DIM: tl.constexpr, HEADS: tl.constexpr, DIM: tl.constexpr, ACC: tl.constexpr,
    CHUNK: tl.constexpr, R: tl.constexpr, B: tl.constexpr, G: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Write the gradient of `mine`, row sums of grad * leaky(z), and each program's of features."""
    row, place, live, start, stop = span(rows, starts, indptr, count, R, CHUNK)
    head, head_live, column, exists = features(HEADS, DIM, G, C)
    here_is = own(mine, row, live, column, exists, HEADS * DIM, ACC)
    a = tl.load(att + column, mask=exists, other=0).to(ACC)
    total = tl.zeros((R, G * C), ACC)
    if leaky_out is not None:
        leaky = tl.zeros((R, G * C), ACC)
    longest = tl.max(stop - start, 0).to(tl.int32)
    for offset in range(0, longest, B):
        edge, here, node = entries(indices, perm, start, stop, offset, B)
        z = here_is[:, None, :] + gather(other, node, here, column, exists, HEADS * DIM, ACC)
        z = _with_term(z, edge, here, column, exists, given, matrix, EDGE_DIM, HEADS * DIM, ACC)
        up = per_edge(grad, edge, here, head, head_live, HEADS, ACC)
        sum_grad = spread(up, C) * tl.where(z > 0, 1.0, cast(slope, ACC))
        total += tl.sum(sum_grad, 1)
        if leaky_out is not None:
            leaky += tl.sum(tl.where(here[:, :, None], sum_grad * z, 0.0), 1)
        if given_out is not None:
            sum_grad *= a[None, None, :]
            at = given_out + (edge * tl.num_programs(1) + tl.program_id(1)) * EDGE_DIM
            for k in range(EDGE_DIM):
                m = tl.load(matrix + k * (HEADS * DIM) + column, mask=exists, other=0).to(ACC)
                tl.store(at + k, tl.sum(sum_grad * m[None, None, :], 2), mask=here)
    total = tl.where((start < stop)[:, None], total * a[None, :], 0.0)  # of none 0, whatever att is
    put_own(out, place, live, column, exists, total, HEADS * DIM)
    if leaky_out is not None:
        put_own(leaky_out, place, live, column, exists, leaky, HEADS * DIM)


@triton.jit(do_not_specialize=SIZES)
def sum_matrix(
    row, indices, grad, source, target, given, matrix, out, edges, slope: tl.float64,
    EDGE_DIM: tl.constexpr, HEADS: tl.constexpr, DIM: tl.constexpr, ACC: tl.constexpr,
    B: tl.constexpr, K: tl.constexpr, F: tl.constexpr,
):  # fmt: skip
    """Write to out[program] the gradient of `matrix` divided by att, from a share of the edges."""
    share = (edges + tl.num_programs(0) - 1).to(tl.int64) // tl.num_programs(0)
    first = tl.program_id(0) * share
    last = tl.minimum(first + share, edges)
    width: tl.constexpr = HEADS * DIM
    column, k = tl.program_id(1) * F + tl.arange(0, F), tl.program_id(2) * K + tl.arange(0, K)
    exists, known = column < width, k < EDGE_DIM
    sums = tl.zeros((K, F), ACC)
    for offset in range(first, last, B):
        edge = offset + tl.arange(0, B)[None, :]
        here = edge < last
        i = tl.load(row + edge, mask=here, other=0)
        j = tl.load(indices + edge, mask=here, other=0).to(tl.int64)
        z = gather(target, i, here, column, exists, width, ACC)
        z += gather(source, j, here, column, exists, width, ACC)
        z = _with_term(z, edge, here, column, exists, given, matrix, EDGE_DIM, width, ACC)
        up = gather(grad, edge, here, column // DIM, exists, HEADS, ACC)
        sum_grad = up * tl.where(z > 0, 1.0, cast(slope, ACC))
        mask = known[:, None] & here
        f = tl.load(given + edge * EDGE_DIM + k[:, None], mask=mask, other=0).to(ACC)
        sums += tl.dot(f, tl.reshape(sum_grad, (B, F)), input_precision="ieee", out_dtype=ACC)
    at = out + (tl.program_id(0).to(tl.int64) * EDGE_DIM + k[:, None]) * width + column[None, :]
    tl.store(at, sums, mask=known[:, None] & exists[None, :])


def _terms(given: Tensor, matrix: Tensor) -> tuple[list[Tensor | None], dict[str, Any]]:
    edge_dim = matrix.size(1)
    flat = made(_flat, matrix) if edge_dim else None
    return plain(given if edge_dim else None, flat), {"EDGE_DIM": edge_dim}


def _flat(matrix: Tensor) -> Tensor:
    """[H, K, D] as [K, H * D], as the kernels read it."""
    return matrix.transpose(0, 1).flatten(1).contiguous()


def additive_score(
    indptr: Tensor, indices: Tensor, source: Tensor, target: Tensor, att: Tensor,
    given: Tensor, matrix: Tensor, slope: float,
) -> Tensor:  # fmt: skip
    """Scores [E, H] in the dtype of `source`; `given` are the features of edges."""
    edges, (heads, dim) = indices.size(0), att.shape
    out = room(source, edges, heads)
    terms, constants = _terms(given, matrix)
    args = [*plain(indices, source, target, att), *terms, out, slope]
    acc = sum_type(source, target, att, given, matrix)
    over_rows(scores, indptr, (heads, dim), [], args, ACC=acc, **constants)
    return out


def additive_score_backward(
    indptr: Tensor, indices: Tensor, t_indptr: Tensor, sources_rows: Tensor, perm: Tensor,
    grad: Tensor, source: Tensor, target: Tensor, att: Tensor, given: Tensor, matrix: Tensor,
    slope: float, of_features: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of source, target, att, features of edges ([0] unless asked for) and matrix."""
    acc, shape = sum_type(grad, source, target, att, given, matrix), att.shape
    of_source, of_target = room_like(source, target)
    of_att = room(of_target, *of_target.shape, dtype=acc)  # [num_dst, H, C]: a row's share
    terms, constants = _terms(given, matrix)
    parts = None  # of the gradients of features, one for each program of a row
    if of_features and matrix.size(1):
        groups = ceiling(att.size(0), tile(*shape, acc).heads)
        parts = room(given, len(given), groups, matrix.size(1), dtype=acc)
    args = [*plain(indices, None, grad, target, source, att), *terms, parts, slope]
    over_rows(sums, indptr, shape, [of_target, of_att], args, ACC=acc, **constants)
    args = [*plain(sources_rows, perm, grad, source, target, att), *terms, None, slope]
    over_rows(sums, t_indptr, shape, [of_source, None], args, ACC=acc, **constants)
    if parts is None:
        size = given.shape if of_features else (0,)
        of_given = made(partial(torch.zeros, size, dtype=given.dtype, device=given.device))
    else:
        of_given = made(lambda parts: parts.sum(1), parts)
    ends = (indptr, indices, grad, source, target)
    of_matrix = _of_matrix(*ends, att, matrix, terms, slope, acc)
    return of_source, of_target, made(lambda parts: parts.sum(0), of_att), of_given, of_matrix


def _of_matrix(
    indptr: Tensor, indices: Tensor, grad: Tensor, source: Tensor, target: Tensor, att: Tensor,
    matrix: Tensor, terms: list[Tensor | None], slope: float, acc: torch.dtype,
) -> Tensor:  # fmt: skip
    (heads, edge_dim, dim), edges = matrix.shape, len(indices)
    if matrix.numel() == 0 or edges == 0:
        return made(partial(torch.zeros, matrix.shape, dtype=matrix.dtype, device=matrix.device))
    columns = min(max(power(heads * dim), 16), _COLUMNS)
    shares = max(1, min(_SHARES, ceiling(edges, _EDGES), _KEPT // matrix.numel()))
    out = room(att, shares, edge_dim, heads, dim, dtype=acc)
    row = made(partial(rows_of, indptr, edges))
    launch(
        sum_matrix, (shares, ceiling(heads * dim, columns), ceiling(edge_dim, _FEATURES)), out,
        *plain(row, indices, grad, source, target), *terms, out, edges, slope,
        EDGE_DIM=edge_dim, HEADS=heads, DIM=dim, ACC=acc, B=_EDGES, K=_FEATURES, F=columns,
    )  # fmt: skip
    return made(lambda out, att: (out.sum(0) * att).transpose(0, 1).contiguous(), out, att)


@triton.jit(do_not_specialize=SIZES)
def messages(
    rows, starts, indptr, count, out, row_grads,
    indices, order, mine, theirs, given, value, above, edge_grads,
    RELU: tl.constexpr, GATES: tl.constexpr,
    HEADS: tl.constexpr, DIM: tl.constexpr, ACC: tl.constexpr,
    CHUNK: tl.constexpr, R: tl.constexpr, B: tl.constexpr, G: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Write sums of ReLU(z) or sigmoid(z) * value[j], or gradients of z by row and by edge.

    z, of GATES numbers, is mine[i] + theirs[j] + given[e]. The gradients of a gate that heads share
    are those of each head.
    """
    row, place, live, start, stop = span(rows, starts, indptr, count, R, CHUNK)
    _, _, column, exists = features(HEADS, DIM, G, C)
    within = column % GATES
    zeros = tl.zeros((R, G * C), ACC)
    base, total, slopes = zeros, zeros, zeros
    if mine is not None:
        base = own(mine, row, live, within, exists, GATES, ACC)
    if above is not None:
        up = own(above, row, live, column, exists, HEADS * DIM, ACC)
    longest = tl.max(stop - start, 0).to(tl.int32)
    for offset in range(0, longest, B):
        edge, here, node = entries(indices, order, start, stop, offset, B)
        mask, z = here[:, :, None] & exists[None, None, :], base[:, None, :]
        if theirs is not None:
            z += gather(theirs, node, here, within, exists, GATES, ACC)
        if given is not None:
            z += gather(given, edge, here, within, exists, GATES, ACC)
        if not RELU:
            gate, v = tl.sigmoid(z), gather(value, node, here, column, exists, HEADS * DIM, ACC)
        if out is not None:
            message = tl.where(z <= 0, 0.0, z) if RELU else gate * v
            total += tl.sum(tl.where(mask, message, 0.0), 1)
        if above is not None:
            slope = up[:, None, :] + tl.zeros_like(z)
            slope = tl.where(z <= 0, 0.0, slope) if RELU else slope * v * gate * (1 - gate)
            slopes += tl.sum(tl.where(mask, slope, 0.0), 1)
            if edge_grads is not None:
                at = edge_grads + edge[:, :, None] * (HEADS * DIM) + column[None, None, :]
                tl.store(at, slope, mask=mask)
    if out is not None:
        put_own(out, place, live, column, exists, total, HEADS * DIM)
    if row_grads is not None:
        put_own(row_grads, place, live, column, exists, slopes, HEADS * DIM)


def _messages(
    indptr: Tensor, like: Tensor, outs: Sequence[Tensor | None], *args: Any, relu: bool
) -> None:
    shape = like.shape[1:]
    gates = shape.numel() if relu else shape[1]
    constants: Any = {"RELU": relu, "GATES": gates, "ACC": sum_type(like)}
    over_rows(messages, indptr, shape, outs, plain(*args), **constants)


def relu_sum(
    indptr: Tensor, indices: Tensor, order: Tensor, value: Tensor, features: Tensor
) -> Tensor:
    """Sums [N, H, D] in the dtype of `value`."""
    out = room(value, indptr.size(0) - 1, *value.shape[1:])
    args = (indices, order if len(order) else None, None, value, features, None, None, None)
    _messages(indptr, value, [out, None], *args, relu=True)
    return out


def relu_sum_backward(
    indptr: Tensor, indices: Tensor, order: Tensor, t_indptr: Tensor, edges: Tensor | None,
    grad: Tensor, value: Tensor, features: Tensor,
) -> tuple[Tensor | None, Tensor]:  # fmt: skip
    """Gradients of value, None without the `edges` of each source, and of features."""
    (of_features,) = room_like(features)
    args = (order if len(order) else None, None, value, features, None, grad, of_features)
    _messages(indptr, value, [None, None], indices, *args, relu=True)
    if edges is None:
        return None, of_features
    (of_value,) = room_like(value)
    weighted_sums(t_indptr, edges, None, None, of_features, of_value, sum_type(value))
    return of_value, of_features


def gated_sum(
    indptr: Tensor, ends: Tensor, perm: Tensor | None, gates: tuple[Tensor | None, ...],
    other: Tensor, own: Tensor | None = None, *, sums: bool = True, of_edge: bool = False,
) -> tuple[Tensor | None, ...]:  # fmt: skip
    """Sums [N, H, D] of gate * other; with `own` gradients of the terms of rows and of edges."""
    rows, acc = indptr.size(0) - 1, sum_type(other)
    out, of_rows, of_edges = (
        room(other, count, *other.shape[1:], dtype=dtype) if asked else None
        for asked, count, dtype in (
            (sums, rows, other.dtype), (own is not None, rows, acc), (of_edge, len(ends), acc)
        )
    )  # fmt: skip
    _messages(indptr, other, [out, of_rows], ends, perm, *gates, other, own, of_edges, relu=False)
    summed = (t if t is None else made(lambda t: t.sum(1), t) for t in (of_rows, of_edges))
    return out, *summed
