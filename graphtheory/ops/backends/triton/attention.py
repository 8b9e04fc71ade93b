"""Kernels of attention: forward, merging of chunks, and the two backward passes.

Forward, a row goes along its edges with a running maximum, sum and weighted sum of values; `merge`
puts the chunks of a long row together by the same formula. A logit is a scaled dot product of query
and key, or GAT's score, the leaky sum of values of the target and, if given, of the source and the
edge: then there are no queries and keys, the edge's value is the bias, and the scale is the slope
below 0.
"""

from __future__ import annotations

import triton
import triton.language as tl

from graphtheory.ops.backends.triton.primitives import (
    SIZES,
    by_head,
    cast,
    dropout_factor,
    entries,
    features,
    finite,
    gather,
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
def _of_target(
    query, dst_score, row, live, head, head_live, column, exists,
    HEADS: tl.constexpr, DIM: tl.constexpr, ACC: tl.constexpr,
    R: tl.constexpr, G: tl.constexpr,
):  # fmt: skip
    """The queries [R, F] of rows, or their scores [R, G], 0 where there are none."""
    if query is not None:  # with a return here Triton would compile what follows too
        mine = own(query, row, live, column, exists, HEADS * DIM, ACC)
    else:
        mine = tl.zeros((R, G), ACC)
        if dst_score is not None:
            mine += per_row(dst_score, row, live, head, head_live, HEADS, ACC)
    return mine


@triton.jit
def _step(
    offset, start, stop, head, head_live, column, exists, mine,
    indices, key, value, src_score, bias, bucket, table, scale,
    HEADS: tl.constexpr, DIM: tl.constexpr, BUCKETS: tl.constexpr, ACC: tl.constexpr,
    B: tl.constexpr, G: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """The B next edges of each row: edge, whether it is one, logits [R, B, G], slopes and values.

    Slopes are what a logit grows by with `mine`: keys, or those of the leaky sum.
    """
    edge, live, node = entries(indices, None, start, stop, offset, B)
    if key is not None:
        slopes = gather(key, node, live, column, exists, HEADS * DIM, ACC)
    values = gather(value, node, live, column, exists, HEADS * DIM, ACC)
    if key is not None:
        logits = by_head(mine[:, None, :] * slopes, G, C) * cast(scale, ACC)
    else:
        logits = mine[:, None, :]
        if src_score is not None:
            logits += per_edge(src_score, node, live, head, head_live, HEADS, ACC)
    if bias is not None:
        logits += per_edge(bias, edge, live, head, head_live, HEADS, ACC)
    if bucket is not None:
        row = tl.load(bucket + edge, mask=live, other=0).to(tl.int32)
        known = (row < BUCKETS)[:, :, None] & head_live[None, None, :]
        at = table + row[:, :, None] * HEADS + head[None, None, :]
        logits += tl.load(at, mask=known, other=float("nan")).to(ACC)
    there = live[:, :, None]
    if key is None:
        slopes = tl.where(logits > 0, 1.0, cast(scale, ACC))
        there = there & (logits != float("-inf"))  # a slope of 0 would make it NaN
        logits = tl.where(there, logits, 0.0) * slopes
    return edge, live, tl.where(there, logits, float("-inf")), slopes, values


@triton.jit
def _raised(top, s):
    """A maximum [R, G] with logits [R, B, G]: it, by what sums before shrink, exponentials."""
    new = tl.maximum(top, tl.max(s, 1))
    return new, tl.exp(top - finite(new)), tl.exp(s - finite(new)[:, None, :])


@triton.jit
def _put_rows(
    out, softmax_stats, added, place, live, head, head_live, column, exists, top, total, sums,
    WHOLE: tl.constexpr,
    HEADS: tl.constexpr, DIM: tl.constexpr, STATS: tl.constexpr,
    ACC: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Write what `forward` writes; nothing to sum gives 0."""
    some = tl.where(total == 0, 1.0, total)
    result = sums / spread_row(some, C)
    more = result
    if WHOLE and (added is not None):
        more = result + own(added, place, live, column, exists, 0, ACC)
    put_own(out, place, live, column, exists, more, HEADS * DIM)
    put_per_row(softmax_stats, STATS * place, live, head, head_live, top, HEADS)
    put_per_row(softmax_stats, STATS * place + 1, live, head, head_live, tl.log(some), HEADS)
    if WHOLE and STATS > 2:
        put_own(softmax_stats + 2 * HEADS, place, live, column, exists, result, STATS * HEADS)


@triton.jit(do_not_specialize=SIZES)
def forward(
    rows, starts, indptr, count, out, softmax_stats,
    added, indices, query, key, value, src_score, dst_score, bias, bucket, table, seed,
    scale: tl.float64, threshold: tl.int64, kept: tl.float64,
    HEADS: tl.constexpr, DIM: tl.constexpr, BUCKETS: tl.constexpr, ACC: tl.constexpr,
    STATS: tl.constexpr,
    CHUNK: tl.constexpr, R: tl.constexpr, B: tl.constexpr, G: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Write out [N, H, D] and statistics [N, STATS, H] of some rows, or of chunks at their places.

    These are the row's largest logit and the log of the sum of exponentials less it: apart, because
    the sum of the two would round away the digits that the exponentials of large logits need. If
    STATS is more than 2, D rows follow, the output as it was before it was rounded, and before the
    one row `added` was, which all rows get.
    """
    row, place, live, start, stop = span(rows, starts, indptr, count, R, CHUNK)
    head, head_live, column, exists = features(HEADS, DIM, G, C)
    mine = _of_target(
        query, dst_score, row, live, head, head_live, column, exists, HEADS, DIM, ACC, R, G
    )
    top = tl.full((R, G), float("-inf"), ACC)
    total = tl.zeros((R, G), ACC)
    sums = tl.zeros((R, G * C), ACC)
    longest = tl.max(stop - start, 0).to(tl.int32)
    for offset in range(0, longest, B):
        edge, _, s, _, v = _step(
            offset, start, stop, head, head_live, column, exists, mine, indices, key, value,
            src_score, bias, bucket, table, scale, HEADS, DIM, BUCKETS, ACC, B, G, C,
        )  # fmt: skip
        top, old, p = _raised(top, s)
        total = total * old + tl.sum(p, 1)
        if seed is not None:
            p *= dropout_factor(edge, head, seed, threshold, kept, HEADS, ACC)
        sums = sums * spread_row(old, C) + tl.sum(spread(p, C) * v, 1)
    _put_rows(
        out, softmax_stats, added, place, live, head, head_live, column, exists, top, total, sums,
        CHUNK == 0, HEADS, DIM, STATS, ACC, C,
    )  # fmt: skip


@triton.jit
def merge(
    long, bounds, part, part_stats, out, softmax_stats, added,
    HEADS: tl.constexpr, DIM: tl.constexpr, ACC: tl.constexpr, STATS: tl.constexpr,
    B: tl.constexpr, G: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Write out and statistics of a long row from those of its chunks, B chunks a step."""
    place = tl.program_id(0) + tl.arange(0, 1)
    head, head_live, column, exists = features(HEADS, DIM, G, C)
    first, last = tl.load(bounds + place), tl.load(bounds + place + 1)
    top = tl.full((1, G), float("-inf"), ACC)
    total = tl.zeros((1, G), ACC)
    sums = tl.zeros((1, G * C), ACC)
    for offset in range(0, tl.max(last - first, 0).to(tl.int32), B):
        chunk = first[:, None] + offset + tl.arange(0, B)[None, :]
        live = chunk < last[:, None]
        s = per_edge(part_stats, STATS * chunk, live, head, head_live, HEADS, ACC)
        log_sum = per_edge(part_stats, STATS * chunk + 1, live, head, head_live, HEADS, ACC)
        top, old, p = _raised(top, tl.where(live[:, :, None], s, float("-inf")))
        p *= tl.exp(log_sum)
        total = total * old + tl.sum(p, 1)
        v = gather(part, chunk, live, column, exists, HEADS * DIM, ACC)
        sums = sums * spread_row(old, C) + tl.sum(spread(p, C) * v, 1)
    row = tl.load(long + place).to(tl.int64)
    _put_rows(
        out, softmax_stats, added, row, row >= 0, head, head_live, column, exists, top, total, sums,
        True, HEADS, DIM, STATS, ACC, C,
    )  # fmt: skip


@triton.jit(do_not_specialize=SIZES)
def targets(
    rows, starts, indptr, count, of_target,
    grad, out, softmax_stats, weights, grads,
    indices, query, key, value, src_score, dst_score, bias, bucket, table, seed,
    scale: tl.float64, threshold: tl.int64, kept: tl.float64,
    HEADS: tl.constexpr, DIM: tl.constexpr, BUCKETS: tl.constexpr, ACC: tl.constexpr,
    STATS: tl.constexpr,
    CHUNK: tl.constexpr, R: tl.constexpr, B: tl.constexpr, G: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Write kept weights of edges, gradients of logits or leaky sums; these added up by row.

    A rounded output would leave a gradient where the true one is 0, as of sources all alike: if
    STATS is more than 2 the mean gradient of a row's weights is that of the output before.
    """
    row, place, live, start, stop = span(rows, starts, indptr, count, R, CHUNK)
    head, head_live, column, exists = features(HEADS, DIM, G, C)
    mine = _of_target(
        query, dst_score, row, live, head, head_live, column, exists, HEADS, DIM, ACC, R, G
    )
    g = own(grad, row, live, column, exists, HEADS * DIM, ACC)
    if STATS > 2:
        was = own(softmax_stats + 2 * HEADS, row, live, column, exists, STATS * HEADS, ACC)
    else:
        was = own(out, row, live, column, exists, HEADS * DIM, ACC)
    mean = row_by_head(g * was, G, C)
    best = finite(per_row(softmax_stats, STATS * row, live, head, head_live, HEADS, ACC))
    log_sum = per_row(softmax_stats, STATS * row + 1, live, head, head_live, HEADS, ACC)
    sums = tl.zeros_like(mine)
    longest = tl.max(stop - start, 0).to(tl.int32)
    for offset in range(0, longest, B):
        edge, here, s, slopes, v = _step(
            offset, start, stop, head, head_live, column, exists, mine, indices, key, value,
            src_score, bias, bucket, table, scale, HEADS, DIM, BUCKETS, ACC, B, G, C,
        )  # fmt: skip
        weight = tl.exp((s - best[:, None, :]) - log_sum[:, None, :])
        up = by_head(g[:, None, :] * v, G, C)
        factor = tl.full((), 1.0, ACC)
        if seed is not None:
            factor = dropout_factor(edge, head, seed, threshold, kept, HEADS, ACC)
            up *= factor
        expected = mean
        if CHUNK == 0:  # noqa: SIM102 - known when the kernel is compiled, the other when it runs
            if longest <= B:  # rows have no other edges, so no need of what was rounded
                total = tl.sum(weight, 1)
                weight /= tl.where(total == 0, 1.0, total)[:, None, :]
                expected = tl.sum(weight * up, 1)
        found = weight * (up - expected[:, None, :])
        weight *= factor
        if query is not None:
            sums += tl.sum(spread(found, C) * slopes, 1)
        else:
            found *= slopes
            sums += tl.sum(found, 1)
        put_per_edge(weights, edge, here, head, head_live, weight, HEADS)
        put_per_edge(grads, edge, here, head, head_live, found, HEADS)
    if query is not None:
        put_own(of_target, place, live, column, exists, sums * cast(scale, ACC), HEADS * DIM)
    elif of_target is not None:
        put_per_row(of_target, place, live, head, head_live, sums, HEADS)


@triton.jit(do_not_specialize=SIZES)
def scored_sources(
    rows, starts, indptr, count, of_value, of_src_score,
    indices, perm, weights, grads, grad, of_dst_score, att_src, att_dst,
    HEADS: tl.constexpr, DIM: tl.constexpr, ACC: tl.constexpr,
    CHUNK: tl.constexpr, R: tl.constexpr, B: tl.constexpr, G: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Write of sources the sums of weights * grad, and of grads; entry t is edge perm[t].

    With vectors `att_src` and `att_dst`, by which scores were made of values, the first contain the
    gradients that pass through the scores.
    """
    row, place, live, start, stop = span(rows, starts, indptr, count, R, CHUNK)
    head, head_live, column, exists = features(HEADS, DIM, G, C)
    sums = tl.zeros((R, G * C), ACC)
    total = tl.zeros((R, G), ACC)
    longest = tl.max(stop - start, 0).to(tl.int32)
    for offset in range(0, longest, B):
        edge, here, node = entries(indices, perm, start, stop, offset, B)
        w = per_edge(weights, edge, here, head, head_live, HEADS, ACC)
        g = gather(grad, node, here, column, exists, HEADS * DIM, ACC)
        sums += tl.sum(spread(w, C) * g, 1)
        total += tl.sum(per_edge(grads, edge, here, head, head_live, HEADS, ACC), 1)
    if att_src is not None:
        sums += spread_row(total, C) * tl.load(att_src + column, mask=exists, other=0).to(ACC)
        first = live & (start == tl.load(indptr + row, mask=live, other=-1))  # once a row
        of_dst = per_row(of_dst_score, row, first, head, head_live, HEADS, ACC)
        sums += spread_row(of_dst, C) * tl.load(att_dst + column, mask=exists, other=0).to(ACC)
    put_own(of_value, place, live, column, exists, sums, HEADS * DIM)
    put_per_row(of_src_score, place, live, head, head_live, total, HEADS)


@triton.jit(do_not_specialize=SIZES)
def scores(
    value, att_src, att_dst, src_score, dst_score, count,
    HEADS: tl.constexpr, DIM: tl.constexpr, ACC: tl.constexpr,
    R: tl.constexpr, G: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Write <att_src[h], value[i, h]> and <att_dst[h], value[i, h]> of nodes."""
    row = tl.program_id(0).to(tl.int64) * R + tl.arange(0, R)
    head, head_live, column, exists = features(HEADS, DIM, G, C)
    v = own(value, row, row < count, column, exists, HEADS * DIM, ACC)
    a = tl.load(att_src + column, mask=exists, other=0).to(ACC)[None, :]
    put_per_row(src_score, row, row < count, head, head_live, row_by_head(v * a, G, C), HEADS)
    a = tl.load(att_dst + column, mask=exists, other=0).to(ACC)[None, :]
    put_per_row(dst_score, row, row < count, head, head_live, row_by_head(v * a, G, C), HEADS)
