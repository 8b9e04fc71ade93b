"""Rows of a table, some of them many times."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import embedding

from graphtheory.ops.operator import operator

_FEW = 256  # rows of a table whose gradient is summed by bucket: every 32 of them are one more pass


def look_up(table: Tensor, row: Tensor) -> Tensor:
    """`table[row]`, whose gradient does not wait for a few rows.

    A GPU adds up the gradient of `index_select` in an order that changes; that of `table[row]` it
    adds up one row after the other, and of a table of 20 buckets for millions of edges that takes
    longer than all the rest of a layer. A table of at most 256 rows has sums of fixed shares of the
    edges, the same bits every time. The gradients of longer ones are those of `embedding`, which
    are sorted by row first.

    Shapes:
        table [R, ...], row an integer tensor [E] -> [E, ...].
    """
    if table.is_cpu:
        return table.index_select(0, row.long())
    rows = table.reshape(len(table), math.prod(table.shape[1:]))
    found = _rows(rows, row) if _by_bucket(rows) else embedding(row.long(), rows)
    return found.view(len(row), *table.shape[1:])


def _by_bucket(rows: Tensor) -> bool:
    """Whether the gradient of such rows is summed by Triton's kernel."""
    from graphtheory.ops.backends.triton_csr import triton_objections

    return len(rows) <= _FEW and rows.is_floating_point() and not triton_objections(rows.device)


@operator("graphtheory::look_up", ". .")
def _rows(table: Tensor, row: Tensor) -> Tensor:
    return embedding(row.long(), table)


@operator("graphtheory::sum_by_row", ". . .")
def _sums(values: Tensor, row: Tensor, count: int) -> Tensor:
    from graphtheory.ops.backends.triton.launch import by_bucket

    wide = torch.promote_types(values.dtype, torch.float32)
    return by_bucket(row, values.to(wide).contiguous(), count).to(values.dtype)


@_rows.register_fake
def _(table: Tensor, row: Tensor) -> Tensor:
    return table.new_empty(row.size(0), table.size(1))


@_sums.register_fake
def _(values: Tensor, row: Tensor, count: int) -> Tensor:
    return values.new_empty(count, values.size(1))


def _save_rows(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    table, row = inputs
    ctx.count = table.size(0)
    ctx.save_for_backward(row)


def _save_sums(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(inputs[1])


_rows.register_autograd(
    lambda ctx, grad: (_sums(grad, *ctx.saved_tensors, ctx.count), None), setup_context=_save_rows
)
_sums.register_autograd(
    lambda ctx, grad: (_rows(grad, *ctx.saved_tensors), None, None), setup_context=_save_sums
)
