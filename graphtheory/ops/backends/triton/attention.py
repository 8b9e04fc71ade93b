"""Kernels of attention: forward, merging of chunks, and the backward pass over targets.

Forward, a row goes along its edges with a running maximum, sum and weighted sum of values; `merge`
puts the chunks of a long row together by the same formula.
"""

from __future__ import annotations

import triton
import triton.language as tl

from graphtheory.ops.backends.triton.parts import (
    SIZES,
    by_head,
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
    row_by_head,
    span,
    spread,
    spread_row,
)


@triton.jit
def _step(
    offset, start, stop, head, head_live, column, exists, query,
    indices, key, value, bias, bucket, table, scale,
    HEADS: tl.constexpr, DIM: tl.constexpr, BUCKETS: tl.constexpr, ACC: tl.constexpr,
    B: tl.constexpr, G: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """The B next edges of each row: edge, whether it is one, logits [R, B, G], keys and values.

    A logit is minus infinity where there is no edge, and NaN for a bucket beyond the table.
    """
    edge, live, node = entries(indices, None, start, stop, offset, B)
    keys = gather(key, node, live, column, exists, HEADS * DIM, ACC)
    values = gather(value, node, live, column, exists, HEADS * DIM, ACC)
    logits = by_head(query[:, None, :] * keys, G, C) * number(scale, ACC)
    if bias is not None:
        logits += per_edge(bias, edge, live, head, head_live, HEADS, ACC)
    if bucket is not None:
        row = tl.load(bucket + edge, mask=live, other=0).to(tl.int32)
        known = (row < BUCKETS)[:, :, None] & head_live[None, None, :]
        at = table + row[:, :, None] * HEADS + head[None, None, :]
        logits += tl.load(at, mask=known, other=float("nan")).to(ACC)
    return edge, live, tl.where(live[:, :, None], logits, float("-inf")), keys, values


@triton.jit
def _raised(top, s):
    """A maximum [R, G] with logits [R, B, G]: it, by what sums before shrink, exponentials."""
    new = tl.maximum(top, tl.max(s, 1))
    return new, tl.exp(top - finite(new)), tl.exp(s - finite(new)[:, None, :])


@triton.jit
def with_edges(
    top, total, sums, s, v, edge, head, seed, threshold, kept,
    HEADS: tl.constexpr, ACC: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Of rows the maximum, sum of exponentials and sum of values [R, F], with B more edges."""
    top, old, p = _raised(top, s)
    total = total * old + tl.sum(p, 1)
    if seed is not None:
        p *= dropout_factor(edge, head, seed, threshold, kept, HEADS, ACC)
    return top, total, sums * spread_row(old, C) + tl.sum(spread(p, C) * v, 1)


@triton.jit
def put_rows(
    out, norm, place, live, head, head_live, column, exists, top, total, sums,
    WIDE: tl.constexpr,
    HEADS: tl.constexpr, DIM: tl.constexpr, NORM: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Write out and norm as `forward` has them, its D rows of `norm` only if WIDE.

    Nothing to sum gives 0.
    """
    some = tl.where(total == 0, 1.0, total)
    result = sums / spread_row(some, C)
    put_own(out, place, live, column, exists, result, HEADS * DIM)
    put_per_row(norm, NORM * place, live, head, head_live, top, HEADS)
    put_per_row(norm, NORM * place + 1, live, head, head_live, tl.log(some), HEADS)
    if WIDE:
        put_own(norm + 2 * HEADS, place, live, column, exists, result, NORM * HEADS)


@triton.jit(do_not_specialize=SIZES)
def forward(
    rows, starts, indptr, count, out, norm,
    indices, query, key, value, bias, bucket, table, seed,
    scale: tl.float64, threshold: tl.int64, kept: tl.float64,
    HEADS: tl.constexpr, DIM: tl.constexpr, BUCKETS: tl.constexpr, ACC: tl.constexpr,
    NORM: tl.constexpr,
    CHUNK: tl.constexpr, R: tl.constexpr, B: tl.constexpr, G: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Write out [N, H, D] and norm [N, NORM, H] of some rows, or of chunks at the chunks' places.

    `norm` is the row's largest logit and the log of the sum of exponentials less it: apart, because
    the sum of the two would round away the digits that the exponentials of large logits need. If
    NORM is more than 2, D rows follow, the output as it was before it was rounded.
    """
    row, place, live, start, stop = span(rows, starts, indptr, count, R, CHUNK)
    head, head_live, column, exists = features(HEADS, DIM, G, C)
    q = own(query, row, live, column, exists, HEADS * DIM, ACC)
    top = tl.full((R, G), float("-inf"), ACC)
    total = tl.zeros((R, G), ACC)
    sums = tl.zeros((R, G * C), ACC)
    longest = tl.max(stop - start, 0).to(tl.int32)
    for offset in range(0, longest, B):
        edge, _, s, _, v = _step(
            offset, start, stop, head, head_live, column, exists, q,
            indices, key, value, bias, bucket, table, scale, HEADS, DIM, BUCKETS, ACC, B, G, C,
        )  # fmt: skip
        top, total, sums = with_edges(
            top, total, sums, s, v, edge, head, seed, threshold, kept, HEADS, ACC, C
        )
    put_rows(
        out, norm, place, live, head, head_live, column, exists, top, total, sums,
        NORM > 2 and CHUNK == 0, HEADS, DIM, NORM, C,
    )  # fmt: skip


@triton.jit
def merge(
    long, bounds, part, part_norm, out, norm,
    HEADS: tl.constexpr, DIM: tl.constexpr, ACC: tl.constexpr, NORM: tl.constexpr,
    B: tl.constexpr, G: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Write out and norm of a long row from those of its chunks, B chunks a step."""
    place = tl.program_id(0) + tl.arange(0, 1)
    head, head_live, column, exists = features(HEADS, DIM, G, C)
    first, last = tl.load(bounds + place), tl.load(bounds + place + 1)
    top = tl.full((1, G), float("-inf"), ACC)
    total = tl.zeros((1, G), ACC)
    sums = tl.zeros((1, G * C), ACC)
    for offset in range(0, tl.max(last - first, 0).to(tl.int32), B):
        chunk = first[:, None] + offset + tl.arange(0, B)[None, :]
        live = chunk < last[:, None]
        s = per_edge(part_norm, NORM * chunk, live, head, head_live, HEADS, ACC)
        log_sum = per_edge(part_norm, NORM * chunk + 1, live, head, head_live, HEADS, ACC)
        top, old, p = _raised(top, tl.where(live[:, :, None], s, float("-inf")))
        p *= tl.exp(log_sum)
        total = total * old + tl.sum(p, 1)
        v = gather(part, chunk, live, column, exists, HEADS * DIM, ACC)
        sums = sums * spread_row(old, C) + tl.sum(spread(p, C) * v, 1)
    row = tl.load(long + place).to(tl.int64)
    put_rows(
        out, norm, row, row >= 0, head, head_live, column, exists, top, total, sums,
        NORM > 2, HEADS, DIM, NORM, C,
    )  # fmt: skip


@triton.jit
def facts_of(
    g, out, norm, row, live, head, head_live, column, exists,
    HEADS: tl.constexpr, DIM: tl.constexpr, ACC: tl.constexpr, NORM: tl.constexpr,
    G: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Of rows with gradient g [R, F] the two of `norm` and the mean gradient of weights, [R, G].

    The mean is the sum over the row of each weight times its gradient, with dropout
    too. A rounded output would leave a gradient where the true one is 0, as in a row whose sources
    are all alike.
    """
    if NORM > 2:
        was = own(norm + 2 * HEADS, row, live, column, exists, NORM * HEADS, ACC)
    else:
        was = own(out, row, live, column, exists, HEADS * DIM, ACC)
    mean = row_by_head(g * was, G, C)
    best = finite(per_row(norm, NORM * row, live, head, head_live, HEADS, ACC))
    return best, per_row(norm, NORM * row + 1, live, head, head_live, HEADS, ACC), mean


@triton.jit
def flow_of(
    s, v, g, best, log_sum, mean, whole, edge, head, seed, threshold, kept,
    HEADS: tl.constexpr, ACC: tl.constexpr, CHUNK: tl.constexpr, G: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Kept weights [R, B, G] and gradients of logits of B edges; `whole` if rows have no others."""
    p = tl.exp((s - best[:, None, :]) - log_sum[:, None, :])
    up = by_head(g[:, None, :] * v, G, C)
    factor = tl.full((), 1.0, ACC)
    if seed is not None:
        factor = dropout_factor(edge, head, seed, threshold, kept, HEADS, ACC)
        up *= factor
    if CHUNK == 0:  # noqa: SIM102 - known when the kernel is compiled, the other when it runs
        if whole:  # no need of what was rounded
            total = tl.sum(p, 1)
            p /= tl.where(total == 0, 1.0, total)[:, None, :]
            mean = tl.sum(p * up, 1)
    return p * factor, p * (up - mean[:, None, :])


@triton.jit(do_not_specialize=SIZES)
def targets(
    rows, starts, indptr, count, grad_query,
    grad, out, norm, weights, grad_logits,
    indices, query, key, value, bias, bucket, table, seed,
    scale: tl.float64, threshold: tl.int64, kept: tl.float64,
    HEADS: tl.constexpr, DIM: tl.constexpr, BUCKETS: tl.constexpr, ACC: tl.constexpr,
    NORM: tl.constexpr,
    CHUNK: tl.constexpr, R: tl.constexpr, B: tl.constexpr, G: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Write grad_query of rows (or chunks), and of their edges grad_logits and kept weights."""
    row, place, live, start, stop = span(rows, starts, indptr, count, R, CHUNK)
    head, head_live, column, exists = features(HEADS, DIM, G, C)
    q = own(query, row, live, column, exists, HEADS * DIM, ACC)
    g = own(grad, row, live, column, exists, HEADS * DIM, ACC)
    best, log_sum, mean = facts_of(
        g, out, norm, row, live, head, head_live, column, exists, HEADS, DIM, ACC, NORM, G, C
    )
    sums = tl.zeros((R, G * C), ACC)
    longest = tl.max(stop - start, 0).to(tl.int32)
    for offset in range(0, longest, B):
        edge, here, s, k, v = _step(
            offset, start, stop, head, head_live, column, exists, q,
            indices, key, value, bias, bucket, table, scale, HEADS, DIM, BUCKETS, ACC, B, G, C,
        )  # fmt: skip
        weight, flow = flow_of(
            s, v, g, best, log_sum, mean, longest <= B, edge, head, seed, threshold, kept,
            HEADS, ACC, CHUNK, G, C,
        )  # fmt: skip
        sums += tl.sum(spread(flow, C) * k, 1)
        put_per_edge(weights, edge, here, head, head_live, weight, HEADS)
        put_per_edge(grad_logits, edge, here, head, head_live, flow, HEADS)
    put_own(grad_query, place, live, column, exists, sums * number(scale, ACC), HEADS * DIM)
