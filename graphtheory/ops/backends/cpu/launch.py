"""Run compiled loops over chunks of rows, which torch's threads take in turn by shared counters.

A loop is a plain function, which `launch` compiles, of parts (`compiling`). The work, rows and
edges in the order of the rows, is cut into chunks of equal size. How many depends on the graph
alone, what a row is summed in is the order of its edges, cut at the same places whatever the number
of threads, and one machine code serves all threads: results are the same bits for any number.
"""

from __future__ import annotations

import atexit
import os
from _thread import start_new_thread
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from queue import Empty, SimpleQueue
from time import sleep
from typing import Any

import numpy as np
import torch
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from torch import Tensor

from graphtheory.ops.backends.cpu.compiling import MATH, kept_on_disk, part
from graphtheory.ops.backends.cpu.memory import NUMPYS
from graphtheory.ops.backends.cpu.openmp import rest, team

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
        """Have `job`, which must not raise, called by this many threads, at once or later."""
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


MOST_CHUNKS = 128
_CHUNK = 512  # rows and edges that are worth a chunk
_NEXT, _DONE, _COUNTERS = 0, 8, 16  # places in the counters, a cache line apart; their number
_SPINS = 4000  # looks, some microseconds: as long as a thread takes to let go of the interpreter

# NumPy's: where this module is imported while torch traces, torch would make fake ones.
NO_EDGES: Any = np.empty(0, np.int64)
NO_BUCKETS: Any = np.empty(0, np.uint8)
NO_ROWS: Any = {dtype: np.empty((0, 0), kind) for dtype, kind in NUMPYS.items()}
ONE: Any = {dtype: kind(1) for dtype, kind in NUMPYS.items()}


@part
def chunk_start(indptr, chunk, chunks):
    """Where a chunk starts in the list of every row followed by its edges."""
    rows = indptr.shape[0] - 1
    return (indptr[rows] + rows) * chunk // chunks


@part
def first_row(indptr, chunk, chunks):
    """Lowest row that starts in the chunk or after it: row i is item indptr[i] + i."""
    target = chunk_start(indptr, chunk, chunks)
    low, high = 0, indptr.shape[0] - 1
    while low < high:
        middle = (low + high) // 2
        if indptr[middle] + middle < target:
            low = middle + 1
        else:
            high = middle
    return low


@part
def rows_of(indptr, chunk, chunks):
    """The first row that starts in a chunk, and the one after its last."""
    return first_row(indptr, chunk, chunks), first_row(indptr, chunk + 1, chunks)


@part
def items_of(indptr, chunk, chunks):
    """Of a chunk begin and end of its items; first row, first to start there, end, first edge."""
    first, last = rows_of(indptr, chunk, chunks)
    begin, end = chunk_start(indptr, chunk, chunks), chunk_start(indptr, chunk + 1, chunks)
    start = max(first - 1, 0)
    return begin, end, start, first, last, max(indptr[start], begin - start - 1)


@part
def cut(indptr, i, start, stop):
    """Edges of row i, which are items indptr[i] + i + 1 and after, among items start..stop-1."""
    return max(indptr[i], start - i - 1), min(indptr[i + 1], stop - i - 1)


def _atomic(operate: Callable[[Any, Any], Any]) -> Any:
    """A compiled function (counters, at) that does an atomic operation and returns a number."""

    @intrinsic
    def number(_, counters, at):
        def code(context, builder, _signature, args):
            data = context.make_array(counters)(context, builder, args[0]).data
            return operate(builder, builder.gep(data, [args[1]]))

        return types.int64(counters, types.int64), code

    return number


_add_one = _atomic(  # the number before
    lambda builder, at: builder.atomic_rmw("add", at, ir.Constant(ir.IntType(64), 1), "seq_cst")
)
_look = _atomic(lambda builder, at: builder.load_atomic(at, "seq_cst", 8))


@part
def take_chunk(counters):
    """The chunk that a thread begins with."""
    return _add_one(counters, _NEXT)


@part
def next_chunk(counters):
    """The chunk after one that is done."""
    _add_one(counters, _DONE)
    return _add_one(counters, _NEXT)


@part
def wait_for(counters, chunks):
    """Wait for the threads that still do one of the first chunks, on which those after depend."""
    while _look(counters, _DONE) < chunks:
        pass


