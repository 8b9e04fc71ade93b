"""Run a compiled kernel over chunks, on as many threads as torch uses."""

from __future__ import annotations

from collections.abc import Callable

import torch

from graphtheory.ops.threads import on_threads


def for_chunks(work: Callable[[int, int], None], total: int, chunk: int) -> None:
    """Call ``work(start, stop)`` for consecutive ranges that cover 0..total-1; errors propagate."""
    ranges = [(start, min(start + chunk, total)) for start in range(0, total, chunk)]
    on_threads(work, ranges, min(torch.get_num_threads(), len(ranges)))
