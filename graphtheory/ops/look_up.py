"""Rows of a table, some of them many times."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor
from torch.nn.functional import embedding

from graphtheory.ops.arguments import BucketedBias
from graphtheory.ops.backend import BACKENDS
from graphtheory.ops.call import sum_type
from graphtheory.ops.operator import Operator

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
    triton: Any = BACKENDS["triton_csr"]  # whose kernel sums the gradient of a few rows
    few = len(rows) <= _FEW and rows.is_floating_point() and not triton.objections(rows.device)
    found = _rows(rows, row) if few else embedding(row.long(), rows)
    return found.view(len(row), *table.shape[1:])


def bias_per_edge(bias: Tensor | BucketedBias) -> Tensor:
    """The [E, H] form of a bias, as `reference.edge_bias` defines it."""
    if not isinstance(bias, BucketedBias):
        return bias
    bias.check()
    return look_up(bias.table, bias.bucket)


def _sum_by_row(values: Tensor, row: Tensor, count: int) -> Tensor:
    wide = values.to(sum_type(values)).contiguous()
    return BACKENDS["triton_csr"].kernels.by_bucket(row, wide, count).to(values.dtype)


_rows = Operator(
    "graphtheory::look_up", "table:any row:any", ["any"],
    lambda table, row: embedding(row.long(), table),
    lambda table, row: table.new_empty(row.size(0), table.size(1)),
)  # fmt: skip
_sums = Operator(
    "graphtheory::sum_by_row", "values:any row:any count:int", ["any"], _sum_by_row,
    lambda values, row, count: values.new_empty(count, values.size(1)),
)  # fmt: skip


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    given, row, *_ = inputs
    ctx.count = len(given)
    ctx.save_for_backward(row)


_rows.register_autograd(
    lambda ctx, grad: (_sums(grad, *ctx.saved_tensors, ctx.count), None), setup_context=_save
)
_sums.register_autograd(
    lambda ctx, grad: (_rows(grad, *ctx.saved_tensors), None, None), setup_context=_save
)
