"""Run a compiled loop over chunks, which torch's threads take in turn by shared counters."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from time import sleep
from typing import Any

import numpy as np
import torch
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from graphtheory.ops.backends.cpu.decorators import MATH
from graphtheory.ops.threads import helpers, team

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


# Multiply-adds below which a second thread costs more to wake than it saves.
WORTH_A_THREAD = 2**19
_PATIENCE = 2**18  # looks before a waiting thread sleeps: about half a millisecond
_NAP = 1e-4  # seconds
_ready: set[tuple[Any, ...]] = set()  # loops and types of arguments with machine code in memory


@cache
def _compiled(loop: Callable[..., None]) -> Callable[..., None]:
    """Machine code, kept on disk."""
    return njit(nogil=True, cache=True, fastmath=MATH)(loop)


def launch(loop: Callable[..., None], chunks: int, work: int, *args: Any) -> None:
    """Call ``loop(counters, *args)`` in as many threads as pay, the calling one among them.

    Work for all of torch's threads goes to those; less to others, of which one that comes when all
    chunks are given out does nothing, and is not waited for. To others, too, goes the first call of
    a kind, which may compile: what that raises, or an interrupt, would be lost on torch's.

    Args:
        loop: A plain function that numba compiles; it does chunks `take_chunk(counters)`,
            `next_chunk(counters)`, ... of `counters` below `chunks`, each of which one thread gets.
        chunks: Number of chunks.
        work: Of all chunks, in multiply-adds; decides whether threads pay.
        *args: Arrays and numbers.

    Raises:
        RuntimeError: A thread of torch's left chunks undone, for want of memory, say.
    """
    code, counters = _compiled(loop), turns()
    others = min(torch.get_num_threads(), 1 + work // WORTH_A_THREAD, chunks) - 1
    if others < 1:
        code(counters, *args)
        return
    kinds = (loop, *(getattr(arg, "dtype", type(arg)) for arg in args))
    if kinds in _ready and team.takes(others + 1):
        team.run(partial(code, counters, *args), others + 1)
        if not settled(counters, chunks, 1):
            raise RuntimeError(f"{loop.__name__}: ended early; the reason is in the error output")
        return
    errors: list[BaseException] = []

    def help_out() -> None:
        try:
            code(counters, *args)
        except BaseException as error:  # raised below, in the calling thread
            errors.append(error)

    helpers.ask(help_out, others)
    code(counters, *args)
    while not settled(counters, chunks, _PATIENCE) and not errors:
        sleep(_NAP)
    if errors:
        raise errors[0]
    _ready.add(kinds)
