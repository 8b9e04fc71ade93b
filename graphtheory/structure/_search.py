"""Buffers that searches of one graph share, and the threads that run them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from weakref import WeakKeyDictionary

import numpy as np
import torch

from graphtheory.graph import Neighborhood
from graphtheory.ops.threads import on_threads

_LAST_TURN = np.iinfo(np.int32).max


class Scratch:
    """Marks and queues of one search at a time.

    A search distinguishes its marks from older ones by their number, the turn; it leaves all else
    unchanged. 21 bytes per node if all nodes are reached; untouched pages of queues take no memory.
    """

    def __init__(self, num_nodes: int) -> None:
        self.mark = np.zeros(num_nodes, np.int32)
        self.queue, self.behind = np.empty(num_nodes, np.int64), np.empty(num_nodes, np.int64)
        self.hops_of = np.empty(num_nodes, np.uint8)
        self.words = np.zeros((num_nodes + 63) // 64, np.uint64)
        self.used = np.zeros((len(self.words) + 63) // 64, np.uint64)
        self._next = 1

    def turns(self, count: int) -> int:
        """The first of `count` turns that are not in use as marks."""
        if self._next + count > _LAST_TURN:
            self.mark[:] = 0
            self._next = 1
        first, self._next = self._next, self._next + count
        return first


class Pool:
    """Scratch buffers for the threads that search one graph at the same time."""

    def __init__(self, num_nodes: int) -> None:
        self.num_nodes, self._free = num_nodes, deque[Scratch]()

    @contextmanager
    def scratch(self) -> Iterator[Scratch]:
        """A buffer that no other thread uses; after an error it is dropped."""
        try:
            found = self._free.pop()
        except IndexError:
            found = Scratch(self.num_nodes)
        yield found
        self._free.append(found)


_pools: WeakKeyDictionary[Neighborhood, Pool] = WeakKeyDictionary()


def pool_of(graph: Neighborhood) -> Pool:
    """The buffers of a graph (cached)."""
    return _pools.setdefault(graph, Pool(graph.num_dst))


def for_chunks(work: Callable[[int, int], None], total: int, chunk: int) -> None:
    """Call ``work(start, stop)`` for consecutive ranges that cover 0..total-1; errors propagate."""
    ranges = [(start, min(start + chunk, total)) for start in range(0, total, chunk)]
    on_threads(work, ranges, min(torch.get_num_threads(), len(ranges)))
