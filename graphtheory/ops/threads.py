"""Work on plain threads: some that end with the call, and some that wait for more.

They are not a parallel region of a compiler's runtime: that would outlive the call, and a forked
child that enters such a region after its parent did is killed. What runs on them lets go of the
interpreter lock. In a worker of `torch.utils.data.DataLoader` torch has one thread, so the same
code runs in sequence there.
"""

from __future__ import annotations

import atexit
import os
from _thread import LockType, allocate_lock, start_new_thread
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from queue import Empty, SimpleQueue

_LAST_WAIT = 5.0  # seconds


def on_threads(
    work: Callable[[int, int], None], ranges: Iterable[tuple[int, int]], threads: int
) -> None:
    """Call ``work(start, stop)`` for every range, in the calling thread and `threads` - 1 others.

    After an error no further range is begun, and the first error is raised here.
    """
    todo = deque(ranges)
    errors: list[BaseException] = []

    def work_off() -> None:
        while todo and not errors:
            try:
                start, stop = todo.popleft()
            except IndexError:  # another thread took the last one
                return
            try:
                work(start, stop)
            except BaseException as error:  # raised below, in the calling thread
                errors.append(error)

    def of_another(ended: LockType) -> None:
        try:
            work_off()
        finally:
            ended.release()

    others = [allocate_lock() for _ in range(threads - 1)]
    for ended in others:  # a `threading.Thread` would be waited for until it has begun
        ended.acquire()
        start_new_thread(of_another, (ended,))
    work_off()
    for ended in others:
        ended.acquire()
    if errors:
        raise errors[0]


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
