"""Small graphs computed as large ones are: in many chunks, rows shared out, weights not kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any
from unittest import mock

import torch

from graphtheory.ops.backends.cpu import launch, memory

_CHUNK = 8  # rows and edges in place of 512: some thirty chunks of an ordinary case
_MANY = ((launch, "_CHUNK", _CHUNK), (launch, "WORTH_A_THREAD", 1))
_SHARED = (*_MANY, (memory, "WHOLE_ROWS_BELOW", 0))
REGIMES = (  # every loop over a graph that the CPU's kernels have
    (), _MANY, _SHARED, (*_SHARED, (memory, "KEPT_WEIGHTS_BELOW", 0)),
)  # fmt: skip


@contextmanager
def computed_as(number: int) -> Iterator[None]:
    """In one of `REGIMES` after the other; the first is what graphs of this size have."""
    with ExitStack() as stack:
        for module, name, value in REGIMES[number % len(REGIMES)]:
            stack.enter_context(mock.patch.object(module, name, value))
        yield


def in_one_chunk(number: int) -> bool:
    """Whether `computed_as(number)` leaves a small graph whole."""
    return not REGIMES[number % len(REGIMES)]


def _by_threads(chunks: Callable[..., int], *parts: torch.Tensor) -> int:
    found = chunks(*parts)
    return found if torch.get_num_threads() == 1 else max(1, found // 2)


def _added_twice(loop: Callable[..., None], *carried: Any) -> None:
    for _ in range(2):
        _MERGE(loop, *carried)


_MERGE = launch.run_merge
FAULTS: dict[str, tuple[Any, str, Any]] = {
    "what a chunk carries is lost": (launch, "run_merge", lambda *args: None),
    "what a chunk carries is added twice": (launch, "run_merge", _added_twice),
}
"""Of how the compiled loops are called: module, name, what takes its place."""
CHUNKS_BY_THREADS = (launch, "chunks_of", partial(_by_threads, launch.chunks_of))
"""A fault: sums that hang on the number of threads."""
