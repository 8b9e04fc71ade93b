"""Sums of ReLU(source + edge) on a GPU, and their gradient, by edge and then by source.

Edge t has row order[t] of the features, or row t without `order`.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from graphtheory.ops.backends.triton.launch import over_rows, plain, room_like, weighted_sums
from graphtheory.ops.backends.triton.parts import (
    SIZES,
    entries,
    features,
    gather,
    own,
    put_own,
    span,
)
from graphtheory.ops.call import sum_type


@triton.jit(do_not_specialize=SIZES)
def forward(
    rows, starts, indptr, count, out,
    indices, order, value, given,
    HEADS: tl.constexpr, DIM: tl.constexpr, ACC: tl.constexpr,
    CHUNK: tl.constexpr, R: tl.constexpr, B: tl.constexpr, G: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Write the sum over the row of ReLU(value[j] + given[e])."""
    _, place, live, start, stop = span(rows, starts, indptr, count, R, CHUNK)
    _, _, column, exists = features(HEADS, DIM, G, C)
    total = tl.zeros((R, G * C), ACC)
    longest = tl.max(stop - start, 0).to(tl.int32)
    for offset in range(0, longest, B):
        edge, here, node = entries(indices, order, start, stop, offset, B)
        z = gather(value, node, here, column, exists, HEADS * DIM, ACC)
        z += gather(given, edge, here, column, exists, HEADS * DIM, ACC)
        total += tl.sum(tl.where(z <= 0, 0.0, z), 1)
    put_own(out, place, live, column, exists, total, HEADS * DIM)


@triton.jit(do_not_specialize=SIZES)
def edge_grads(
    rows, starts, indptr, count,
    indices, order, value, given, grad, out,
    HEADS: tl.constexpr, DIM: tl.constexpr, ACC: tl.constexpr,
    CHUNK: tl.constexpr, R: tl.constexpr, B: tl.constexpr, G: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Write out[e] = grad[i] where value[j] + given[e] is positive, else 0."""
    row, _, live, start, stop = span(rows, starts, indptr, count, R, CHUNK)
    _, _, column, exists = features(HEADS, DIM, G, C)
    up = own(grad, row, live, column, exists, HEADS * DIM, ACC)
    longest = tl.max(stop - start, 0).to(tl.int32)
    for offset in range(0, longest, B):
        edge, here, node = entries(indices, order, start, stop, offset, B)
        z = gather(value, node, here, column, exists, HEADS * DIM, ACC)
        z += gather(given, edge, here, column, exists, HEADS * DIM, ACC)
        at = out + edge[:, :, None] * (HEADS * DIM) + column[None, None, :]
        mask = here[:, :, None] & exists[None, None, :]
        tl.store(at, tl.where(z <= 0, 0.0, up[:, None, :]), mask=mask)


def relu_sum(
    indptr: Tensor, indices: Tensor, order: Tensor, value: Tensor, features: Tensor
) -> Tensor:
    """Sums [N, H, D] in the dtype of `value`."""
    out = value.new_empty(indptr.size(0) - 1, *value.shape[1:])
    args = plain(indices, order if len(order) else None, value, features)
    over_rows(forward, indptr, value.shape[1:], [out], args, ACC=sum_type(value))
    return out


def relu_sum_backward(
    indptr: Tensor, indices: Tensor, order: Tensor, t_indptr: Tensor, edges: Tensor,
    grad: Tensor, value: Tensor, features: Tensor,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Gradients of value and features."""
    acc, (of_value, of_features) = sum_type(value), room_like(value, features)
    args = plain(indices, order if len(order) else None, value, features, grad)
    over_rows(edge_grads, indptr, value.shape[1:], [], [*args, of_features], ACC=acc)
    ones = value.new_ones(indices.size(0), value.size(1))
    weighted_sums(t_indptr, edges, None, ones, of_features, of_value, acc)
    return of_value, of_features
