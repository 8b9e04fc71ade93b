"""Small computations several at a time, each on a thread of its own."""

import ctypes
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from functools import partial
from threading import get_ident
from typing import TypeVar

import torch

Item = TypeVar("Item")
Result = TypeVar("Result")
_PATIENCE = 0.05  # seconds


def map_on_threads(work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """``[work(item) for item in items]``, several at a time, each on a thread of its own.

    As many as torch has threads, and torch has one within each: small computations gain more from
    that than from two threads that share each of them. `work` must draw from generators of its own.
    An error, Ctrl-C among them, ends what is under way at its next line of Python.

    Example:
        >>> map_on_threads(lambda number: number**2, [2, 3, 4])
        [4, 9, 16]
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
            futures = [pool.submit(on_thread, item) for item in items]
            for ended in wait(futures, return_when=FIRST_EXCEPTION).done:
                ended.result()  # raises what it raised
            return [future.result() for future in futures]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            while any([_interrupt(thread) for thread in tuple(busy)]):
                time.sleep(_PATIENCE)  # a finalizer may have swallowed it
            raise
        finally:
            torch.set_num_threads(threads)


def _interrupt(thread: int) -> bool:
    """Raise KeyboardInterrupt in a thread, at its next line of Python; whether it lives."""
    error = ctypes.py_object(KeyboardInterrupt)
    return bool(ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), error))
