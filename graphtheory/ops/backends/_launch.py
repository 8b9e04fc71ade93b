"""Run a compiled loop on torch's number of threads.

The calling thread works too, beside plain ones around a loop that lets go of the interpreter lock.
They are not a parallel region of the compiler's runtime: that would outlive the call, and a forked
child that enters such a region after its parent did is killed. In a worker of
`torch.utils.data.DataLoader` torch has one thread, so the same code runs in sequence there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from threading import Thread
from typing import Any

import torch
from numba import njit

from graphtheory.ops.backends._numba_lanes import MATH

# Multiply-adds below which a second thread costs more to start than it saves.
_WORTH_A_THREAD = 2**22
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
    todo = deque(pairwise(bounds))
    errors: list[BaseException] = []

    def work_off() -> None:
        while todo and not errors:
            try:
                task = todo.popleft()
            except IndexError:  # another thread took the last one
                return
            try:
                code(*task, *args)
            except BaseException as error:  # raised below, in the calling thread
                errors.append(error)

    others = [Thread(target=work_off) for _ in range(threads - 1)]
    for thread in others:
        thread.start()
    work_off()
    for thread in others:
        thread.join()
    if errors:
        raise errors[0]
