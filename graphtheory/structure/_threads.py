"""Run a compiled kernel over chunks, on as many threads as torch uses.

Plain threads around kernels that release the interpreter lock, instead of the compiler's own
parallel regions: nothing outlives a call, so a process may fork afterwards, and a data-loading
worker (where torch has one thread) runs the same code in sequence.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch


def for_chunks(work: Callable[[int, int], None], total: int, chunk: int) -> None:
    """Call ``work(start, stop)`` for consecutive ranges that cover 0..total-1; errors come out."""
    starts = range(0, total, chunk)
    threads = min(torch.get_num_threads(), len(starts))
    if threads <= 1:
        for start in starts:
            work(start, min(start + chunk, total))
        return
    with ThreadPoolExecutor(threads) as pool:
        for _ in pool.map(lambda start: work(start, min(start + chunk, total)), starts):
            pass
