"""Kernels of attention: forward, merging of chunks, and the backward pass over targets.

Forward, every slot of a tile is a softmax of its own over the edges it meets (running maximum, sum
and weighted sum of values); the slots of a row are merged when the row ends, and the chunks of a
long row by `merge`, both by the same formula. So no thread waits for another inside the loop.
"""

from __future__ import annotations

import triton
import triton.language as tl

from graphtheory.ops.backends.triton.parts import (
    SIZES,
    dropout_factor,
    entries,
    features,
    finite,
    gather,
    number,
    own,
    per_edge,
    per_row,
    put_own,
    put_per_edge,
    put_per_row,
    span,
)


@triton.jit
def _step(
    offset, start, stop, head, head_live, column, exists, query,
    indices, key, value, bias, bucket, table, scale,
    HEADS: tl.constexpr, DIM: tl.constexpr, BUCKETS: tl.constexpr, ACC: tl.constexpr,
    B: tl.constexpr,
):  # fmt: skip
    """The B next edges of each row: edge, whether it is one, logits [R, B, G], keys and values.

    A logit is minus infinity where there is no edge, and NaN for a bucket beyond the table.
    """
    edge, live, node = entries(indices, None, start, stop, offset, B)
    keys = gather(key, node, live, column, exists, HEADS * DIM, ACC)
    values = gather(value, node, live, column, exists, HEADS * DIM, ACC)
    logits = tl.sum(query[:, None, :, :] * keys, 3) * number(scale, ACC)
    if bias is not None:
        logits += per_edge(bias, edge, live, head, head_live, HEADS, ACC)
    if bucket is not None:
        row = tl.load(bucket + edge, mask=live, other=0).to(tl.int32)
        known = (row < BUCKETS)[:, :, None] & head_live[None, None, :]
        at = table + row[:, :, None] * HEADS + head[None, None, :]
        logits += tl.load(at, mask=known, other=float("nan")).to(ACC)
    return edge, live, tl.where(live[:, :, None], logits, float("-inf")), keys, values


@triton.jit
def _merged(top, total, sums):
    """Softmax over axis 1 of softmaxes: values [R, G, C]; maximum and log of the sum [R, G]."""
    best = tl.max(top, 1)
    weight = tl.exp(top - finite(best)[:, None, :])
    whole = tl.sum(total * weight, 1)
    some = tl.where(whole == 0, 1.0, whole)
    out = tl.sum(sums * weight[:, :, :, None], 1) / some[:, :, None]
    return out, best, tl.log(some)


