"""Loops over CSR rows; plain functions, which `_launch` compiles.

Rows are cut into chunks of about equal work (rows + edges); a loop does chunks start..stop-1. A row
is summed in edge order within one chunk, partial tables are added in chunk order, and one machine
code serves all threads: results are the same bits for any number of them.
Each loop reads one node array at random: two at once would fall out of the cache sooner.
Node arrays are C-contiguous [N, H, D], edge arrays [E, H].
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

CHUNKS = 128


@njit(cache=True)
def first_row(indptr, chunk):
    """Lowest row with at least chunk / CHUNKS of all rows + edges before it."""
    rows = indptr.shape[0] - 1
    target = (indptr[rows] + rows) * chunk // CHUNKS
    low, high = 0, rows
    while low < high:
        middle = (low + high) // 2
        if indptr[middle] + middle < target:
            low = middle + 1
        else:
            high = middle
    return low


@njit(cache=True)
def _mix(x):
    x = ((x ^ (x >> np.uint64(16))) * np.uint64(0x7FEB352D)) & np.uint64(0xFFFFFFFF)
    x = ((x ^ (x >> np.uint64(15))) * np.uint64(0x846CA68B)) & np.uint64(0xFFFFFFFF)
    return x ^ (x >> np.uint64(16))


@njit(cache=True)
def kept(counter, p, seed):
    """Whether entry `counter` stays: the rule of `ops.dropout.dropout_factor`."""
    c = np.uint64(counter)
    draw = _mix(_mix((c & np.uint64(0xFFFFFFFF)) ^ np.uint64(seed)) ^ (c >> np.uint64(32)))
    return draw >= np.uint64(p * 4294967296.0)


def edge_dot(start, stop, indptr, indices, query, key, out):
    """Write out[e, h] = <query[i, h], key[j, h]>."""
    heads, dim = query.shape[1], query.shape[2]
    for chunk in range(start, stop):
        for i in range(first_row(indptr, chunk), first_row(indptr, chunk + 1)):
            for e in range(indptr[i], indptr[i + 1]):
                j = indices[e]
                for h in range(heads):
                    total = out.dtype.type(0)
                    for d in range(dim):
                        total += query[i, h, d] * key[j, h, d]
                    out[e, h] = total


def softmax(start, stop, indptr, logits, bias, bucket, table, scale, out):
    """Write the softmax of each row of scale * logits + bias + table[bucket]; -inf gives zeros.

    `bias` or `table` may have no rows; `out` may be `logits`.
    """
    heads = logits.shape[1]
    real = out.dtype.type
    for chunk in range(start, stop):
        top = np.empty(heads, out.dtype)
        total = np.empty(heads, out.dtype)
        for i in range(first_row(indptr, chunk), first_row(indptr, chunk + 1)):
            top[:] = real(-np.inf)
            total[:] = real(0)
            for e in range(indptr[i], indptr[i + 1]):
                for h in range(heads):
                    s = logits[e, h] * scale
                    if bias.shape[0] > 0:
                        s += bias[e, h]
                    if table.shape[0] > 0:
                        s += table[bucket[e], h]
                    out[e, h] = s
                    top[h] = max(top[h], s)
            for h in range(heads):
                if top[h] == -np.inf:
                    top[h] = real(0)
            for e in range(indptr[i], indptr[i + 1]):
                for h in range(heads):
                    w = math.exp(out[e, h] - top[h])
                    out[e, h] = w
                    total[h] += w
            for h in range(heads):
                total[h] = real(1) / total[h] if total[h] != 0 else real(1)
            for e in range(indptr[i], indptr[i + 1]):
                for h in range(heads):
                    out[e, h] *= total[h]


def softmax_backward(start, stop, indptr, weights, grad, bucket, p, seed, out, tables):
    """Write weights * (g - sum over the row of weights * g), g being `grad` of the kept weights.

    The sums of the result by bucket go to one table [Z, H] a chunk, if there are tables. `out` may
    be `grad`.
    """
    heads = weights.shape[1]
    real = out.dtype.type
    for chunk in range(start, stop):
        mean = np.empty(heads, out.dtype)
        if tables.shape[0] > 0:
            tables[chunk] = 0
        for i in range(first_row(indptr, chunk), first_row(indptr, chunk + 1)):
            mean[:] = real(0)
            for e in range(indptr[i], indptr[i + 1]):
                for h in range(heads):
                    g = grad[e, h]
                    if p > 0:
                        g = g / real(1 - p) if kept(e * heads + h, p, seed) else real(0)
                    out[e, h] = g
                    mean[h] += weights[e, h] * g
            for e in range(indptr[i], indptr[i + 1]):
                for h in range(heads):
                    g = weights[e, h] * (out[e, h] - mean[h])
                    out[e, h] = g
                    if tables.shape[0] > 0:
                        tables[chunk, bucket[e], h] += g


def aggregate(start, stop, indptr, indices, perm, weights, value, scale, p, seed, out):
    """Write out[i, h] = scale * sum over the row of the kept weights[e, h] * value[j, h].

    Entry t of a row has the weight of edge e = perm[t], or of edge t where `perm` is empty.
    """
    heads, dim = value.shape[1], value.shape[2]
    real = out.dtype.type
    for chunk in range(start, stop):
        for i in range(first_row(indptr, chunk), first_row(indptr, chunk + 1)):
            out[i] = 0
            for t in range(indptr[i], indptr[i + 1]):
                j = indices[t]
                e = perm[t] if perm.shape[0] > 0 else t
                for h in range(heads):
                    w = weights[e, h] * scale
                    if p > 0:
                        w = w / real(1 - p) if kept(e * heads + h, p, seed) else real(0)
                    for d in range(dim):
                        out[i, h, d] += w * value[j, h, d]
