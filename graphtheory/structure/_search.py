"""What searches of a graph share: checks of arguments, rows, buffers, and threads."""

import operator
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import wraps
from typing import Any, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from graphtheory.graph import Neighborhood
from graphtheory.graph.check import fit_int32
from graphtheory.graph.content import (
    innermost_transform,
    leave_inference_mode,
    state_of,
    unwrapped,
)
from graphtheory.graph.csr import check_index, check_pointers

Rows = tuple[np.ndarray, np.ndarray]
Found = TypeVar("Found")
Given = ParamSpec("Given")
_LAST_TURN = np.iinfo(np.int32).max


def _plain(ids: Tensor) -> Tensor:
    found = unwrapped(ids)
    if found.dim() != ids.dim():
        raise NotImplementedError("torch.vmap: ids are batched, expected one graph for all")
    return found


def _of_ids(value: Any) -> Any:
    """A tensor or the edges of a graph, as they were before torch.func wrapped them."""
    if isinstance(value, Tensor):
        return _plain(value)
    if not isinstance(value, Neighborhood):
        return value
    indptr, indices = _plain(value.indptr), _plain(value.indices)
    if indptr is value.indptr and indices is value.indices:
        return value
    perm = None if value.perm is None else _plain(value.perm)
    return Neighborhood(indptr, indices, value.num_src, perm=perm, validate=False)


def not_traced(compute: Callable[Given, Found]) -> Callable[Given, Found]:
    """The same function of ids, which numpy reads: torch.compile and torch.func do not see it."""

    @wraps(compute)
    def outside(*args: Given.args, **options: Given.kwargs) -> Found:
        if innermost_transform() is None:
            return compute(*args, **options)
        with leave_inference_mode():
            named: Any = {name: _of_ids(value) for name, value in options.items()}
            return compute(*map(_of_ids, args), **named)

    found: Callable[Given, Found] = torch.compiler.disable(outside)
    return found


def num_nodes_of(graph: Neighborhood) -> int:
    """Number of nodes of a graph; raises for anything else, bipartite neighborhoods included."""
    if not isinstance(graph, Neighborhood):
        raise TypeError(f"graph: got {type(graph).__name__}, expected a Neighborhood")
    if graph.num_src != graph.num_dst:
        raise ValueError(
            f"graph: {graph.num_src} sources and {graph.num_dst} targets, "
            "expected a graph whose nodes are both, not some of its rows"
        )
    return graph.num_dst


def kept_with_graph(
    compute: Callable[[Neighborhood], Found], *, weights: bool = False
) -> Callable[[Neighborhood], Found]:
    """The same function, which computes once for each graph object that stays unchanged.

    With `weights` for as long as these stay the same, too, if a change of them would be noticed.
    """
    kept: WeakKeyDictionary[Neighborhood, tuple[Hashable, Found]] = WeakKeyDictionary()

    @wraps(compute)
    def known(graph: Neighborhood) -> Found:
        ids = graph.check_unchanged()
        held = () if not weights or graph.weight is None else state_of(graph.weight)
        if held is None or (weights and ids is None):
            return compute(graph)
        found = kept.get(graph)
        if found is None or found[0] != held:
            found = kept[graph] = held, compute(graph)
        return found[1]

    return known


@torch.compiler.disable  # type: ignore[untyped-decorator]
@kept_with_graph
def rows_of(graph: Neighborhood) -> Rows:
    """(indptr, indices) in main memory, as the kernels read them (cached)."""
    check_pointers(graph.indptr, graph.num_edges)
    check_index("indices", graph.indices, graph.num_src)
    narrow = fit_int32(graph.num_edges, graph.num_src)
    dtype = torch.int32 if narrow else torch.int64  # searches are bound by memory: read half
    ids = (t.cpu().to(dtype, copy=True).contiguous() for t in (graph.indptr, graph.indices))
    indptr, indices = (t.numpy() for t in ids)
    return indptr, indices


def as_hops(name: str, value: int, low: int, high: int | None, unit: str = "hops") -> int:
    """A whole number in low..high; None is any number from `low` on."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name}: got {value!r}, expected a whole number of {unit}") from None
    if isinstance(value, bool) or number < low or (high is not None and number > high):
        wanted = f"at least {low}" if high is None else f"{unit} in {low}..{high}"
        raise ValueError(f"{name}: got {value!r}, expected {wanted}")
    return number


def as_ids(name: str, value: Tensor, num_nodes: int, *, rows: int | None = None) -> Tensor:
    """Node ids int64 [S], or [rows, P], contiguous in main memory."""
    ids = torch.as_tensor(value)
    if ids.shape == (0,) and rows is None:
        ids = ids.long()  # an empty list has no integer dtype of its own
    if ids.dtype not in (torch.int64, torch.int32):
        raise TypeError(f"{name}: dtype {ids.dtype}, expected int64 or int32 node ids")
    if ids.dim() != (1 if rows is None else 2) or (rows is not None and ids.size(0) != rows):
        wanted = f"[num_{name}]" if rows is None else f"[{rows}, num_{name}]"
        raise ValueError(f"{name}: shape {tuple(ids.shape)}, expected {wanted}")
    check_index(name, ids.flatten(), num_nodes)
    return ids.long().cpu().contiguous()


class Scratch:
    """Marks and queues of one search at a time, which tells its marks by their number."""

    def __init__(self, num_nodes: int) -> None:
        self.mark = np.zeros(num_nodes, np.int32)
        self.queue, self.behind = np.empty((2, num_nodes + 1), np.int64)
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


_free: WeakKeyDictionary[Neighborhood, deque[Scratch]] = WeakKeyDictionary()


@contextmanager
def scratch_of(graph: Neighborhood) -> Iterator[Scratch]:
    """Buffers of the graph that no other thread uses; after an error they are dropped."""
    free = _free.setdefault(graph, deque())
    try:
        found = free.pop()
    except IndexError:
        found = Scratch(graph.num_dst)
    yield found
    free.append(found)


@torch.compiler.disable  # type: ignore[untyped-decorator]
def for_chunks(work: Callable[[int, int], None], total: int, chunk: int) -> None:
    """Call ``work(start, stop)`` for consecutive ranges that cover 0..total-1; errors propagate."""
    starts = range(0, total, chunk)
    stops = [min(start + chunk, total) for start in starts]
    threads = min(torch.get_num_threads(), len(starts))
    if threads < 2:
        for start, stop in zip(starts, stops, strict=True):
            work(start, stop)
        return
    with ThreadPoolExecutor(threads) as pool:
        for _ in pool.map(work, starts, stops):  # raises the first error, and begins no more
            pass