@triton.jit(do_not_specialize=SIZES)
def forward(
    rows, starts, indptr, count, out, norm,
    indices, query, key, value, bias, bucket, table, seed,
    scale: tl.float64, threshold: tl.int64, kept: tl.float64,
    HEADS: tl.constexpr, DIM: tl.constexpr, BUCKETS: tl.constexpr, ACC: tl.constexpr,
    DEGREE: tl.constexpr, CHUNK: tl.constexpr, WHOLE: tl.constexpr,
    R: tl.constexpr, B: tl.constexpr, G: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Write out [N, H, D] and norm [N, 2, H] of some rows, or of chunks at the chunks' places.

    `norm` is the row's largest logit and the log of the sum of exponentials less it: apart, because
    the sum of the two would round away the digits that the exponentials of large logits need.
    """
    row, place, live, start, stop = span(rows, starts, indptr, count, R, DEGREE, CHUNK)
    head, head_live, column, exists = features(HEADS, DIM, G, C)
    q = own(query, row, live, column, exists, HEADS * DIM, ACC)
    edge, _, top, _, sums = _step(
        0, start, stop, head, head_live, column, exists, q,
        indices, key, value, bias, bucket, table, scale, HEADS, DIM, BUCKETS, ACC, B,
    )  # fmt: skip
    if seed is not None:
        factor = dropout_factor(edge, head, seed, threshold, kept, HEADS, ACC)
        sums *= factor[:, :, :, None]
    total = tl.full(top.shape, 1.0, ACC)
    longest = tl.max(stop - start, 0).to(tl.int32)
    for offset in range(B, B if WHOLE else longest, B):
        edge, _, s, _, v = _step(
            offset, start, stop, head, head_live, column, exists, q,
            indices, key, value, bias, bucket, table, scale, HEADS, DIM, BUCKETS, ACC, B,
        )  # fmt: skip
        new = tl.maximum(top, s)
        old = tl.exp(top - finite(new))
        p = tl.exp(s - finite(new))
        total = total * old + p
        if seed is not None:
            p *= dropout_factor(edge, head, seed, threshold, kept, HEADS, ACC)
        sums = sums * old[:, :, :, None] + p[:, :, :, None] * v
        top = new
    result, best, log_sum = _merged(top, total, sums)
    put_own(out, place, live, column, exists, result, HEADS * DIM)
    put_per_row(norm, 2 * place, live, head, head_live, best, HEADS)
    put_per_row(norm, 2 * place + 1, live, head, head_live, log_sum, HEADS)


@triton.jit
def merge(
    long, bounds, part, part_norm, out, norm,
    HEADS: tl.constexpr, DIM: tl.constexpr, ACC: tl.constexpr,
    B: tl.constexpr, G: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Write out and norm of a long row from those of its chunks, B chunks a step."""
    place = tl.program_id(0) + tl.arange(0, 1)
    head, head_live, column, exists = features(HEADS, DIM, G, C)
    first, last = tl.load(bounds + place), tl.load(bounds + place + 1)
    top = tl.full((1, B, G), float("-inf"), ACC)
    total = tl.zeros((1, B, G), ACC)
    sums = tl.zeros((1, B, G, C), ACC)
    for offset in range(0, tl.max(last - first, 0).to(tl.int32), B):
        chunk = first[:, None] + offset + tl.arange(0, B)[None, :]
        live = chunk < last[:, None]
        s = per_edge(part_norm, 2 * chunk, live, head, head_live, HEADS, ACC)
        s = tl.where(live[:, :, None], s, float("-inf"))
        log_sum = per_edge(part_norm, 2 * chunk + 1, live, head, head_live, HEADS, ACC)
        new = tl.maximum(top, s)
        old = tl.exp(top - finite(new))
        p = tl.exp((s - finite(new)) + log_sum)
        total = total * old + p
        v = gather(part, chunk, live, column, exists, HEADS * DIM, ACC)
        sums = sums * old[:, :, :, None] + p[:, :, :, None] * v
        top = new
    result, best, log_sum = _merged(top, total, sums)
    row = tl.load(long + place).to(tl.int64)
    put_own(out, row, row >= 0, column, exists, result, HEADS * DIM)
    put_per_row(norm, 2 * row, row >= 0, head, head_live, best, HEADS)
    put_per_row(norm, 2 * row + 1, row >= 0, head, head_live, log_sum, HEADS)


@triton.jit(do_not_specialize=SIZES)
def targets(
    rows, starts, indptr, count, grad_query,
    grad, out, norm, weights, grad_logits,
    indices, query, key, value, bias, bucket, table, seed,
    scale: tl.float64, threshold: tl.int64, kept: tl.float64,
    HEADS: tl.constexpr, DIM: tl.constexpr, BUCKETS: tl.constexpr, ACC: tl.constexpr,
    DEGREE: tl.constexpr, CHUNK: tl.constexpr, WHOLE: tl.constexpr,
    R: tl.constexpr, B: tl.constexpr, G: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Write grad_query of rows (or chunks), and of their edges grad_logits and kept weights."""
    row, place, live, start, stop = span(rows, starts, indptr, count, R, DEGREE, CHUNK)
    head, head_live, column, exists = features(HEADS, DIM, G, C)
    q = own(query, row, live, column, exists, HEADS * DIM, ACC)
    g = own(grad, row, live, column, exists, HEADS * DIM, ACC)
    if not WHOLE:
        # The sum over the row of each weight times its gradient, with dropout too.
        mean = tl.sum(g * own(out, row, live, column, exists, HEADS * DIM, ACC), 2)
        best = finite(per_row(norm, 2 * row, live, head, head_live, HEADS, ACC))
        log_sum = per_row(norm, 2 * row + 1, live, head, head_live, HEADS, ACC)
    sums = tl.zeros((R, B, G, C), ACC)
    longest = tl.max(stop - start, 0).to(tl.int32)
    for offset in range(0, B if WHOLE else longest, B):
        edge, here, s, k, v = _step(
            offset, start, stop, head, head_live, column, exists, q,
            indices, key, value, bias, bucket, table, scale, HEADS, DIM, BUCKETS, ACC, B,
        )  # fmt: skip
        if WHOLE:  # no need of rounded sums: the row is here
            p = tl.exp(s - finite(tl.max(s, 1))[:, None, :])
            whole = tl.sum(p, 1)
            p /= tl.where(whole == 0, 1.0, whole)[:, None, :]
        else:
            p = tl.exp((s - best[:, None, :]) - log_sum[:, None, :])
        up = tl.sum(g[:, None, :, :] * v, 3)
        kept_p = p
        if seed is not None:
            factor = dropout_factor(edge, head, seed, threshold, kept, HEADS, ACC)
            up *= factor
            kept_p *= factor
        if WHOLE:
            mean = tl.sum(p * up, 1)
        flow = p * (up - mean[:, None, :])
        sums += flow[:, :, :, None] * k
        put_per_edge(weights, edge, here, head, head_live, kept_p, HEADS)
        put_per_edge(grad_logits, edge, here, head, head_live, flow, HEADS)
    result = tl.sum(sums, 1) * number(scale, ACC)
    put_own(grad_query, place, live, column, exists, result, HEADS * DIM)
