"""What calls keep in memory, and reusable output buffers, in large pages where there are any.

The first two constants choose between the loops: on whole rows, three on rows that are cut, or on
tiles, which keep no weights.
"""

from __future__ import annotations

import mmap
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor

# Multiply-adds of a sum below which rows stay whole: three loops become one. Above, hubs are shared
# out, and rows asked for ahead where they are far. What three loops took of the time of one when
# near rows were asked for, too, 8 heads of 16, on an EPYC: 1.4 million 1.3, 2.6 million 1.0, 3.8
# million 0.9, 7.7 million 0.7; molecules, whose edges are short, 1.4 to 1.3 at any size.
WHOLE_ROWS_BELOW = 2**22
# Bytes of the weights [E, H] from which on they are not kept for the backward pass.
KEPT_WEIGHTS_BELOW = 2**26

_PAGE = 2**21
_SMALL = 2**16  # a multiple of small pages, which what lies beyond the last large one takes
_LARGE = 2**20  # bytes of an output that is worth a buffer of its own
_KEPT = 2**29  # bytes that are kept for the next outputs; malloc would keep 2**26
NUMPYS: Any = {torch.float32: np.float32, torch.float64: np.float64}  # types of sums


def _rounded(size: int) -> int:
    """Up to large pages, or to small ones where more than half of the last would be idle."""
    buffer = -(-size // _PAGE) * _PAGE
    return buffer if 2 * (buffer - size) <= _PAGE else -(-size // _SMALL) * _SMALL


def _new(size: int) -> np.ndarray:
    """That many bytes, a multiple of small pages, at the start of a large page."""
    space: np.ndarray
    try:
        pages = mmap.mmap(-1, size + _PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        space = np.frombuffer(pages, np.uint8)
        first = -space.ctypes.data % _PAGE
        pages.madvise(mmap.MADV_HUGEPAGE, first, size)
        if size % _PAGE:
            pages.madvise(mmap.MADV_NOHUGEPAGE, first + size // _PAGE * _PAGE)
    except (AttributeError, OSError):  # not on Linux, or a kernel without large pages
        space = np.empty(size + _PAGE, np.uint8)
        first = -space.ctypes.data % _PAGE
    return space[first : first + size]


def _fits(buffer: np.ndarray, size: int) -> bool:
    """Whether a buffer holds that many bytes, and not much more: batches differ a little."""
    return size <= buffer.size <= size + size // 4


class _Loan(weakref.ref[np.ndarray]):
    """Ends with the array that was given out; a `weakref.finalize` costs ten times as much."""

    __slots__ = ("buffer",)
    buffer: np.ndarray


class BufferPool:
    """Reusable output buffers: the memory that outputs have left, for the next ones."""

    def __init__(self) -> None:
        self.free: list[np.ndarray] = []  # the last freed at the end
        self._loans: dict[int, _Loan] = {}

    def lend(self, shape: Sequence[int], size: int, dtype: torch.dtype) -> Tensor:
        """An uninitialized tensor, `size` bytes at the start of a large page."""
        buffer = self.take(size)
        part = buffer[:size].view(NUMPYS[dtype]).reshape(shape)
        loan = _Loan(part, self._end)
        loan.buffer = buffer
        self._loans[id(loan)] = loan
        return torch.from_numpy(part)

    def _end(self, loan: _Loan) -> None:
        del self._loans[id(loan)]
        self.put_back(loan.buffer)

    def take(self, size: int) -> np.ndarray:
        """A buffer of as many pages as that many bytes need, or a freed one a little larger."""
        wanted = _rounded(size)
        with suppress(IndexError):  # other threads take and free buffers meanwhile
            for place in reversed(range(len(self.free))):
                if _fits(self.free[place], wanted):
                    buffer = self.free.pop(place)
                    if _fits(buffer, wanted):
                        return buffer
                    self.put_back(buffer)
        return _new(wanted)

    def put_back(self, buffer: np.ndarray) -> None:
        """Keep a buffer for the next output, and let go of the oldest that are too many."""
        self.free.append(buffer)
        with suppress(IndexError):
            while sum(map(len, self.free)) > _KEPT:
                del self.free[0]


_pool = BufferPool()
_lends = True


@contextmanager
def outputs_by_torch() -> Iterator[None]:
    """Let torch allocate outputs of any size, whose profiler then sees all of them."""
    global _lends
    before, _lends = _lends, False
    try:
        yield
    finally:
        _lends = before


def empty(shape: Sequence[int], like: Tensor) -> Tensor:
    """An uninitialized tensor on the CPU, of the type of another, float32 or float64.

    New memory costs a fault for each page and is cleared by the system, which together take as long
    as the sums that are written there, on a virtual machine longer. So memory of freed outputs is
    used again, and new memory asks for large pages, which torch's does not.
    """
    size = prod(shape) * like.element_size()
    if size < _LARGE or not _lends:
        return like.new_empty(tuple(shape))
    return _pool.lend(shape, size, like.dtype)


def rows_stay_whole(indices: Tensor, value: Tensor) -> bool:
    """Whether the multiply-adds of a sum are so few that a row is never shared out."""
    return indices.size(0) * value.size(1) * value.size(2) < WHOLE_ROWS_BELOW


def keeps_weights(num_edges: int, num_heads: int, itemsize: int) -> bool:
    """Whether the backward pass is given the weights [E, H]; else it computes them again."""
    return num_edges * num_heads * itemsize < KEPT_WEIGHTS_BELOW
