"""Kernels of k-nearest attention on equal complete blocks, and their calls.

A program of the forward pass holds the logits of some rows with all their sources, chooses from
them, and adds up values. The backward pass computes the logits again, once by rows and once by
sources, so that no sum has two programs. What is done to a row is in `topk_parts`. Sums are in
float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from graphtheory.ops.backends.triton.bins import power
from graphtheory.ops.backends.triton.launch import (
    by_bucket,
    ceiling,
    launch,
    options,
    plain,
    room,
    room_like,
)
from graphtheory.ops.backends.triton.primitives import cast, factor_of
from graphtheory.ops.backends.triton.topk_parts import (
    ROWS,
    STATS,
    TERMS,
    choose,
    exponentials,
    logits,
    nodes,
    part,
    product,
    products,
    put_nodes,
    put_stats,
    put_sums,
    weights,
)

SIZES = ("dst", "src", "k", "threshold")  # no new machine code for each of these
# Logits that a thread holds, twice as many in the longest rows and eight times as many where a
# warp holds whole rows: what the products need comes on top.
_LOGITS, _WARPS = 16, 4
# Features of a head in one product: this many of all sources' keys or values are shared at a time,
# of 16-bit nodes as many as fit into _SHARED numbers. `triton_csr` says how much memory that takes.
# The same number in every pass: in another order of sums, equal logits would not stay equal.
_DIMS, _WIDEST, _SHARED = 16, 64, 2**14
_SOURCES, _TARGETS = 32, 32  # of a step of the pass by sources, twice as many targets in 16 bits
# Up to this many columns a warp holds whole rows of logits, 16 of them: then only the end of the
# search for the k-th waits for other warps.
_COLUMNS = 256


@triton.jit(do_not_specialize=SIZES)
def forward(
    out, stats, dst, src, k, query, key, value, bias, bucket, table, seed,
    scale: tl.float64, threshold: tl.int64, kept: tl.float64,
    HEADS: tl.constexpr, WIDTH: tl.constexpr, DIM: tl.constexpr, BUCKETS: tl.constexpr,
    ACC: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr, DIMS: tl.constexpr,
):  # fmt: skip
    """Write out and statistics of M rows."""
    b, head, i = part(dst, HEADS, M)
    j = tl.arange(0, N)
    row, here, there, at = b * dst + i, i < dst, j < src, head * DIM
    of = b * src * WIDTH + at
    edge = row[:, None] * src + j[None, :]
    x = logits(
        query + at, row, here, key + of, j, there, edge, head, bias, bucket, table, scale,
        HEADS, WIDTH, DIM, BUCKETS, DIMS,
    )  # fmt: skip
    low, high, last, top = choose(x, j, k)
    w = exponentials(x, j, low, high, last, top)
    total = tl.sum(w, 1)
    share = 1 / tl.where(total == 0, 1.0, total)
    put_stats(stats, row * HEADS + head, here, low, high, last, top, share)
    w *= share[:, None]
    if seed is not None:
        w *= factor_of(edge * HEADS + head, seed, threshold, kept, ACC)
    put_sums(out + at, row, here, w, value + of, j, there, 1.0, HEADS * DIM, WIDTH, DIM, DIMS)


@triton.jit
def _weights_and_gradient(
    grad, stats, query, row, row_live, key, value, column, j, column_live, edge, head,
    bias, bucket, table, seed, scale, threshold, kept,
    HEADS: tl.constexpr, WIDTH: tl.constexpr, DIM: tl.constexpr, BUCKETS: tl.constexpr,
    ACC: tl.constexpr,
    DIMS: tl.constexpr,
):  # fmt: skip
    """Weights [M, N] before dropout, their gradient, and the factor that dropout gives them."""
    x = logits(
        query, row, row_live, key, column, column_live, edge, head, bias, bucket, table, scale,
        HEADS, WIDTH, DIM, BUCKETS, DIMS,
    )  # fmt: skip
    w = weights(x, j, stats, row * HEADS + head, row_live)
    up = products(grad, row, row_live, value, column, column_live, HEADS * DIM, WIDTH, DIM, DIMS)
    factor = 1.0
    if seed is not None:
        factor = factor_of(edge * HEADS + head, seed, threshold, kept, ACC)
    return w, up * factor, factor


@triton.jit(do_not_specialize=SIZES)
def targets(
    of_query, of_logits, means, dst, src, grad, stats, query, key, value, bias, bucket, table, seed,
    scale: tl.float64, threshold: tl.int64, kept: tl.float64,
    HEADS: tl.constexpr, WIDTH: tl.constexpr, DIM: tl.constexpr, BUCKETS: tl.constexpr,
    ACC: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr, DIMS: tl.constexpr,
):  # fmt: skip
    """Write of M rows the gradients of query and logits, and the mean of those of weights."""
    b, head, i = part(dst, HEADS, M)
    j = tl.arange(0, N)
    row, here, there, at = b * dst + i, i < dst, j < src, head * DIM
    of = b * src * WIDTH + at
    edge = row[:, None] * src + j[None, :]
    w, up, _ = _weights_and_gradient(
        grad + at, stats, query + at, row, here, key + of, value + of, j, j, there, edge, head,
        bias, bucket, table, seed, scale, threshold, kept, HEADS, WIDTH, DIM, BUCKETS, ACC, DIMS,
    )  # fmt: skip
    mean = tl.sum(w * up, 1)
    tl.store(means + row * HEADS + head, mean, mask=here)
    logit_grad = w * (up - mean[:, None])
    if of_logits is not None:
        tl.store(of_logits + edge * HEADS + head, logit_grad, mask=here[:, None] & there[None, :])
    put_sums(
        of_query + at, row, here, logit_grad, key + of, j, there, cast(scale, ACC),
        HEADS * DIM, WIDTH, DIM, DIMS,
    )  # fmt: skip


@triton.jit(do_not_specialize=SIZES)
def sources(
    of_key, of_value, means, dst, src, grad, stats, query, key, value, bias, bucket, table, seed,
    scale: tl.float64, threshold: tl.int64, kept: tl.float64,
    HEADS: tl.constexpr, WIDTH: tl.constexpr, DIM: tl.constexpr, BUCKETS: tl.constexpr,
    ACC: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr, DIMS: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Write the gradients of N keys and values, M targets a step."""
    b, head, j = part(src, HEADS, N)
    column, there, at = b * src + j, j < src, head * DIM
    sum_key, sum_value = tl.zeros((N, C), ACC), tl.zeros((N, C), ACC)
    for first in range(0, dst, M):
        i = first + tl.arange(0, M)
        row, here = b * dst + i, i < dst
        edge = row[:, None] * src + j[None, :]
        w, up, factor = _weights_and_gradient(
            grad + at, stats, query + at, row, here, key + at, value + at, column, j, there, edge,
            head, bias, bucket, table, seed, scale, threshold, kept,
            HEADS, WIDTH, DIM, BUCKETS, ACC, DIMS,
        )  # fmt: skip
        mean = tl.load(means + row * HEADS + head, mask=here, other=0)
        logit_grad = w * (up - mean[:, None])
        g = nodes(grad + at, row, here, 0, HEADS * DIM, DIM, C)
        sum_value = product(tl.trans(w * factor), g, sum_value)
        q = nodes(query + at, row, here, 0, WIDTH, DIM, C)
        sum_key = product(tl.trans(logit_grad), q, sum_key)
    sum_key *= cast(scale, ACC)
    put_nodes(of_key + at, column, there, 0, sum_key, HEADS * DIM, DIM, C)
    put_nodes(of_value + at, column, there, 0, sum_value, HEADS * DIM, DIM, C)


