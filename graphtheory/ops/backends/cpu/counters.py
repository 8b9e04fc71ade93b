"""Chunks that threads take in turn, by counters that compiled loops share without a lock.

A thread that comes late finds nothing left and does no harm, so nobody waits for a thread to begin.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

_NEXT, _DONE = 0, 8  # places in the counters, a cache line apart
_LEAVE = 4000  # looks, some microseconds: as long as a thread takes to let go of the interpreter


def turns() -> np.ndarray:
    """Counters of one pass over chunks."""
    return np.zeros(16, np.int64)


def _place(context: Any, builder: Any, kind: Any, array: Any, at: Any) -> Any:
    return builder.gep(context.make_array(kind)(context, builder, array).data, [at])


@intrinsic
def _add_one(_, counters, at):
    """The number at a place before it grows by one."""

    def code(context, builder, _signature, args):
        place = _place(context, builder, counters, *args)
        return builder.atomic_rmw("add", place, ir.Constant(ir.IntType(64), 1), "seq_cst")

    return types.int64(counters, types.int64), code


@intrinsic
def _look(_, counters, at):
    """The number at a place, whichever thread wrote it last."""

    def code(context, builder, _signature, args):
        place = _place(context, builder, counters, *args)
        return builder.load_atomic(place, "seq_cst", 8)

    return types.int64(counters, types.int64), code


@njit(cache=True)
def take_chunk(counters):
    """The chunk that a thread begins with."""
    return _add_one(counters, _NEXT)


@njit(cache=True)
def next_chunk(counters):
    """The chunk after one that is done."""
    _add_one(counters, _DONE)
    return _add_one(counters, _NEXT)


@njit(cache=True)
def wait_for(counters, chunks):
    """Wait for the threads that still do one of the first chunks, on which those after depend."""
    while _look(counters, _DONE) < chunks:
        pass


@njit(cache=True, nogil=True)
def settled(counters, chunks, patience):
    """Whether so many chunks are done, looking again so many times."""
    if _look(counters, _DONE) >= chunks:
        return True
    for _ in range(patience):
        if _look(counters, _DONE) >= chunks:
            for _ in range(_LEAVE):
                _look(counters, _DONE)
            return True
    return False
