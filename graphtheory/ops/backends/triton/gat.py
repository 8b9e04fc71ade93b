"""GAT's attention on a GPU: scores are leaky sums of a source's, a target's and an edge's number.

As the attention of `attention.py`, with two numbers [N, H] in place of query and key: forward and
the first pass backward compute the scores again, and the second pass backward adds up the
gradients of values and of the sources' numbers.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from graphtheory.ops.backends.triton.attention import (
    facts_of,
    flow_of,
    put_rows,
    with_edges,
)
from graphtheory.ops.backends.triton.launch import (
    merge_softmax,
    norm_like,
    options,
    over_rows,
    plain,
)
from graphtheory.ops.backends.triton.parts import (
    SIZES,
    entries,
    features,
    gather,
    number,
    own,
    per_edge,
    per_row,
    put_own,
    put_per_edge,
    put_per_row,
    span,
    spread,
)


@triton.jit
def _step(
    offset, start, stop, head, head_live, column, exists, mine,
    indices, value, sent, edge_score, slope,
    HEADS: tl.constexpr, DIM: tl.constexpr, ACC: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    """The B next edges of each row: edge, whether it is one, scores [R, B, G], slopes, values.

    A score is minus infinity where there is no edge, or one of minus infinity.
    """
    edge, here, node = entries(indices, None, start, stop, offset, B)
    v = gather(value, node, here, column, exists, HEADS * DIM, ACC)
    z = mine[:, None, :] + per_edge(sent, node, here, head, head_live, HEADS, ACC)
    if edge_score is not None:
        z += per_edge(edge_score, edge, here, head, head_live, HEADS, ACC)
    rate = tl.where(z > 0, 1.0, number(slope, ACC))
    there = here[:, :, None] & (z != float("-inf"))  # a slope of 0 would make it NaN
    return edge, here, tl.where(there, tl.where(there, z, 0.0) * rate, float("-inf")), rate, v


@triton.jit
def _own_score(
    received, row, live, head, head_live,
    HEADS: tl.constexpr, ACC: tl.constexpr, R: tl.constexpr, G: tl.constexpr,
):  # fmt: skip
    """The targets' numbers [R, G]."""
    mine = tl.zeros((R, G), ACC)
    if received is not None:  # with a return here Triton would compile what follows too
        mine += per_row(received, row, live, head, head_live, HEADS, ACC)
    return mine


