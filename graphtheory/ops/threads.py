"""Work on plain threads that end with the call.

They are not a parallel region of a compiler's runtime: that would outlive the call, and a forked
child that enters such a region after its parent did is killed. What runs on them lets go of the
interpreter lock. In a worker of `torch.utils.data.DataLoader` torch has one thread, so the same
code runs in sequence there.
"""

from __future__ import annotations

from _thread import LockType, allocate_lock, start_new_thread
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock

from threadpoolctl import ThreadpoolController

_turn = Lock()


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


@cache
def _blas() -> ThreadpoolController:
    """The BLAS libraries of the process, that of compiled loops among them."""
    import scipy.linalg.cython_blas  # noqa: F401  (numba's np.dot calls it)

    return ThreadpoolController().select(user_api="blas")


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Within, BLAS computes each product on the thread that asks for it.

    For loops that run on threads of their own: BLAS would divide every small product again, and its
    threads spin between them. The first thread to enter sets the limit, for the process, until it
    leaves.
    """
    if not _turn.acquire(blocking=False):
        yield
        return
    try:
        with _blas().limit(limits=1):
            yield
    finally:
        _turn.release()
