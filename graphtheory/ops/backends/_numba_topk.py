"""Loops of k-nearest attention, plain functions that `_launch` compiles, and their calls.

On equal complete blocks a chunk is some pairs of block and head. Of a pair, the logits of some rows
at a time are made by a matrix product, chosen from and normalised in place, and used up by further
products while they are in a cache. The backward pass makes them anew by the same products.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor

from graphtheory.ops.backends import numba_csr as csr
from graphtheory.ops.backends._numba_kernels import count_chunks, first_row
from graphtheory.ops.backends._numba_lanes import MATH
from graphtheory.ops.backends._numba_row import (
    choose,
    chosen,
    drop,
    scores,
    weigh,
    weigh_backward,
)
from graphtheory.ops.backends._pages import empty
from graphtheory.ops.backends._turns import next_chunk, take_chunk
from graphtheory.ops.backends._wide import widened
from graphtheory.ops.threads import one_blas_thread

CHUNKS = 128  # at most: of pairs of block and head
_ENTRY = 32  # what is done to an entry of a row costs as much as so many multiply-adds


@njit(cache=True, fastmath=MATH)
def take(nodes, first, h, out):
    """Copy head h of the nodes from `first` on."""
    for i in range(out.shape[0]):
        for d in range(out.shape[1]):
            out[i, d] = nodes[first + i, h, d]


@njit(cache=True, fastmath=MATH)
def put(values, scale, nodes, first, h):
    """Write head h of the nodes from `first` on."""
    for i in range(values.shape[0]):
        for d in range(values.shape[1]):
            nodes[first + i, h, d] = scale * values[i, d]


@njit(cache=True)
def rows_at_once(dst, src, dim):
    """As many as fit a cache, and make products so small that BLAS leaves them to one thread."""
    most = min(max(2**17 // max(src, 1), 16), 80)
    return -(-dst // max(-(-dst // most), 1))


@njit(cache=True)
def first_pair(pairs, chunk, chunks):
    """Lowest pair of the chunk or after it: pair p is in chunk p * chunks // pairs."""
    return -(-pairs * chunk // chunks)


def edges_loop(turns, chunks, indptr, logits, k, out):
    """Write whether the entry of edge e and head h is chosen in its row."""
    chunk = take_chunk(turns)
    while chunk < chunks:
        for i in range(first_row(indptr, chunk, chunks), first_row(indptr, chunk + 1, chunks)):
            low, high = indptr[i], indptr[i + 1]
            for h in range(logits.shape[1]):
                x = logits[low:high, h].astype(np.float64)  # which counts rows of any length
                t, last, _ = choose(x, k)
                for j in range(high - low):
                    out[low + j, h] = chosen(x, j, t, last)
        chunk = next_chunk(turns)


def forward_loop(
    turns, chunks, blocks, query, key, value, bias, bucket, table, k, scale, p, seed, facts, out
):  # fmt: skip
    """Write the output and the facts of every row."""
    (count, dst, src), (_, heads, dim), real = blocks, query.shape, out.dtype.type
    rows = rows_at_once(dst, src, dim)
    queries, sums = np.empty((rows, dim), out.dtype), np.empty((rows, dim), out.dtype)
    keys, values = np.empty((src, dim), out.dtype), np.empty((src, dim), out.dtype)
    turned, logits = np.empty((dim, src), out.dtype), np.empty((rows, src), out.dtype)
    chunk = take_chunk(turns)
    while chunk < chunks:
        first_of = first_pair(count * heads, chunk, chunks)
        for pair in range(first_of, first_pair(count * heads, chunk + 1, chunks)):
            b, h = divmod(pair, heads)
            take(key, b * src, h, keys)
            take(value, b * src, h, values)
            turned[:] = keys.T
            for first in range(b * dst, (b + 1) * dst, rows):
                n = min(rows, (b + 1) * dst - first)
                q, x = queries[:n], logits[:n]
                take(query, first, h, q)
                np.dot(q, turned, x)
                for i in range(n):
                    e = (first + i) * src
                    scores(x[i], scale, bias, bucket, table, e, h)
                    weigh(x[i], k, facts[first + i, h])
                    if p > 0:
                        drop(x[i], e * heads + h, heads, p, seed)
                np.dot(x, values, sums[:n])
                put(sums[:n], real(1), out, first, h)
        chunk = next_chunk(turns)


def backward_loop(
    turns, chunks, blocks, grad, query, key, value, bias, bucket, table, scale, p, seed, facts,
    of_query, of_key, of_value, of_bias, tables,
):  # fmt: skip
    """Write the gradients; that of the table in parts, one a chunk."""
    (count, dst, src), (_, heads, dim), real = blocks, query.shape, grad.dtype.type
    rows = rows_at_once(dst, src, dim)
    queries, ups = np.empty((rows, dim), grad.dtype), np.empty((rows, dim), grad.dtype)
    logits, flows = np.empty((rows, src), grad.dtype), np.empty((rows, src), grad.dtype)
    keys, sums = np.empty((src, dim), grad.dtype), np.empty((rows, dim), grad.dtype)
    keys_turned, values_turned = np.empty_like(keys.T.copy()), np.empty_like(keys.T.copy())
    sum_key, sum_value, part = np.empty_like(keys), np.empty_like(keys), np.empty_like(keys)
    chunk = take_chunk(turns)
    while chunk < chunks:
        if tables.shape[0] > 0:
            tables[chunk] = 0
        first_of = first_pair(count * heads, chunk, chunks)
        for pair in range(first_of, first_pair(count * heads, chunk + 1, chunks)):
            b, h = divmod(pair, heads)
            take(value, b * src, h, part)
            values_turned[:] = part.T
            take(key, b * src, h, keys)
            keys_turned[:] = keys.T
            sum_key[:], sum_value[:] = 0, 0
            for first in range(b * dst, (b + 1) * dst, rows):
                n = min(rows, (b + 1) * dst - first)
                q, up, x, flow = queries[:n], ups[:n], logits[:n], flows[:n]
                take(query, first, h, q)
                take(grad, first, h, up)
                np.dot(q, keys_turned, x)
                np.dot(up, values_turned, flow)
                for i in range(n):
                    e = (first + i) * src
                    scores(x[i], scale, bias, bucket, table, e, h)
                    if p > 0:
                        drop(flow[i], e * heads + h, heads, p, seed)
                    weigh_backward(x[i], flow[i], facts[first + i, h])
                    if p > 0:
                        drop(x[i], e * heads + h, heads, p, seed)
                    if of_bias.shape[0] > 0:
                        of_bias[e : e + src, h] = flow[i]
                    if tables.shape[0] > 0:
                        for j in range(src):
                            tables[chunk, bucket[e + j], h] += flow[i, j]
                np.dot(flow, keys, sums[:n])
                put(sums[:n], scale, of_query, first, h)
                np.dot(flow.T, q, part)
                sum_key += part
                np.dot(x.T, up, part)
                sum_value += part
            put(sum_key, scale, of_key, b * src, h)
            put(sum_value, real(1), of_value, b * src, h)
        chunk = next_chunk(turns)


def _call(loop: Callable[..., None], chunks: int, work: int, *args: Any) -> None:
    with one_blas_thread():
        csr.run(loop, work, chunks, *args)


def top_edges(indptr: Tensor, logits: Tensor, k: int) -> Tensor:
    """Whether an entry of [E, H] is chosen in its row."""
    out = torch.empty_like(logits, dtype=torch.bool)
    chunks = count_chunks(indptr.size(0) - 1, logits.size(0))
    _call(edges_loop, chunks, _ENTRY * logits.numel(), indptr, logits, k, out)
    return out


def attention(
    query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, bucket: Tensor | None,
    table: Tensor | None, seed: Tensor | None, blocks: Sequence[int],
    k: int, scale: float, dropout: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Output as `query`, and the facts of each row."""
    dtype, drawn = query.dtype, 0 if seed is None else int(seed)
    query, key, value = widened(query, key, value)
    bias, bucket, table = csr.options(query, bias, bucket, table)
    number = csr.number(scale, query)
    out, facts = empty(query.shape, query), query.new_empty(*query.shape[:2], 4)
    work = len(query) * query.size(1) * blocks[2] * (2 * query.size(2) + _ENTRY)
    _call(
        forward_loop, CHUNKS, work, tuple(blocks), query, key, value, bias, bucket, table, k,
        number, dropout, drawn, facts, out,
    )  # fmt: skip
    return out.to(dtype), facts


def attention_backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None,
    bucket: Tensor | None, table: Tensor | None, seed: Tensor | None, facts: Tensor,
    blocks: Sequence[int], with_bias: bool, scale: float, dropout: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of query, key, value, and of bias and table, without rows unless `with_bias`."""
    dtype, drawn = query.dtype, 0 if seed is None else int(seed)
    grad, query, key, value = widened(grad, query, key, value)
    bias, bucket, table = csr.options(query, bias, bucket, table)
    number = csr.number(scale, query)
    of_query, of_key, of_value = (empty(t.shape, t) for t in (query, key, value))
    heads, buckets = query.size(1), len(table) if with_bias else 0
    of_bias = query.new_empty(len(bias) if with_bias else 0, heads)
    tables = query.new_empty(CHUNKS if buckets else 0, buckets, heads)
    work = len(query) * heads * blocks[2] * (5 * query.size(2) + _ENTRY)
    _call(
        backward_loop, CHUNKS, work, tuple(blocks), grad, query, key, value, bias, bucket, table,
        number, dropout, drawn, facts, of_query, of_key, of_value, of_bias, tables,
    )  # fmt: skip
    nodes = (t.to(dtype) for t in (of_query, of_key, of_value))
    return *nodes, of_bias, tables.sum(0)  # type: ignore[return-value]
