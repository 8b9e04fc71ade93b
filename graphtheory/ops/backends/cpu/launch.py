"""Run a compiled loop on torch's number of threads."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from time import sleep
from typing import Any

import torch
from numba import njit

from graphtheory.ops.backends.cpu.counters import settled, turns
from graphtheory.ops.backends.cpu.decorators import MATH
from graphtheory.ops.threads import helpers, team

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
