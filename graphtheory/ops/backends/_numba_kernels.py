"""Loops over CSR rows; plain functions, which `_launch` compiles.

Rows are cut into chunks of about equal work (rows + edges); a loop does chunks start..stop-1. A row
is summed in edge order within one chunk, partial tables are added in chunk order, and one machine
code serves all threads: results are the same bits for any number of them.
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


def edge_softmax(start, stop, indptr, logits, out):
    """Softmax of each row and head; a row of -inf gives zeros."""
    heads = logits.shape[1]
    for chunk in range(start, stop):
        for i in range(first_row(indptr, chunk), first_row(indptr, chunk + 1)):
            first, last = indptr[i], indptr[i + 1]
            for h in range(heads):
                top = out.dtype.type(-np.inf)
                for e in range(first, last):
                    top = max(top, logits[e, h])
                if top == -np.inf:
                    top = out.dtype.type(0)
                total = out.dtype.type(0)
                for e in range(first, last):
                    out[e, h] = math.exp(logits[e, h] - top)
                    total += out[e, h]
                if total != 0:
                    for e in range(first, last):
                        out[e, h] /= total


def edge_softmax_backward(start, stop, indptr, weights, grad, out):
    """Write out = weights * (grad - sum over the row of weights * grad)."""
    heads = weights.shape[1]
    for chunk in range(start, stop):
        for i in range(first_row(indptr, chunk), first_row(indptr, chunk + 1)):
            for h in range(heads):
                mean = out.dtype.type(0)
                for e in range(indptr[i], indptr[i + 1]):
                    mean += weights[e, h] * grad[e, h]
                for e in range(indptr[i], indptr[i + 1]):
                    out[e, h] = weights[e, h] * (grad[e, h] - mean)


def aggregate(start, stop, indptr, indices, weights, value, out):
    """Write out[i, h] = sum over the row of weights[e, h] * value[j, h]."""
    heads, dim = value.shape[1], value.shape[2]
    for chunk in range(start, stop):
        for i in range(first_row(indptr, chunk), first_row(indptr, chunk + 1)):
            out[i] = 0
            for e in range(indptr[i], indptr[i + 1]):
                j = indices[e]
                for h in range(heads):
                    w = weights[e, h]
                    for d in range(dim):
                        out[i, h, d] += w * value[j, h, d]


def attention(
    start,
    stop,
    indptr,
    indices,
    query,
    key,
    value,
    bias,
    bucket,
    table,
    scale,
    p,
    seed,
    out,
    weights,
):
    """Logits, softmax and sum, row after row; `weights` [E, H] are those before dropout."""
    heads, dim = query.shape[1], query.shape[2]
    real = weights.dtype.type
    for chunk in range(start, stop):
        top = np.empty(heads, weights.dtype)
        total = np.empty(heads, weights.dtype)
        for i in range(first_row(indptr, chunk), first_row(indptr, chunk + 1)):
            first, last = indptr[i], indptr[i + 1]
            top[:] = real(-np.inf)
            total[:] = real(0)
            out[i] = 0
            for e in range(first, last):
                j = indices[e]
                for h in range(heads):
                    s = real(0)
                    for d in range(dim):
                        s += query[i, h, d] * key[j, h, d]
                    s *= scale
                    if bias.shape[0] > 0:
                        s += bias[e, h]
                    if table.shape[0] > 0:
                        s += table[bucket[e], h]
                    weights[e, h] = s
                    top[h] = max(top[h], s)
            for h in range(heads):
                if top[h] == -np.inf:
                    top[h] = real(0)
            for e in range(first, last):
                for h in range(heads):
                    w = math.exp(weights[e, h] - top[h])
                    weights[e, h] = w
                    total[h] += w
            for h in range(heads):
                total[h] = real(1) / total[h] if total[h] != 0 else real(1)
            for e in range(first, last):
                j = indices[e]
                for h in range(heads):
                    w = weights[e, h] * total[h]
                    weights[e, h] = w
                    if p > 0:
                        w = w / real(1 - p) if kept(e * heads + h, p, seed) else real(0)
                    for d in range(dim):
                        out[i, h, d] += w * value[j, h, d]


def attention_backward_rows(
    start, stop, indptr, indices, grad, query, key, value, weights, bucket, scale, p, seed,
    grad_query, grad_logits, grad_table,
):  # fmt: skip
    """Pass over receivers: gradients of query, of the logits [E, H], and one bias table a chunk."""
    heads, dim = query.shape[1], query.shape[2]
    real = weights.dtype.type
    for chunk in range(start, stop):
        mean = np.empty(heads, weights.dtype)
        if grad_table.shape[0] > 0:
            grad_table[chunk] = 0
        for i in range(first_row(indptr, chunk), first_row(indptr, chunk + 1)):
            mean[:] = real(0)
            grad_query[i] = 0
            for e in range(indptr[i], indptr[i + 1]):
                j = indices[e]
                for h in range(heads):
                    g = real(0)
                    for d in range(dim):
                        g += grad[i, h, d] * value[j, h, d]
                    if p > 0:
                        g = g / real(1 - p) if kept(e * heads + h, p, seed) else real(0)
                    grad_logits[e, h] = g
                    mean[h] += weights[e, h] * g
            for e in range(indptr[i], indptr[i + 1]):
                j = indices[e]
                for h in range(heads):
                    g = weights[e, h] * (grad_logits[e, h] - mean[h])
                    grad_logits[e, h] = g
                    if grad_table.shape[0] > 0:
                        grad_table[chunk, bucket[e], h] += g
                    g *= scale
                    for d in range(dim):
                        grad_query[i, h, d] += g * key[j, h, d]


def attention_backward_columns(
    start, stop, t_indptr, receivers, perm, grad, query, weights, grad_logits, scale, p, seed,
    grad_key, grad_value,
):  # fmt: skip
    """Pass over senders, by the transposed structure: gradients of key and value."""
    heads, dim = query.shape[1], query.shape[2]
    real = weights.dtype.type
    for chunk in range(start, stop):
        for j in range(first_row(t_indptr, chunk), first_row(t_indptr, chunk + 1)):
            grad_key[j] = 0
            grad_value[j] = 0
            for t in range(t_indptr[j], t_indptr[j + 1]):
                i, e = receivers[t], perm[t]
                for h in range(heads):
                    g = grad_logits[e, h] * scale
                    w = weights[e, h]
                    if p > 0:
                        w = w / real(1 - p) if kept(e * heads + h, p, seed) else real(0)
                    for d in range(dim):
                        grad_key[j, h, d] += g * query[i, h, d]
                        grad_value[j, h, d] += w * grad[i, h, d]