def _rows_of(
    query: Tensor, blocks: Sequence[int], alone: bool = False
) -> tuple[int, dict[str, int]]:
    """How many programs hold whole rows, and tile and warps of each; `alone`: logits are all."""
    (count, dst, src), half = blocks, query.element_size() == 2
    columns = max(power(src), TERMS.value)
    rows, warps = ROWS.value, min(max(1, ROWS.value * columns // (32 * _LOGITS)), 16)
    if alone and half and columns <= _COLUMNS and dst > rows:
        rows, warps = 4 * rows, 4
    fitting = _SHARED // columns if half else _DIMS
    dims = max(_DIMS, min(fitting, _WIDEST, power(query.size(2))))
    tile = {"M": rows, "N": columns, "DIMS": dims, "warps": warps}
    return count * query.size(1) * ceiling(dst, rows), tile


def _side_by_side(*nodes: Tensor) -> tuple[list[Tensor], int]:
    """The nodes, and how many numbers lie between two of them; copies unless all are alike."""
    _, heads, dim = nodes[0].shape
    width = nodes[0].stride(0)
    if width >= heads * dim and all(t.stride() == (width, dim, 1) for t in nodes):
        return list(nodes), width
    return plain(*nodes), heads * dim  # type: ignore[return-value]


def topk_blocks(
    query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, bucket: Tensor | None,
    table: Tensor | None, seed: Tensor | None, blocks: Sequence[int],
    k: int, scale: float, dropout: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Output as `query`, and the statistics of each row."""
    (_, dst, src), (_, heads, dim) = blocks, query.shape
    numbers, constants = options(query, table, scale, dropout, seed)
    (out,) = room_like(query)
    stats = room(query, len(query), heads, STATS.value, dtype=constants["ACC"])
    programs, tile = _rows_of(query, blocks, alone=bias is bucket is seed is None)
    parts, width = _side_by_side(query, key, value)
    launch(
        forward, (programs,), query, out, stats, dst, src, min(k, src),
        *parts, *plain(bias, bucket, table), *numbers,
        HEADS=heads, WIDTH=width, DIM=dim, **constants, **tile,
    )  # fmt: skip
    return out, stats


def topk_blocks_backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None,
    bucket: Tensor | None, table: Tensor | None, seed: Tensor | None, stats: Tensor,
    blocks: Sequence[int], with_bias: bool, scale: float, dropout: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of query, key, value, and of bias and table, without rows unless `with_bias`."""
    (count, dst, src), (_, heads, dim) = blocks, query.shape
    numbers, constants = options(query, table, scale, dropout, seed)
    parts, width = _side_by_side(query, key, value)
    constants |= {"HEADS": heads, "WIDTH": width, "DIM": dim}
    of_query, of_key, of_value = room_like(query, key, value)
    of_logits = room(stats, len(query) * src if with_bias else 0, heads)
    means = room(stats, len(query), heads)
    given: list[Any] = [*plain(grad, stats), *parts, *plain(bias, bucket, table), *numbers]
    programs, tile = _rows_of(query, blocks)
    launch(
        targets, (programs,), query, of_query, of_logits if with_bias else None, means, dst, src,
        *given, **constants, **tile,
    )  # fmt: skip
    launch(
        sources, (count * heads * ceiling(src, _SOURCES),), query, of_key, of_value, means, dst,
        src, *given, M=_TARGETS * 4 // query.element_size(), N=_SOURCES, DIMS=tile["DIMS"],
        C=max(power(dim), 16), **constants, warps=_WARPS,
    )  # fmt: skip
    if table is None:
        return of_query, of_key, of_value, of_logits, room(stats, 0, heads)
    of_table = by_bucket(bucket, of_logits, table.size(0) if with_bias else 0)
    return of_query, of_key, of_value, room(stats, 0, heads), of_table
