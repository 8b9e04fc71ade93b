"""Run a compiled loop on torch's number of threads."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import Any

import torch
from numba import njit

from graphtheory.ops.backends._numba_lanes import MATH
from graphtheory.ops.threads import on_threads

# Multiply-adds below which a second thread costs more to start than it saves.
_WORTH_A_THREAD = 2**21
_TASKS_PER_THREAD = 4


@cache
def _compiled(loop: Callable[..., None]) -> Callable[..., None]:
    """Machine code, kept on disk."""
    return njit(nogil=True, cache=True, fastmath=MATH)(loop)


def launch(loop: Callable[..., None], chunks: int, work: int, *args: Any) -> None:
    """Call ``loop(start, stop, *args)`` for ranges that cover 0..chunks-1.

    Args:
        loop: A plain function that numba compiles; ranges may run at once.
        chunks: Number of chunks.
        work: Of all chunks, in multiply-adds; decides whether threads pay.
        *args: Arrays and numbers.
    """
    code = _compiled(loop)
    threads = min(torch.get_num_threads(), 1 + work // _WORTH_A_THREAD)
    if threads == 1:
        code(0, chunks, *args)
        return
    tasks = min(chunks, threads * _TASKS_PER_THREAD)
    bounds = [chunks * t // tasks for t in range(tasks + 1)]
    on_threads(lambda start, stop: code(start, stop, *args), pairwise(bounds), threads)
