"""What every call of a compiled loop needs: arrays of tensors, absent parts, room for carries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphtheory.ops.backends.cpu.attention.rows import count_chunks
from graphtheory.ops.backends.cpu.launch import launch

# NumPy's: where this module is imported while torch traces, torch would make fake ones.
NO_EDGES: Any = np.empty(0, np.int64)
NO_BUCKETS: Any = np.empty(0, np.uint8)
NO_ROWS: Any = {t: np.empty((0, 0), n) for t, n in (
    (torch.float32, np.float32), (torch.float64, np.float64)
)}  # fmt: skip


def arrays(*args: Any) -> list[Any]:
    """Of tensors, contiguous; other things as they are. What is written to is contiguous before."""
    found = list(args)
    for k, a in enumerate(found):  # a comprehension costs as much as the rest
        if isinstance(a, Tensor):
            found[k] = a.contiguous().numpy()
    return found


def chunks_of(indptr: Tensor, per_edge: Tensor) -> int:
    """Number of chunks of a structure, whose edges are the first axis of `per_edge`."""
    return count_chunks(indptr.size(0) - 1, per_edge.size(0))


def run(loop: Callable[..., None], work: int, chunks: int, *args: Any, passes: int = 1) -> None:
    """Launch a loop over chunks of rows, or one pass after the other, on tensors and numbers."""
    launch(loop, passes * chunks, work, chunks, *arrays(*args))


def number(x: float, like: Tensor) -> np.floating[Any]:
    """Of the type of the sums."""
    return np.float64(x) if like.dtype == torch.float64 else np.float32(x)


def options(
    like: Tensor, bias: Tensor | None, bucket: Tensor | None, table: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Absent parts as empty arrays, so that one machine code serves all."""
    none = NO_ROWS[like.dtype]
    bias = none if bias is None else bias.detach().to(like.dtype).contiguous()
    table = none if table is None else table.detach().to(like.dtype).contiguous()
    return bias, NO_BUCKETS if bucket is None else bucket.contiguous(), table


def buckets(bucket: Tensor | None) -> Tensor:
    """Of edges, if there are any."""
    return NO_BUCKETS if bucket is None else bucket.contiguous()


def tables_of(weights: Tensor, chunks: int, num_buckets: int) -> Tensor:
    """Zeros [Z * H] for each chunk."""
    if num_buckets == 0:
        return NO_ROWS[weights.dtype]
    return weights.new_zeros(chunks, num_buckets * weights.size(1))


def sum_tables(tables: Tensor, num_buckets: int, weights: Tensor) -> Tensor:
    """Their sum [Z, H]."""
    heads = weights.size(1)
    return tables.sum(0).view(num_buckets, heads) if num_buckets else weights.new_empty(0, heads)


def room_to_carry(chunks: int, *outs: Tensor) -> tuple[Tensor, ...]:
    """Room for the row that a chunk only adds to, and for what it adds to some outputs."""
    rows = (out.new_empty(chunks, *out.shape[1:]) for out in outs)
    return torch.empty(chunks, dtype=torch.int64), *rows


def run_merge(loop: Callable[..., None], carried: Tensor, *parts: Any) -> None:
    """Launch a loop that adds up what chunks carried."""
    launch(loop, len(carried), 0, len(carried), *arrays(carried, *parts))
