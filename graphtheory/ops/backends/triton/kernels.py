"""GPU backend: Triton kernels over rows, no tensor with both an edge axis and a feature axis.

Forward, a program holds a row (or some of few features, or a chunk of a long one) and goes along
its edges, some a step for all heads: keys are gathered, dotted and soft-maxed, values gathered and
added up in float32. Saved are of each row the largest logit and the log of the sum of exponentials
less it, [num_dst, 2, H], and for 16-bit types the output in float32 beside them.

Backward, a first pass over targets computes the weights again, the gradient of the query, and for
every edge the gradient of its logit and its kept weight, two arrays [E, H]. A second pass over
sources, by the cached transposed structure, gathers query and gradient with those two and adds up
the gradients of key and value. A bias table's gradient is added up by fixed shares of the edges.

With H heads of D numbers of b bytes, F = H D b: forward reads 2 F bytes an edge, backward 4 F, and
writes and reads 16 H more. No atomics add fractions: results are the same bits each time. Long rows
are found when a structure is first seen; after that nothing waits for the device, so that a CUDA
graph can record a call.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from torch import Tensor

from graphtheory.ops.backends.triton import attention as attention_kernels
from graphtheory.ops.backends.triton import primitives
from graphtheory.ops.backends.triton.bins import tile
from graphtheory.ops.backends.triton.features import (  # noqa: F401
    edge_attention,
    edge_attention_backward,
    edge_dot,
)
from graphtheory.ops.backends.triton.launch import (
    by_bucket,
    ceiling,
    launch,
    merge_softmax,
    options,
    over_logits,
    over_rows,
    plain,
    room,
    room_like,
    weighted_sums,
)
from graphtheory.ops.backends.triton.ranks import rank_edges  # noqa: F401
from graphtheory.ops.backends.triton.replay import record  # noqa: F401
from graphtheory.ops.backends.triton.score import (  # noqa: F401
    additive_score,
    additive_score_backward,
    gated_sum,
    relu_sum,
    relu_sum_backward,
)
from graphtheory.ops.backends.triton.topk import topk_blocks, topk_blocks_backward  # noqa: F401
from graphtheory.ops.call import sum_type
from graphtheory.ops.recorded import made


def _forward(
    indptr: Tensor, indices: Tensor, given: Sequence[Tensor | None], like: Tensor,
    scale: float, dropout: float, seed: Tensor | None, added: Tensor | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Output in the type of `like`, and softmax statistics of rows: see the kernel `forward`.

    `added` to each row of the output is one row.
    """
    out = room(like, indptr.size(0) - 1, *like.shape[1:])
    numbers, constants = options(like, given[-1], scale, dropout, seed)
    acc, shape = constants["ACC"], out.shape[1:]
    facts = 2 if acc == out.dtype and added is None else 2 + shape[1]
    stats = room(out, out.size(0), facts, shape[0], dtype=acc)
    args = [*plain(added, indices, *given), *numbers]
    over_rows(
        attention_kernels.forward, indptr, shape, [out, stats], args,
        partial(merge_softmax, added=added),
        STATS=stats.size(1), **constants,
    )  # fmt: skip
    return out, stats


def _by_target(
    indptr: Tensor, indices: Tensor, given: Sequence[Tensor | None], of_target: Tensor | None,
    grad: Tensor, out: Tensor, stats: Tensor, scale: float, dropout: float, seed: Tensor | None,
) -> list[Tensor]:  # fmt: skip
    """Kept weights of edges, and gradients of their logits or sums; see the kernel `targets`."""
    numbers, constants = options(grad, given[-1], scale, dropout, seed)
    found = [room(stats, indices.size(0), grad.size(1)) for _ in range(2)]
    args = [*plain(grad, out, stats), *found, *plain(indices, *given), *numbers]
    over_rows(
        attention_kernels.targets, indptr, grad.shape[1:], [of_target], args,
        STATS=stats.size(1), **constants,
    )  # fmt: skip
    return found


