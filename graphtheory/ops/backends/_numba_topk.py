"""Loops of attention on blocks, plain functions that `_launch` compiles, and their calls.

Of a row the k largest logits count, or all. On equal complete blocks a chunk is some pairs of block
and head. Of a pair, the logits of some rows at a time are made by a matrix product, chosen from and
normalised in place, and used up by further products while they are in a cache. The backward pass
makes them anew by the same products.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numba import njit
from torch import Tensor

from graphtheory.ops.backends import numba_csr as csr
from graphtheory.ops.backends._numba_buckets import SUMS, settle, tally
from graphtheory.ops.backends._numba_choice import choose, chosen
from graphtheory.ops.backends._numba_kernels import count_chunks, first_row
from graphtheory.ops.backends._numba_lanes import ask_for, put, turn
from graphtheory.ops.backends._numba_products import TILE, matrix, multiply, whole
from graphtheory.ops.backends._numba_row import drop, scores, weigh, weigh_backward
from graphtheory.ops.backends._pages import empty
from graphtheory.ops.backends._turns import next_chunk, take_chunk
from graphtheory.ops.backends._wide import widened

_ROWS = 66  # at most at once
_AHEAD = 12  # nodes that are asked for while as many before them are copied
CHUNKS = 128  # at most: of pairs of block and head
_ENTRY = 32  # what is done to an entry of a row costs as much as so many multiply-adds


@njit(cache=True)
def place_of(nodes, node, h):
    """Flat position of head h of a node."""
    return (node * nodes.shape[1] + h) * nodes.shape[2]


@njit(cache=True)
def place_to_read(nodes, node, h):
    """The same; asks for a node ahead."""
    ask_for(nodes, place_of(nodes, node + _AHEAD, h), nodes.shape[2])
    return place_of(nodes, node, h)


@njit(cache=True)
def take(nodes, first, h, n, out):
    """Copy head h of n nodes from `first` on."""
    for i in range(n):
        at = place_to_read(nodes, first + i, h)
        put(out, i * out.shape[1], nodes.dtype.type(1), nodes, at, nodes.shape[2])


@njit(cache=True)
def take_turned(nodes, first, h, n, out):
    """Copy head h of n nodes from `first` on as columns."""
    for i in range(n):
        turn(out, i, out.shape[1], nodes, place_to_read(nodes, first + i, h), nodes.shape[2])


@njit(cache=True)
def give(rows, i, scale, nodes, node, h):
    """Write a row as head h of a node."""
    at = place_of(nodes, node, h)
    put(nodes, at, scale, rows, i * rows.shape[1], nodes.shape[2])


@njit(cache=True)
def rows_at_once(dst, src):
    """Whole tiles of as many rows as fit a cache, about as many each time."""
    most = min(max(2**17 // max(src, 1), TILE), _ROWS)
    parts = max(-(-dst // most), 1)
    return max(-(-dst // (parts * TILE)), 1) * TILE


@njit(cache=True)
def first_pair(pairs, chunk, chunks):
    """Lowest pair of the chunk or after it: pair p is in chunk p * chunks // pairs."""
    return -(-pairs * chunk // chunks)


def edges_loop(turns, chunks, indptr, logits, k, out):
    """Write whether the entry of edge e and head h is chosen in its row."""
    facts = np.empty((1, 1, 3), logits.dtype)
    chunk = take_chunk(turns)
    while chunk < chunks:
        for i in range(first_row(indptr, chunk, chunks), first_row(indptr, chunk + 1, chunks)):
            low, high = indptr[i], indptr[i + 1]
            for h in range(logits.shape[1]):
                x = np.full(whole(high - low), -np.inf, logits.dtype)
                x[: high - low] = logits[low:high, h]
                choose(x, 0, 1, high - low, k, facts, 0, 0)
                for j in range(high - low):
                    out[low + j, h] = chosen(x, j, facts[0, 0, 0], facts[0, 0, 1])
        chunk = next_chunk(turns)


def forward_loop(
    turns, chunks, blocks, query, key, value, bias, bucket, table, k, scale, p, seed, facts, out
):  # fmt: skip
    """Write the output and the facts of every row."""
    (count, dst, src), (_, heads, dim) = blocks, query.shape
    rows = rows_at_once(dst, src)
    queries, sums, values = matrix(rows, dim, out), matrix(rows, dim, out), matrix(src, dim, out)
    keys_turned, logits = matrix(dim, src, out), matrix(rows, src, out)
    x, step, column = logits.reshape(-1), logits.shape[1], np.empty(len(table), out.dtype)
    chunk = take_chunk(turns)
    while chunk < chunks:
        first_of = first_pair(count * heads, chunk, chunks)
        for pair in range(first_of, first_pair(count * heads, chunk + 1, chunks)):
            b, h = divmod(pair, heads)
            column[:] = table[:, h]
            take_turned(key, b * src, h, src, keys_turned)
            take(value, b * src, h, src, values)
            for first in range(b * dst, (b + 1) * dst, rows):
                n = min(rows, (b + 1) * dst - first)
                take(query, first, h, n, queries)
                multiply(queries, keys_turned, logits, n, dim, src, False)
                for i in range(n):
                    scores(x, i * step, src, scale, bias, bucket, column, (first + i) * src, h)
                choose(x, step, n, src, k, facts, first, h)
                for i in range(n):
                    weigh(x, i * step, src, facts, first + i, h)
                    if p > 0:
                        drop(x, i * step, src, (first + i) * src * heads + h, heads, p, seed)
                multiply(logits, values, sums, n, src, dim, False)
                for i in range(n):
                    give(sums, i, facts[first + i, h, 3], out, first + i, h)
        chunk = next_chunk(turns)


def backward_loop(
    turns, chunks, blocks, grad, query, key, value, bias, bucket, table, scale, p, seed, facts,
    of_query, of_key, of_value, of_bias, tables,
):  # fmt: skip
    """Write the gradients; that of the table in parts, one a chunk."""
    (count, dst, src), (_, heads, dim), real = blocks, query.shape, grad.dtype.type
    rows = rows_at_once(dst, src)
    queries, ups, sums = matrix(rows, dim, grad), matrix(rows, dim, grad), matrix(rows, dim, grad)
    keys, of_keys = matrix(src, dim, grad), matrix(src, dim, grad)
    of_values = matrix(src, dim, grad)
    keys_turned, values_turned = matrix(dim, src, grad), matrix(dim, src, grad)
    logits, flows = matrix(rows, src, grad), matrix(rows, src, grad)
    x, flow, step = logits.reshape(-1), flows.reshape(-1), logits.shape[1]
    column, of_buckets = np.empty(len(table), grad.dtype), np.zeros(SUMS * len(table), grad.dtype)
    chunk = take_chunk(turns)
    while chunk < chunks:
        if tables.shape[0] > 0:
            tables[chunk] = 0
        first_of = first_pair(count * heads, chunk, chunks)
        for pair in range(first_of, first_pair(count * heads, chunk + 1, chunks)):
            b, h = divmod(pair, heads)
            column[:] = table[:, h]
            take_turned(value, b * src, h, src, values_turned)
            take_turned(key, b * src, h, src, keys_turned)
            take(key, b * src, h, src, keys)
            for first in range(b * dst, (b + 1) * dst, rows):
                n = min(rows, (b + 1) * dst - first)
                take(query, first, h, n, queries)
                take(grad, first, h, n, ups)
                multiply(queries, keys_turned, logits, n, dim, src, False)
                multiply(ups, values_turned, flows, n, dim, src, False)
                for i in range(n):
                    e, at = (first + i) * src, i * step
                    scores(x, at, src, scale, bias, bucket, column, e, h)
                    if p > 0:
                        drop(flow, at, src, e * heads + h, heads, p, seed)
                    weigh_backward(x, flow, at, src, facts, first + i, h)
                    if p > 0:
                        drop(x, at, src, e * heads + h, heads, p, seed)
                    if of_bias.shape[0] > 0:
                        for j in range(src):
                            of_bias[e + j, h] = flow[at + j]
                    if tables.shape[0] > 0:
                        tally(of_buckets, flow, at, src, bucket, e)
                multiply(flows, keys, sums, n, src, dim, False)
                for i in range(n):
                    give(sums, i, scale, of_query, first + i, h)
                more = first > b * dst
                multiply(flows.T, queries, of_keys, src, n, dim, more)
                multiply(logits.T, ups, of_values, src, n, dim, more)
            for j in range(src):
                give(of_keys, j, scale, of_key, b * src + j, h)
                give(of_values, j, real(1), of_value, b * src + j, h)
            if tables.shape[0] > 0:
                settle(of_buckets, tables[chunk, :, h])
        chunk = next_chunk(turns)


def top_edges(indptr: Tensor, logits: Tensor, k: int) -> Tensor:
    """Whether an entry of [E, H] is chosen in its row."""
    out = torch.empty_like(logits, dtype=torch.bool)
    chunks = count_chunks(indptr.size(0) - 1, logits.size(0))
    csr.run(edges_loop, _ENTRY * logits.numel(), chunks, indptr, logits, k, out)
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
    csr.run(
        forward_loop, work, CHUNKS, tuple(blocks), query, key, value, bias, bucket, table, k,
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
    csr.run(
        backward_loop, work, CHUNKS, tuple(blocks), grad, query, key, value, bias, bucket, table,
        number, dropout, drawn, facts, of_query, of_key, of_value, of_bias, tables,
    )  # fmt: skip
    nodes = (t.to(dtype) for t in (of_query, of_key, of_value))
    return *nodes, of_bias, tables.sum(0)  # type: ignore[return-value]