@triton.jit(do_not_specialize=SIZES)
def forward(
    rows, starts, indptr, count, out, norm,
    indices, value, sent, received, edge_score, seed,
    slope: tl.float64, threshold: tl.int64, kept: tl.float64,
    HEADS: tl.constexpr, DIM: tl.constexpr, ACC: tl.constexpr, NORM: tl.constexpr,
    CHUNK: tl.constexpr, R: tl.constexpr, B: tl.constexpr, G: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Write out and norm of some rows, or of chunks: `attention.forward` says how."""
    row, place, live, start, stop = span(rows, starts, indptr, count, R, CHUNK)
    head, head_live, column, exists = features(HEADS, DIM, G, C)
    mine = _own_score(received, row, live, head, head_live, HEADS, ACC, R, G)
    top = tl.full((R, G), float("-inf"), ACC)
    total = tl.zeros((R, G), ACC)
    sums = tl.zeros((R, G * C), ACC)
    longest = tl.max(stop - start, 0).to(tl.int32)
    for offset in range(0, longest, B):
        edge, _, s, _, v = _step(
            offset, start, stop, head, head_live, column, exists, mine,
            indices, value, sent, edge_score, slope, HEADS, DIM, ACC, B,
        )  # fmt: skip
        top, total, sums = with_edges(
            top, total, sums, s, v, edge, head, seed, threshold, kept, HEADS, ACC, C
        )
    put_rows(
        out, norm, place, live, head, head_live, column, exists, top, total, sums,
        NORM > 2 and CHUNK == 0, HEADS, DIM, NORM, C,
    )  # fmt: skip


@triton.jit(do_not_specialize=SIZES)
def targets(
    rows, starts, indptr, count, of_received,
    grad, out, norm, weights, flows,
    indices, value, sent, received, edge_score, seed,
    slope: tl.float64, threshold: tl.int64, kept: tl.float64,
    HEADS: tl.constexpr, DIM: tl.constexpr, ACC: tl.constexpr, NORM: tl.constexpr,
    CHUNK: tl.constexpr, R: tl.constexpr, B: tl.constexpr, G: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Write of the edges of rows (or chunks) kept weights and gradients of the sums, added up."""
    row, place, live, start, stop = span(rows, starts, indptr, count, R, CHUNK)
    head, head_live, column, exists = features(HEADS, DIM, G, C)
    mine = _own_score(received, row, live, head, head_live, HEADS, ACC, R, G)
    g = own(grad, row, live, column, exists, HEADS * DIM, ACC)
    best, log_sum, mean = facts_of(
        g, out, norm, row, live, head, head_live, column, exists, HEADS, DIM, ACC, NORM, G, C
    )
    total = tl.zeros((R, G), ACC)
    longest = tl.max(stop - start, 0).to(tl.int32)
    for offset in range(0, longest, B):
        edge, here, s, rate, v = _step(
            offset, start, stop, head, head_live, column, exists, mine,
            indices, value, sent, edge_score, slope, HEADS, DIM, ACC, B,
        )  # fmt: skip
        weight, flow = flow_of(
            s, v, g, best, log_sum, mean, longest <= B, edge, head, seed, threshold, kept,
            HEADS, ACC, CHUNK, G, C,
        )  # fmt: skip
        flow *= rate
        total += tl.sum(flow, 1)
        put_per_edge(weights, edge, here, head, head_live, weight, HEADS)
        put_per_edge(flows, edge, here, head, head_live, flow, HEADS)
    if of_received is not None:
        put_per_row(of_received, place, live, head, head_live, total, HEADS)


@triton.jit(do_not_specialize=SIZES)
def sources(
    rows, starts, indptr, count, of_value, of_sent,
    indices, perm, weights, flows, grad,
    HEADS: tl.constexpr, DIM: tl.constexpr, ACC: tl.constexpr,
    CHUNK: tl.constexpr, R: tl.constexpr, B: tl.constexpr, G: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Write of sources the sums of weights * grad, and of flows; entry t is edge perm[t]."""
    _, place, live, start, stop = span(rows, starts, indptr, count, R, CHUNK)
    head, head_live, column, exists = features(HEADS, DIM, G, C)
    sums = tl.zeros((R, G * C), ACC)
    total = tl.zeros((R, G), ACC)
    longest = tl.max(stop - start, 0).to(tl.int32)
    for offset in range(0, longest, B):
        edge, here, node = entries(indices, perm, start, stop, offset, B)
        w = per_edge(weights, edge, here, head, head_live, HEADS, ACC)
        g = gather(grad, node, here, column, exists, HEADS * DIM, ACC)
        sums += tl.sum(spread(w, C) * g, 1)
        total += tl.sum(per_edge(flows, edge, here, head, head_live, HEADS, ACC), 1)
    put_own(of_value, place, live, column, exists, sums, HEADS * DIM)
    put_per_row(of_sent, place, live, head, head_live, total, HEADS)


def attention(
    indptr: Tensor, indices: Tensor, value: Tensor, sent: Tensor, received: Tensor | None,
    edge: Tensor | None, slope: float, dropout: float, seed: Tensor | None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Output as `value`, and the norm of rows: see `attention.forward`."""
    rows, (_, heads, dim) = indptr.size(0) - 1, value.shape
    out = value.new_empty(rows, heads, dim)
    norm = norm_like(out)
    numbers, _ = options(value, None, slope, dropout, seed)
    args = [*plain(indices, value, sent, received, edge), *numbers]
    over_rows(
        forward, indptr, (heads, dim), [out, norm], args, merge_softmax,
        ACC=norm.dtype, NORM=norm.size(1),
    )  # fmt: skip
    return out, norm


def attention_backward(
    indptr: Tensor, indices: Tensor, t_indptr: Tensor, sources_rows: Tensor, perm: Tensor,
    grad: Tensor, value: Tensor, sent: Tensor, received: Tensor | None, edge: Tensor | None,
    norm: Tensor, slope: float, dropout: float, seed: Tensor | None, *, out: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of value, sent, received (no rows without it) and the sums [E, H]."""
    acc, (num_src, heads, dim) = norm.dtype, value.shape
    weights, flows = (norm.new_empty(indices.size(0), heads) for _ in range(2))
    of_value = torch.empty_like(value, memory_format=torch.contiguous_format)
    of_sent = sent.new_empty(num_src, heads, 1)  # as rows of numbers, whose chunks are merged
    of_received = sent.new_empty(0 if received is None else norm.size(0), heads, 1)
    numbers, _ = options(value, None, slope, dropout, seed)
    args = [
        *plain(grad, out, norm), weights, flows, *plain(indices, value, sent, received, edge),
        *numbers,
    ]  # fmt: skip
    over_rows(
        targets, indptr, (heads, dim), [None if received is None else of_received], args,
        ACC=acc, NORM=norm.size(1),
    )  # fmt: skip
    args = [*plain(sources_rows, perm), weights, flows, *plain(grad)]
    over_rows(sources, t_indptr, (heads, dim), [of_value, of_sent], args, ACC=acc)
    return of_value, of_sent[..., 0], of_received[..., 0], flows