def attention(
    indptr: Tensor, indices: Tensor, query: Tensor, key: Tensor, value: Tensor,
    bias: Tensor | None, bucket: Tensor | None, table: Tensor | None,
    scale: float, dropout: float, seed: Tensor | None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Output as `query`, and softmax statistics of rows."""
    given = (query, key, value, None, None, bias, bucket, table)
    return _forward(indptr, indices, given, query, scale, dropout, seed)


def attention_backward(
    indptr: Tensor, indices: Tensor, t_indptr: Tensor, sources_rows: Tensor, perm: Tensor,
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, stats: Tensor,
    bucket: Tensor | None, num_buckets: int, scale: float, dropout: float, seed: Tensor | None,
    *, out: Tensor, bias: Tensor | None, table: Tensor | None, into: Sequence[Tensor] = (),
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of query, key, value, logits ([0, H] without a bias by edge) and bias table.

    The first three are written `into` tensors without gaps, if there are any.
    """
    of_query, of_key, of_value = into or room_like(query, key, value)
    given, drop = (query, key, value, None, None, bias, bucket, table), (dropout, seed)
    weights, logits = _by_target(indptr, indices, given, of_query, grad, out, stats, scale, *drop)
    args = [*plain(sources_rows, perm, logits, query, weights, grad), None, None, scale]
    over_rows(
        primitives.weighted, t_indptr, query.shape[1:], [of_key, of_value], args,
        ACC=stats.dtype, BY_NODE=False,
    )  # fmt: skip
    of_table = by_bucket(bucket, logits, num_buckets)
    if bias is None:
        logits = room(logits, 0, query.size(1))
    return of_query, of_key, of_value, logits, of_table


def additive_attention(
    indptr: Tensor, indices: Tensor, value: Tensor, src_score: Tensor | None,
    dst_score: Tensor | None, edge: Tensor | None, slope: float, dropout: float,
    seed: Tensor | None, added: Tensor | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Output as `value`, `added` included, and softmax statistics of rows."""
    given = (None, None, value, src_score, dst_score, edge, None, None)
    return _forward(indptr, indices, given, value, slope, dropout, seed, added)


def node_scores(value: Tensor, att_src: Tensor, att_dst: Tensor) -> tuple[Tensor, Tensor]:
    """Products of values [N, H, D] with a vector of each head, [N, H], twice."""
    (count, heads, dim), acc = value.shape, sum_type(value)
    found, t = [room(value, count, heads) for _ in range(2)], tile(heads, dim, acc, 1)
    launch(
        attention_kernels.scores, (ceiling(count, t.rows), ceiling(heads, t.heads)), value,
        value, att_src, att_dst, *found, count,
        HEADS=heads, DIM=dim, ACC=acc, R=t.rows, G=t.heads, C=t.dim, warps=t.warps,
    )  # fmt: skip
    return found[0], found[1]


def additive_attention_backward(
    indptr: Tensor, indices: Tensor, t_indptr: Tensor, sources_rows: Tensor, perm: Tensor,
    grad: Tensor, value: Tensor, src_score: Tensor, dst_score: Tensor | None, edge: Tensor | None,
    stats: Tensor, slope: float, dropout: float, seed: Tensor | None, *, out: Tensor,
    atts: tuple[Tensor | None, Tensor | None] = (None, None),
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of value, src_score, dst_score (no rows without it) and the sums [E, H].

    With the vectors of `node_scores`, that of the value has what passes through the scores.
    """
    (num_src, heads, _), (of_value,) = value.shape, room_like(value)
    of_src = room(src_score, num_src, heads, 1)  # as rows of values, whose chunks are merged
    of_dst = room(src_score, 0 if dst_score is None else stats.size(0), heads, 1)
    given = (None, None, value, src_score, dst_score, edge, None, None)
    of_target, drop = None if dst_score is None else of_dst, (dropout, seed)
    weights, grads = _by_target(indptr, indices, given, of_target, grad, out, stats, slope, *drop)
    args = [*plain(sources_rows, perm), weights, grads, *plain(grad), of_dst, *plain(*atts)]
    over_rows(
        attention_kernels.scored_sources, t_indptr, value.shape[1:], [of_value, of_src], args,
        ACC=stats.dtype,
    )  # fmt: skip
    flat = (made(lambda scores: scores[..., 0], scores) for scores in (of_src, of_dst))
    return of_value, *flat, grads


def scored_attention_backward(
    indptr: Tensor, indices: Tensor, t_indptr: Tensor, sources_rows: Tensor, perm: Tensor,
    grad: Tensor, value: Tensor, scores: Tensor, stats: Tensor, dropout: float,
    seed: Tensor | None, *, out: Tensor,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Gradients of value and scores [E, H] of `additive_attention` without scores of nodes."""
    given, (of_value,) = (None, None, value, None, None, scores, None, None), room_like(value)
    drop = 1.0, dropout, seed
    weights, grads = _by_target(indptr, indices, given, None, grad, out, stats, *drop)
    ends, acc = (t_indptr, sources_rows, perm), stats.dtype
    return weighted_sums(*ends, weights, grad, of_value, acc), grads


def edge_softmax(indptr: Tensor, logits: Tensor) -> Tensor:
    """The weight of each edge, [E, H]."""
    return over_logits(primitives.softmax, indptr, logits)


def edge_softmax_backward(indptr: Tensor, weights: Tensor, grad: Tensor) -> Tensor:
    """Gradient of the logits [E, H]."""
    return over_logits(primitives.softmax_backward, indptr, weights, grad)


def sums(
    indptr: Tensor, indices: Tensor, weights: Tensor | None, value: Tensor,
    perm: Tensor | None = None, **more: Any,
) -> Tensor:  # fmt: skip
    """Sums [N, H, D]; entry t of a row has the weight of edge perm[t], if `perm` is given."""
    out = room(value, indptr.size(0) - 1, *value.shape[1:])
    acc = sum_type(value) if weights is None else sum_type(weights, value)
    return weighted_sums(indptr, indices, perm, weights, value, out, acc, **more)


aggregate = sums  # with weights, without a bias
