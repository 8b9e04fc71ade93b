"""The additive score on a GPU: the sum of an edge lives in registers, for both directions.

The gradient of `source` is summed over the rows of the transposed structure, that of `target` over
rows, and with it what a row adds to that of `att`, which torch then sums over the rows. Features of
edges are left to torch's own ops: the gradient of their matrix is one product of large matrices.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from graphtheory.ops.backends.triton.launch import over_rows, plain, sum_type
from graphtheory.ops.backends.triton.parts import (
    SIZES,
    by_head,
    entries,
    features,
    gather,
    number,
    own,
    per_edge,
    put_own,
    put_per_edge,
    span,
    spread,
)


@triton.jit(do_not_specialize=SIZES)
def scores(
    rows, starts, indptr, count,
    indices, source, target, att, out, slope: tl.float64,
    HEADS: tl.constexpr, DIM: tl.constexpr, ACC: tl.constexpr,
    CHUNK: tl.constexpr, R: tl.constexpr, B: tl.constexpr, G: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Write <att[h], leaky(source[j, h] + target[i, h])> of the edges of rows, or of chunks."""
    row, _, live, start, stop = span(rows, starts, indptr, count, R, CHUNK)
    head, head_live, column, exists = features(HEADS, DIM, G, C)
    mine = own(target, row, live, column, exists, HEADS * DIM, ACC)
    a = tl.load(att + column, mask=exists, other=0).to(ACC)
    longest = tl.max(stop - start, 0).to(tl.int32)
    for offset in range(0, longest, B):
        edge, here, node = entries(indices, None, start, stop, offset, B)
        z = mine[:, None, :] + gather(source, node, here, column, exists, HEADS * DIM, ACC)
        z = tl.where(z > 0, z, z * number(slope, ACC))
        found = by_head(z * a[None, None, :], G, C)
        put_per_edge(out, edge, here, head, head_live, found, HEADS)


@triton.jit(do_not_specialize=SIZES)
def sums(
    rows, starts, indptr, count, out, leaky_out,
    indices, perm, grad, mine, other, att, slope: tl.float64,
    HEADS: tl.constexpr, DIM: tl.constexpr, ACC: tl.constexpr,
    CHUNK: tl.constexpr, R: tl.constexpr, B: tl.constexpr, G: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Write the gradient of `mine`, one vector a row, and the row's sum of grad * leaky(z).

    Entry t of a row is edge perm[t], or edge t without `perm`; `other` is gathered.
    """
    row, place, live, start, stop = span(rows, starts, indptr, count, R, CHUNK)
    head, head_live, column, exists = features(HEADS, DIM, G, C)
    here_is = own(mine, row, live, column, exists, HEADS * DIM, ACC)
    flows = tl.zeros((R, G * C), ACC)
    if leaky_out is not None:
        leaky = tl.zeros((R, G * C), ACC)
    longest = tl.max(stop - start, 0).to(tl.int32)
    for offset in range(0, longest, B):
        edge, here, node = entries(indices, perm, start, stop, offset, B)
        z = here_is[:, None, :] + gather(other, node, here, column, exists, HEADS * DIM, ACC)
        up = per_edge(grad, edge, here, head, head_live, HEADS, ACC)
        flow = spread(up, C) * tl.where(z > 0, 1.0, number(slope, ACC))
        flows += tl.sum(flow, 1)
        if leaky_out is not None:
            leaky += tl.sum(tl.where(here[:, :, None], flow * z, 0.0), 1)
    a = tl.load(att + column, mask=exists, other=0).to(ACC)
    put_own(out, place, live, column, exists, flows * a[None, :], HEADS * DIM)
    if leaky_out is not None:
        put_own(leaky_out, place, live, column, exists, leaky, HEADS * DIM)


def score(
    indptr: Tensor, indices: Tensor, source: Tensor, target: Tensor, att: Tensor,
    features: Tensor, matrix: Tensor, slope: float,
) -> Tensor:  # fmt: skip
    """Scores [E, H] in the dtype of `source`."""
    edges, (heads, dim) = indices.size(0), att.shape
    out = source.new_empty(edges, heads)
    args = [*plain(indices, source, target, att), out, slope]
    over_rows(scores, indptr, (heads, dim), [], args, ACC=sum_type(source, target, att))
    return out


def score_backward(
    indptr: Tensor, indices: Tensor, t_indptr: Tensor, sources_rows: Tensor, perm: Tensor,
    grad: Tensor, source: Tensor, target: Tensor, att: Tensor, features: Tensor, matrix: Tensor,
    slope: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of source, target, att, features and matrix."""
    acc = sum_type(grad, source, target, att)
    of_source = torch.empty_like(source, memory_format=torch.contiguous_format)
    of_target = torch.empty_like(target, memory_format=torch.contiguous_format)
    of_att = torch.empty_like(of_target, dtype=acc)  # [num_dst, H, C]: a row's share
    shape = (att.size(0), att.size(1))
    args = [*plain(indices, None, grad, target, source, att), slope]
    over_rows(sums, indptr, shape, [of_target, of_att], args, ACC=acc)
    args = [*plain(sources_rows, perm, grad, source, target, att), slope]
    over_rows(sums, t_indptr, shape, [of_source, None], args, ACC=acc)
    return (
        of_source, of_target, of_att.sum(0).to(att.dtype),
        torch.empty_like(features), torch.empty_like(matrix),
    )  # fmt: skip
