"""Memory of the size of the graph that searches share, so that none of them clears all of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakKeyDictionary

import numpy as np

from graphtheory.graph import Neighborhood

_LAST_TURN = np.iinfo(np.int32).max


class Scratch:
    """Marks and queues of one search at a time.

    What a search marks is told from older marks by its number, the turn; everything else is left
    as it was found. 21 bytes a node where all nodes are reached; queues that are not are not there.
    """

    def __init__(self, num_nodes: int) -> None:
        self.mark = np.zeros(num_nodes, np.int32)
        self.queue, self.behind = np.empty(num_nodes, np.int64), np.empty(num_nodes, np.int64)
        self.hops_of = np.empty(num_nodes, np.uint8)
        self.words = np.zeros((num_nodes + 63) // 64, np.uint64)
        self.used = np.zeros((len(self.words) + 63) // 64, np.uint64)
        self._next = 1

    def turns(self, count: int) -> int:
        """The first of `count` turns that no mark bears yet."""
        if self._next + count > _LAST_TURN:
            self.mark[:] = 0
            self._next = 1
        first, self._next = self._next, self._next + count
        return first


class Pool:
    """Scratch for as many threads as search one graph at a time."""

    def __init__(self, num_nodes: int) -> None:
        self.num_nodes, self._free = num_nodes, deque[Scratch]()

    @contextmanager
    def scratch(self) -> Iterator[Scratch]:
        """One that no other thread has; after an error it is not used again."""
        try:
            found = self._free.pop()
        except IndexError:
            found = Scratch(self.num_nodes)
        yield found
        self._free.append(found)


_pools: WeakKeyDictionary[Neighborhood, Pool] = WeakKeyDictionary()


def pool_of(graph: Neighborhood) -> Pool:
    """What belongs to the graph, as long as it lives."""
    return _pools.setdefault(graph, Pool(graph.num_dst))
