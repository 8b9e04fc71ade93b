"""Threads for compiled loops: torch's own, and some that wait for work.

What runs on them lets go of the interpreter lock. A forked child cannot enter a parallel region of
OpenMP after its parent did.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import sys
from _thread import start_new_thread
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any

import torch

_LAST_WAIT = 5.0  # seconds


class Helpers:
    """Threads that wait for work: to wake one takes less than to start one.

    They wait until the interpreter ends, which is held up until they have left: a thread that came
    back from a compiled loop later would be cut off there and abort the process. A forked child,
    which has none of them, starts its own.
    """

    def __init__(self) -> None:
        self._renew()
        atexit.register(self._end)
        if hasattr(os, "register_at_fork"):  # not on Windows, which has no forks
            os.register_at_fork(after_in_child=self._renew)

    def _renew(self) -> None:
        self._jobs: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._left: SimpleQueue[None] = SimpleQueue()
        self._waiting = 0

    def ask(self, job: Callable[[], object], threads: int) -> None:
        """Have `job`, which must not raise, called by so many threads, at once or later."""
        while self._waiting < threads:
            self._waiting += 1
            start_new_thread(self._work, (self._jobs, self._left))
        for _ in range(threads):
            self._jobs.put(job)

    @staticmethod
    def _work(jobs: SimpleQueue[Callable[[], object] | None], left: SimpleQueue[None]) -> None:
        while (job := jobs.get()) is not None:
            job()
            del job  # what it worked on must not stay alive until the next one
        left.put(None)

    def _end(self) -> None:
        for _ in range(self._waiting):
            self._jobs.put(None)
        with suppress(Empty):  # one that is stuck in a job does not hold the process for long
            for _ in range(self._waiting):
                self._left.get(timeout=_LAST_WAIT)


helpers = Helpers()


class Team:
    """The threads of OpenMP that torch's operations run on.

    After an operation they look for the next one for some milliseconds without sleep. Threads of
    our own would share the cores with them: beside torch's products loops took up to twice as
    long. As a region of the same runtime the work goes to those that are awake.
    """

    def __init__(self) -> None:
        self._region = _region_of_openmp()
        if hasattr(os, "register_at_fork"):  # not on Windows, which has no forks
            os.register_at_fork(after_in_child=self._end)

    def _end(self) -> None:
        self._region = None

    def takes(self, threads: int) -> bool:
        """Whether so many threads are all of torch's: another number would start and end some."""
        return self._region is not None and threads == torch.get_num_threads()

    def run(self, job: Callable[[], object], threads: int) -> None:
        """Have `job` called by each thread, the calling one among them.

        Nothing that it raises comes out, an interrupt of Python code in it included: it should be
        one compiled call.
        """
        assert self._region is not None
        self._region(_Job(job), None, threads, 0)


_Job: Any = ctypes.CFUNCTYPE(None)  # without the argument that the library gives it


def _region_of_openmp() -> Callable[..., None] | None:
    """``GOMP_parallel(job, data, threads, flags)`` of the library in the process, if it has one."""
    if sys.platform != "linux" or not torch.backends.openmp.is_available():
        return None
    region = getattr(ctypes.CDLL(None), "GOMP_parallel", None)
    if region is not None:
        region.argtypes = [_Job, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
        region.restype = None
    return region


team = Team()
