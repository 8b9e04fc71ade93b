"""What kernels on equal complete blocks share: nodes of a head, their products, their logits.

A program has some rows and columns of one block and head: nodes by number, `row` [M] and `column`
[N], and whether there is such a node. WIDTH numbers make a node, DIM of them a head, from `base`
on. Products are of the tensor cores, summed in float32: those of 16-bit nodes are exact, and a
float32 goes there as two numbers of 11 bits, in three products. Weights and gradients of logits are
rounded to the type of 16-bit nodes before they multiply these.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from graphtheory.ops.backends.triton.parts import number

ROWS = tl.constexpr(16)  # of a product, at least
TERMS = tl.constexpr(32)  # of a sum over columns, in one product of float32
_FLOAT32 = tl.constexpr("ieee" if torch.version.hip else "tf32x3")


@triton.jit
def part(size, HEADS: tl.constexpr, SIZE: tl.constexpr):
    """Block, head and SIZE places of this program; the next one has the next places."""
    parts = tl.cdiv(size, SIZE)
    pair = tl.program_id(0) // parts
    place = tl.program_id(0) % parts * SIZE + tl.arange(0, SIZE)
    return (pair // HEADS).to(tl.int64), pair % HEADS, place


@triton.jit
def nodes(base, node, live, first, WIDTH: tl.constexpr, DIM: tl.constexpr, C: tl.constexpr):
    """Features first..first+C of some nodes: [., C]."""
    feature = first + tl.arange(0, C)
    mask = live[:, None] & (feature < DIM)[None, :]
    return tl.load(base + node[:, None] * WIDTH + feature[None, :], mask=mask, other=0)


@triton.jit
def product(a, b, out=None):
    """Product of a [M, K], in the type of b, and b [K, N], added to out in float32."""
    return tl.dot(a.to(b.dtype), b, out, input_precision=_FLOAT32)


@triton.jit
def put_nodes(
    base, node, live, first, what, WIDTH: tl.constexpr, DIM: tl.constexpr, C: tl.constexpr
):
    """Store what `nodes` would read."""
    feature = first + tl.arange(0, C)
    mask = live[:, None] & (feature < DIM)[None, :]
    tl.store(base + node[:, None] * WIDTH + feature[None, :], what, mask=mask)


@triton.jit
def products(
    a, row, row_live, b, column, column_live,
    A_WIDTH: tl.constexpr, B_WIDTH: tl.constexpr, DIM: tl.constexpr, DIMS: tl.constexpr,
):  # fmt: skip
    """Dot products [M, N] of nodes of a and nodes of b."""
    out = tl.zeros((row.shape[0], column.shape[0]), tl.float32)
    for first in tl.range(0, DIM, DIMS, num_stages=1):  # a second stage would be shared as well
        x = nodes(a, row, row_live, first, A_WIDTH, DIM, DIMS)
        y = nodes(b, column, column_live, first, B_WIDTH, DIM, DIMS)
        out = product(x, tl.trans(y), out)
    return out


@triton.jit
def put_sums(
    out, row, row_live, factor, base, column, column_live, scale,
    OUT_WIDTH: tl.constexpr, WIDTH: tl.constexpr, DIM: tl.constexpr, DIMS: tl.constexpr,
):  # fmt: skip
    """Store at the rows of out scale * factor [M, N] @ nodes.

    Products of float32 have few terms, for all of them are in registers; they are added up.
    """
    M: tl.constexpr = factor.shape[0]
    P: tl.constexpr = factor.shape[1] // TERMS
    if base.dtype.element_ty == tl.float32:
        parts = tl.permute(tl.reshape(factor, (M, P, TERMS)), (1, 0, 2))
    for first in tl.range(0, DIM, DIMS, num_stages=1):
        y = nodes(base, column, column_live, first, WIDTH, DIM, DIMS)
        if base.dtype.element_ty == tl.float32:
            terms = tl.reshape(y, (P, TERMS, DIMS))
            sums = tl.sum(tl.dot(parts, terms, input_precision=_FLOAT32), 0)
        else:
            sums = product(factor, y)
        put_nodes(out, row, row_live, first, scale * sums, OUT_WIDTH, DIM, DIMS)


@triton.jit
def logits(
    query, row, row_live, key, column, column_live, edge, head, bias, bucket, table, scale,
    HEADS: tl.constexpr, WIDTH: tl.constexpr, DIM: tl.constexpr, BUCKETS: tl.constexpr,
    DIMS: tl.constexpr,
):  # fmt: skip
    """Logits [M, N]: minus infinity beyond the block, NaN for a bucket beyond the table."""
    x = products(query, row, row_live, key, column, column_live, WIDTH, WIDTH, DIM, DIMS)
    x = x * number(scale, tl.float32) + 0.0  # no -0.0, see `topk_row.choose`
    live = row_live[:, None] & column_live[None, :]
    if bias is not None:
        x += tl.load(bias + edge * HEADS + head, mask=live, other=0).to(tl.float32)
    if bucket is not None:
        z = tl.load(bucket + edge, mask=live, other=0).to(tl.int32)
        known = live & (z < BUCKETS)
        x += tl.load(table + z * HEADS + head, mask=known, other=float("nan")).to(tl.float32)
    return tl.where(live, x, float("-inf"))
