"""Work that needs one thread each, on as many threads as torch uses."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import get_ident
from typing import TypeVar

import torch

Item = TypeVar("Item")
Result = TypeVar("Result")


def side_by_side(work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """``[work(item) for item in items]``, several at a time, each on a thread of its own.

    As many as torch has threads, and torch has one within each: small computations gain more from
    that than from two threads that share each of them. `work` must draw from generators of its own.
    An error, Ctrl-C among them, ends what is under way at its next line of Python.
    """
    threads = torch.get_num_threads()
    if min(threads, len(items)) < 2:
        return [work(item) for item in items]
    busy: set[int] = set()

    def on_thread(item: Item) -> Result:
        busy.add(get_ident())
        try:
            return work(item)
        finally:
            busy.discard(get_ident())

    begin = partial(torch.set_num_threads, 1)  # of the thread, and of those that begin after it
    with ThreadPoolExecutor(min(threads, len(items)), initializer=begin) as pool:
        try:
            return list(pool.map(on_thread, items))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for thread in tuple(busy):
                _interrupt(thread)
            raise
        finally:
            torch.set_num_threads(threads)


def _interrupt(thread: int) -> None:
    """Raise KeyboardInterrupt in a thread, at its next line of Python."""
    error = ctypes.py_object(KeyboardInterrupt)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), error)
