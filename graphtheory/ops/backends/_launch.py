"""Start a compiled loop with torch's number of threads, or without threads where those would be fatal."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import cache
from typing import Any

import numba
import torch
from torch.utils.data import get_worker_info

_HOME = os.getpid()
# Not every threading layer of numba may be entered by two Python threads at once.
_LOCK = threading.Lock()


@cache
def _compiled(kernel: Callable[..., None], parallel: bool, fastmath: frozenset[str]) -> Any:
    return numba.njit(parallel=parallel, fastmath=set(fastmath), nogil=True, cache=True)(kernel)


def may_use_threads() -> bool:
    """False in a forked child or a DataLoader worker.

    A forked child that enters a parallel region after its parent did is killed by the OpenMP runtime; a
    worker that does so anyway would compete with its siblings for the same cores.
    """
    return os.getpid() == _HOME and get_worker_info() is None


def launch(kernel: Callable[..., None], *args: Any, fastmath: frozenset[str] = frozenset()) -> None:
    """Run `kernel` (a plain function with prange loops) compiled, on torch's number of threads."""
    threads = min(torch.get_num_threads(), numba.config.NUMBA_NUM_THREADS)
    if threads == 1 or not may_use_threads():
        _compiled(kernel, False, fastmath)(*args)
        return
    with _LOCK:
        numba.set_num_threads(threads)
        _compiled(kernel, True, fastmath)(*args)