@partial(kept_on_disk, nogil=True)
def all_done(counters, chunks, patience):
    """Whether this many chunks are done, by repeated looks."""
    if _look(counters, _DONE) >= chunks:
        return True
    for _ in range(patience):
        if _look(counters, _DONE) >= chunks:
            for _ in range(_SPINS):
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
    """Machine code, which Python calls and nothing else."""
    found: Callable[..., None] = kept_on_disk(
        loop, nogil=True, fastmath=MATH, no_cfunc_wrapper=True
    )
    return found


def launch(loop: Callable[..., None], chunks: int, work: int, *args: Any) -> None:
    """Call ``loop(counters, *args)`` in as many threads as pay by `work`, this one among them.

    Work for all of torch's threads goes to those; less to others, of which one that comes when all
    chunks are given out does nothing, and is not waited for. To others, too, goes the first call of
    a kind, which may compile: what that raises, or an interrupt, would be lost on torch's.
    """
    if torch.get_num_threads() > 1:
        rest.look()
    code, counters = _compiled(loop), np.zeros(_COUNTERS, np.int64)
    others = min(torch.get_num_threads(), 1 + work // WORTH_A_THREAD, chunks) - 1
    if others < 1:
        code(counters, *args)
        return
    kinds = (loop, *(getattr(arg, "dtype", type(arg)) for arg in args))
    if kinds in _ready and team.takes(others + 1):
        team.run(partial(code, counters, *args), others + 1)
        if not all_done(counters, chunks, 1):
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
    while not all_done(counters, chunks, _PATIENCE) and not errors:
        sleep(_NAP)
    if errors:
        raise errors[0]
    _ready.add(kinds)


def chunks_of(indptr: Tensor, per_edge: Tensor) -> int:
    """Number of chunks of a structure, whose edges are the first axis of `per_edge`."""
    return max(1, min(MOST_CHUNKS, (indptr.size(0) - 1 + per_edge.size(0)) // _CHUNK))


def run(loop: Callable[..., None], work: int, chunks: int, *args: Any, passes: int = 1) -> None:
    """Launch a loop over chunks of rows, or one pass after the other, on tensors and numbers."""
    found = list(args)
    for k, a in enumerate(found):
        if isinstance(a, Tensor):
            found[k] = a.contiguous().numpy()
    launch(loop, passes * chunks, work, chunks, *found)


def cast(x: float, like: Tensor) -> np.floating[Any]:
    """Of the type of the sums."""
    return np.float64(x) if like.dtype == torch.float64 else np.float32(x)


def options(
    like: Tensor, bias: Tensor | None, bucket: Tensor | None, table: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Absent parts as empty arrays, so that one machine code serves all."""
    none = NO_ROWS[like.dtype]
    bias = none if bias is None else wide(bias, like)
    table = none if table is None else wide(table, like)
    return bias, NO_BUCKETS if bucket is None else bucket.contiguous(), table


def wide(tensor: Tensor | None, like: Tensor, zeros: int = 0) -> Tensor:
    """A contiguous tensor in the type of the sums; of nothing [0, 0], or a row of zeros."""
    if tensor is None:
        return like.new_zeros(1, zeros) if zeros else NO_ROWS[like.dtype]
    return tensor.detach().to(like.dtype).contiguous()


def buckets(bucket: Tensor | None) -> Tensor:
    """Buckets, or row numbers, of edges, if there are any."""
    return NO_BUCKETS if bucket is None else bucket.contiguous()


def tables_of(weights: Tensor, chunks: int, num_buckets: int) -> Tensor:
    """Zeros [Z * H] for each chunk."""
    if num_buckets == 0:
        return NO_ROWS[weights.dtype]
    return weights.new_zeros(chunks, num_buckets * weights.size(1))


def sum_tables(tables: Tensor, num_buckets: int, weights: Tensor) -> Tensor:
    """The sum of the tables, [Z, H]."""
    heads = weights.size(1)
    return tables.sum(0).view(num_buckets, heads) if num_buckets else weights.new_empty(0, heads)


def partial_buffers(chunks: int, *outs: Tensor) -> tuple[Any, ...]:
    """Room for the row that a chunk only adds to, and for what it adds to some outputs."""
    rows = [np.empty((chunks, *out.shape[1:]), NUMPYS[out.dtype]) for out in outs]
    return np.empty(chunks, np.int64), *rows


def run_merge(loop: Callable[..., None], split_row: np.ndarray, *parts: Any) -> None:
    """Launch a loop that adds the partial sums of split rows."""
    run(loop, 0, len(split_row), split_row, *parts)
