"""The threads of OpenMP that torch's operations run on: our loops on them, and how they wait."""

from __future__ import annotations

import ctypes
import os
import sys
from _thread import allocate_lock, start_new_thread
from collections.abc import Callable
from time import perf_counter
from typing import Any

import torch

if sys.platform == "linux":
    from resource import RUSAGE_SELF, getrusage

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
        """Whether this many threads are all of torch's: another number would start and end some."""
        return self._region is not None and threads == torch.get_num_threads()

    def run(self, job: Callable[[], object], threads: int) -> None:
        """Have `job` called by each thread, the calling one among them.

        Nothing that it raises comes out, an interrupt of Python code in it included: it should be
        one compiled call.
        """
        assert self._region is not None
        self._region(_Job(job), None, threads, 0)


team = Team()

_BETWEEN_LOOKS = 0.2  # seconds
_BUSY = 20, 5  # times a second that the system takes a core away, for the process and each thread
_MOST_ASLEEP = 32  # threads that are held; the library ends a process that may not have as many
_CALM = 1.0  # seconds without that, after which waiting threads look for work again
_CHOSEN = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")  # by which users say how threads wait


class Rest:
    """Has threads of OpenMP that wait sleep at once, while other work needs the cores.

    In GNU's library a thread that waits for another looks for it for some milliseconds, without
    sleep. Where the other one needs the very core for which it looks, steps took up to a hundred
    times as long; most of that is between the threads of torch's own operations. The library looks
    for some microseconds only while it has more threads than the process has cores. So while the
    system takes cores away from this process, a thread of ours holds as many more, which sleep.
    """

    def __init__(self) -> None:
        self.chosen = any(name in os.environ for name in _CHOSEN)
        self._region = None if self.chosen else _region_of_openmp()
        if self._region is not None:
            library: Any = ctypes.CDLL(None)
            self._cores: int = library.omp_get_num_procs()
            self._nothing = ctypes.cast(library.omp_get_num_procs, _Job)
            if hasattr(library, "kmp_set_blocktime"):  # LLVM's, which has no such rule
                self._region = None
        self._renew()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._renew)

    def _renew(self) -> None:
        self._turn, self._end = allocate_lock(), allocate_lock()
        self._last = self._until = 0.0  # seconds, of the last look and of rest
        self._lost = self.held = 0

    def __str__(self) -> str:
        if self.chosen:
            return f"as {' or '.join(_CHOSEN)} of the environment says"
        if self._region is None:
            return "as torch's OpenMP library does; OMP_WAIT_POLICY=passive helps on a busy machine"
        return "spin for a few milliseconds, then sleep; on a busy machine sleep at once"

    def look(self) -> None:
        """Begin or end the rest by how often the system took a core since the last look."""
        now = perf_counter()
        if self._region is None or now < self._last + _BETWEEN_LOOKS:
            return
        if not self._turn.acquire(blocking=False):  # another thread looks
            return
        threads, lost = torch.get_num_threads(), getrusage(RUSAGE_SELF).ru_nivcsw
        if lost - self._lost > (_BUSY[0] + _BUSY[1] * threads) * (now - self._last):
            self._until = now + _CALM
        self._last, self._lost = now, lost
        asleep = self._cores + 2 - threads
        busy = threads > 1 and now < self._until
        self._hold(asleep if busy and 0 < asleep <= _MOST_ASLEEP else 0)
        self._turn.release()

    def _hold(self, threads: int) -> None:
        """Hold a team of that size, one of ours among them, in place of the one before."""
        if threads == self.held:
            return
        if self.held > 1:
            self._end.release()  # with its first thread the team ends
        self.held = threads
        if threads > 1:
            self._end = allocate_lock()
            self._end.acquire()
            start_new_thread(self._sleep, (threads, self._end))

    def _sleep(self, threads: int, end: Any) -> None:
        assert self._region is not None
        self._region(self._nothing, None, threads, 0)
        end.acquire()


rest = Rest()
