"""Rows of a table, some of them many times."""

from __future__ import annotations

import math

from torch import Tensor
from torch.nn.functional import embedding


def look_up(table: Tensor, row: Tensor) -> Tensor:
    """`table[row]`, whose gradient is the same every time and does not wait for a few rows.

    A GPU adds up the gradient of `index_select` in an order that changes; that of `table[row]` it
    adds up one row after the other, and of a table of 20 buckets for millions of edges that takes
    longer than all the rest of a layer. Those of `embedding` are sorted by row first.

    Shapes:
        table [R, ...], row an integer tensor [E] -> [E, ...].
    """
    if table.is_cpu:
        return table.index_select(0, row.long())
    rows = table.reshape(len(table), math.prod(table.shape[1:]))
    return embedding(row.long(), rows).view(*row.shape, *table.shape[1:])
