"""Memory of large outputs: in large pages where the system has them, and used again."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from contextlib import suppress
from math import prod

import numpy as np
import torch
from torch import Tensor

_PAGE = 2**21
_LARGE = 2**20  # bytes of an output that is worth a room of its own
_KEPT = 2**26  # bytes that are kept for the next outputs, as many as malloc would keep
_rooms: list[np.ndarray] = []  # nobody's, the last freed at the end


def empty(shape: Sequence[int], like: Tensor) -> Tensor:
    """An uninitialised tensor on the CPU, of the type of another.

    New memory costs a fault for each page and is cleared by the system, which together take as long
    as the sums that are written there, on a virtual machine longer. So memory of freed outputs is
    used again, and new memory asks for large pages, as NumPy's does and torch's does not.
    """
    size = prod(shape) * like.element_size()
    if size < _LARGE:
        return like.new_empty(tuple(shape))
    room = _take(size)
    first = -room.ctypes.data % _PAGE
    part = room[first : first + size]
    weakref.finalize(part, _give_back, room).atexit = False
    return torch.from_numpy(part).view(like.dtype).view(tuple(shape))


def _take(size: int) -> np.ndarray:
    """A room with that many bytes after its first large page begins."""
    wanted = (-(-size // _PAGE) + 1) * _PAGE
    with suppress(IndexError):  # other threads take and free rooms meanwhile
        for place in reversed(range(len(_rooms))):
            if _rooms[place].size == wanted:
                room = _rooms.pop(place)
                if room.size == wanted:
                    return room
                _give_back(room)
    return np.empty(wanted, np.uint8)


def _give_back(room: np.ndarray) -> None:
    _rooms.append(room)
    with suppress(IndexError):
        while sum(r.size for r in _rooms) > _KEPT:
            del _rooms[0]
