"""Checks of the arguments of functions on graphs."""

from __future__ import annotations

import operator
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from graphtheory.graph import Neighborhood
from graphtheory.graph.check import fit_int32
from graphtheory.graph.csr import check_index, check_pointers


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


Rows = tuple[np.ndarray, np.ndarray]
_rows: WeakKeyDictionary[Neighborhood, Rows] = WeakKeyDictionary()


def rows_of(graph: Neighborhood) -> Rows:
    """(indptr, indices) in main memory, as the kernels read them (cached)."""
    graph.check_unchanged()
    found = _rows.get(graph)
    if found is None:
        check_pointers(graph.indptr, graph.num_edges)
        check_index("indices", graph.indices, graph.num_src)
        narrow = fit_int32(graph.num_edges, graph.num_src)
        dtype = torch.int32 if narrow else torch.int64  # searches are bound by memory: read half
        indptr, indices = (
            t.cpu().to(dtype, copy=True).contiguous() for t in (graph.indptr, graph.indices)
        )
        found = _rows[graph] = indptr.numpy(), indices.numpy()
    return found


def as_hops(name: str, value: int, low: int, high: int) -> int:
    """A whole number in low..high."""
    try:
        hops = operator.index(value)
    except TypeError:
        raise TypeError(f"{name}: got {value!r}, expected a whole number of hops") from None
    if isinstance(value, bool) or not low <= hops <= high:
        raise ValueError(f"{name}: got {value!r}, expected hops in {low}..{high}")
    return hops


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
