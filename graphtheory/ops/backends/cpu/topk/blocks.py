"""Loops of attention on blocks, plain functions that `launch` compiles, and their calls.

Of a row the k largest logits count, or all. On equal complete blocks a chunk is some units, each a
head of a block, or a few heads that share look-ups and take each step by turns. Of a head, the
logits of some rows at a time are made by a matrix product, chosen from and normalized in place, and
used up by further products while they are in a cache. The backward pass computes them again by the
same products.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from graphtheory.ops.backends.cpu import launch
from graphtheory.ops.backends.cpu.compiling import kept_on_disk
from graphtheory.ops.backends.cpu.launch import next_chunk, rows_of, take_chunk
from graphtheory.ops.backends.cpu.memory import empty
from graphtheory.ops.backends.cpu.topk.buckets import SUMS, TOGETHER, settle
from graphtheory.ops.backends.cpu.topk.row import (
    choose,
    chosen,
    drop,
    finish,
    scale_rows,
    tally_rows,
    weigh,
    weigh_backward,
)
from graphtheory.ops.backends.cpu.vector.lanes import prefetch, scale_into, store_strided
from graphtheory.ops.backends.cpu.vector.products import TILE, matrices, matrix, multiply, whole
from graphtheory.ops.call import widened

_ROWS = 66  # at most at once
_AHEAD = 12  # nodes that are prefetched while as many before them are copied
_SMALL = 2**14  # keys of a head of a block, in numbers: those of several heads fit a cache
_ENOUGH = 128  # heads of all blocks of which threads get enough where several are taken together
CHUNKS = 128  # at most: of pairs of block and head
_ENTRY = 32  # the cost of an entry of a row, in multiply-adds


@kept_on_disk
def place_of(nodes, node, h):
    """Flat position of head h of a node."""
    return (node * nodes.shape[1] + h) * nodes.shape[2]


@kept_on_disk
def place_to_read(nodes, node, h):
    """The same; prefetches a node ahead."""
    prefetch(nodes, place_of(nodes, node + _AHEAD, h), nodes.shape[2])
    return place_of(nodes, node, h)


@kept_on_disk
def heads_of(unit, heads, together):
    """Block of a unit, its first head, and how many heads it has."""
    b, part = divmod(unit, -(-heads // together))
    return b, part * together, min(together, heads - part * together)


@kept_on_disk
def take(nodes, first, head, some, n, out):
    """Copy some heads of n nodes from `first` on, one to a matrix."""
    for g in range(some):
        x = out[g]
        for i in range(n):
            at = place_to_read(nodes, first + i, head + g)
            scale_into(x, i * x.shape[1], nodes.dtype.type(1), nodes, at, nodes.shape[2])


@kept_on_disk
def take_turned(nodes, first, head, some, n, out):
    """Copy some heads of n nodes from `first` on as columns, one to a matrix."""
    for g in range(some):
        x = out[g]
        for i in range(n):
            at = place_to_read(nodes, first + i, head + g)
            store_strided(x, i, x.shape[1], nodes, at, nodes.shape[2])


@kept_on_disk
def take_table(table, head, some, out):
    """Copy some columns, if there are any."""
    for z in range(table.shape[0]):
        for g in range(some):
            out[z, g] = table[z, head + g]


@kept_on_disk
def give(rows, i, n, scale, nodes, first, h):
    """Write n rows from row i on as head h of nodes from `first` on."""
    for j in range(n):
        at = place_of(nodes, first + j, h)
        scale_into(nodes, at, scale, rows, (i + j) * rows.shape[1], nodes.shape[2])


@kept_on_disk
def rows_at_once(dst, src, together):
    """Whole tiles of as many rows as fit a cache, about as many each time."""
    most = min(max(2**17 // max(src * together, 1), TILE), _ROWS)
    parts = max(-(-dst // most), 1)
    return max(-(-dst // (parts * TILE)), 1) * TILE


@kept_on_disk
def first_unit(units, chunk, chunks):
    """Lowest unit of the chunk or after it: unit u is in chunk u * chunks // units."""
    return -(-units * chunk // chunks)


def edges_loop(counters, chunks, indptr, logits, k, out):
    """Write whether the entry of edge e and head h is chosen in its row."""
    stats = np.empty((1, 1, 3), logits.dtype)
    chunk = take_chunk(counters)
    while chunk < chunks:
        first, last = rows_of(indptr, chunk, chunks)
        for i in range(first, last):
            low, high = indptr[i], indptr[i + 1]
            x = np.full(whole(high - low), -np.inf, logits.dtype)
            for h in range(logits.shape[1]):
                for j in range(high - low):
                    x[j] = logits[low + j, h]
                choose(x, 0, 1, high - low, k, stats, 0, 0)
                for j in range(high - low):
                    out[low + j, h] = chosen(x, j, stats[0, 0, 0], stats[0, 0, 1])
        chunk = next_chunk(counters)


def forward_loop(
    counters, chunks, blocks, together, query, key, value, bias, bucket, table, k, scale, p, seed,
    stats, out,
):  # fmt: skip
    """Write the output and the statistics of every row."""
    (count, dst, src), (_, heads, dim) = blocks, query.shape
    rows, units = rows_at_once(dst, src, together), count * -(-heads // together)
    queries, values = matrices(together, rows, dim, out), matrices(together, src, dim, out)
    keys_turned, logits = matrices(together, dim, src, out), matrices(together, rows, src, out)
    planes, step, sums = logits.reshape(together, -1), logits.shape[2], matrix(rows, dim, out)
    columns = np.zeros((len(table), together), out.dtype)
    chunk = take_chunk(counters)
    while chunk < chunks:
        for unit in range(first_unit(units, chunk, chunks), first_unit(units, chunk + 1, chunks)):
            b, head, some = heads_of(unit, heads, together)
            take_table(table, head, some, columns)
            take_turned(key, b * src, head, some, src, keys_turned)
            take(value, b * src, head, some, src, values)
            for first in range(b * dst, (b + 1) * dst, rows):
                n = min(rows, (b + 1) * dst - first)
                take(query, first, head, some, n, queries)
                for g in range(some):
                    multiply(queries[g], keys_turned[g], logits[g], n, dim, src, False)
                scale_rows(planes, step, n, src, scale, bucket, first * src, columns)
                for g in range(some):
                    x, h = planes[g], head + g
                    for i in range(n):
                        finish(x, i * step, src, bias, (first + i) * src, h)
                    choose(x, step, n, src, k, stats, first, h)
                    for i in range(n):
                        weigh(x, i * step, src, stats, first + i, h)
                        if p > 0:
                            drop(x, i * step, src, (first + i) * src * heads + h, heads, p, seed)
                    multiply(logits[g], values[g], sums, n, src, dim, False)
                    for i in range(n):
                        give(sums, i, 1, stats[first + i, h, 3], out, first + i, h)
        chunk = next_chunk(counters)


def backward_loop(
    counters, chunks, blocks, together, grad, query, key, value, bias, bucket, table, scale, p,
    seed, stats, of_query, of_key, of_value, of_bias, tables,
):  # fmt: skip
    """Write the gradients; that of the table in parts, one a chunk."""
    (count, dst, src), (_, heads, dim), one = blocks, query.shape, grad.dtype.type(1)
    rows, units = rows_at_once(dst, src, together), count * -(-heads // together)
    queries, ups = matrices(together, rows, dim, grad), matrices(together, rows, dim, grad)
    keys, of_keys = matrices(together, src, dim, grad), matrices(together, src, dim, grad)
    of_values, sums = matrices(together, src, dim, grad), matrix(rows, dim, grad)
    keys_turned = matrices(together, dim, src, grad)
    values_turned = matrices(together, dim, src, grad)
    logits, grads = matrices(together, rows, src, grad), matrices(together, rows, src, grad)
    planes, step = logits.reshape(together, -1), logits.shape[2]
    of_planes = grads.reshape(together, -1)
    columns = np.zeros((len(table), together), grad.dtype)
    of_columns = np.zeros((tables.shape[1], SUMS, together), grad.dtype)
    chunk = take_chunk(counters)
    while chunk < chunks:
        if tables.shape[0] > 0:
            tables[chunk] = 0
        for unit in range(first_unit(units, chunk, chunks), first_unit(units, chunk + 1, chunks)):
            b, head, some = heads_of(unit, heads, together)
            take_table(table, head, some, columns)
            take_turned(value, b * src, head, some, src, values_turned)
            take_turned(key, b * src, head, some, src, keys_turned)
            take(key, b * src, head, some, src, keys)
            for first in range(b * dst, (b + 1) * dst, rows):
                n, more = min(rows, (b + 1) * dst - first), first > b * dst
                take(query, first, head, some, n, queries)
                take(grad, first, head, some, n, ups)
                for g in range(some):
                    multiply(queries[g], keys_turned[g], logits[g], n, dim, src, False)
                scale_rows(planes, step, n, src, scale, bucket, first * src, columns)
                for g in range(some):
                    x, logit_grad, h = planes[g], of_planes[g], head + g
                    multiply(ups[g], values_turned[g], grads[g], n, dim, src, False)
                    for i in range(n):
                        e, at = (first + i) * src, i * step
                        finish(x, at, src, bias, e, h)
                        if p > 0:
                            drop(logit_grad, at, src, e * heads + h, heads, p, seed)
                        weigh_backward(x, logit_grad, at, src, stats, first + i, h)
                        if p > 0:
                            drop(x, at, src, e * heads + h, heads, p, seed)
                        if of_bias.shape[0] > 0:
                            for j in range(src):
                                of_bias[e + j, h] = logit_grad[at + j]
                    multiply(grads[g], keys[g], sums, n, src, dim, False)
                    give(sums, 0, n, scale, of_query, first, h)
                    multiply(grads[g].T, queries[g], of_keys[g], src, n, dim, more)
                    multiply(logits[g].T, ups[g], of_values[g], src, n, dim, more)
                if tables.shape[0] > 0:
                    tally_rows(of_columns, of_planes, step, n, src, bucket, first * src)
            for g in range(some):
                give(of_keys[g], 0, src, scale, of_key, b * src, head + g)
                give(of_values[g], 0, src, one, of_value, b * src, head + g)
            if tables.shape[0] > 0:
                settle(of_columns, some, tables[chunk], head)
        chunk = next_chunk(counters)


def heads_together(blocks: Sequence[int], query: Tensor, table: Tensor) -> int:
    """Heads of a block that share look-ups, tile by tile: 4, or 1 for threads or caches."""
    (count, _, src), (_, heads, dim) = blocks, query.shape
    few = heads == 1 or len(table) == 0 or count * heads < _ENOUGH
    return 1 if few or src * dim > _SMALL else TOGETHER


def top_edges(indptr: Tensor, indices: Tensor, logits: Tensor, k: int) -> Tensor:
    """Whether an entry of [E, H] is chosen in its row."""
    out = torch.empty_like(logits, dtype=torch.bool)
    work, chunks = _ENTRY * logits.numel(), launch.chunks_of(indptr, logits)
    launch.run(edges_loop, work, chunks, indptr, logits, k, out)
    return out


def topk_blocks(
    query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, bucket: Tensor | None,
    table: Tensor | None, seed: Tensor | None, blocks: Sequence[int],
    k: int, scale: float, dropout: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Output as `query`, and the statistics of each row."""
    dtype, drawn = query.dtype, 0 if seed is None else int(seed)
    query, key, value = widened(query, key, value)
    bias, bucket, table = launch.options(query, bias, bucket, table)
    number = launch.cast(scale, query)
    out, stats = empty(query.shape, query), query.new_empty(*query.shape[:2], 4)
    together = heads_together(blocks, query, table)
    work = len(query) * query.size(1) * blocks[2] * (2 * query.size(2) + _ENTRY)
    launch.run(
        forward_loop, work, CHUNKS, tuple(blocks), together, query, key, value, bias, bucket, table,
        k, number, dropout, drawn, stats, out,
    )  # fmt: skip
    return out.to(dtype), stats


def topk_blocks_backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None,
    bucket: Tensor | None, table: Tensor | None, seed: Tensor | None, stats: Tensor,
    blocks: Sequence[int], with_bias: bool, scale: float, dropout: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of query, key, value, and of bias and table, without rows unless `with_bias`."""
    dtype, drawn = query.dtype, 0 if seed is None else int(seed)
    grad, query, key, value = widened(grad, query, key, value)
    bias, bucket, table = launch.options(query, bias, bucket, table)
    number = launch.cast(scale, query)
    of_query, of_key, of_value = (empty(t.shape, t) for t in (query, key, value))
    heads, buckets = query.size(1), len(table) if with_bias else 0
    of_bias = query.new_empty(len(bias) if with_bias else 0, heads)
    tables = query.new_empty(CHUNKS if buckets else 0, buckets, heads)
    together = heads_together(blocks, query, table)
    work = len(query) * heads * blocks[2] * (5 * query.size(2) + _ENTRY)
    launch.run(
        backward_loop, work, CHUNKS, tuple(blocks), together, grad, query, key, value, bias, bucket,
        table, number, dropout, drawn, stats, of_query, of_key, of_value, of_bias, tables,
    )  # fmt: skip
    nodes = (t.to(dtype) for t in (of_query, of_key, of_value))
    return *nodes, of_bias, tables.sum(0)  # type: ignore[return-value]
