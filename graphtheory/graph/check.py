"""Checks of the parts of a neighborhood."""

from __future__ import annotations

from types import NoneType
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from graphtheory.graph.csr import check_index, check_values
from graphtheory.graph.sets import check_sets

if TYPE_CHECKING:
    from graphtheory.graph.neighborhood import Neighborhood


def check_edge_vector(name: str, value: Tensor, num_edges: int) -> None:
    """Raise unless `value` is a tensor with one value per edge, of the dtype of that attribute."""
    if not isinstance(value, Tensor):
        raise TypeError(f"{name}: got {type(value).__name__}, expected a tensor [{num_edges}]")
    if value.shape != (num_edges,):
        raise ValueError(
            f"{name}: shape {tuple(value.shape)}, expected one value per edge: [{num_edges}]"
        )
    if name == "distance" and value.dtype != torch.uint8:
        raise TypeError(f"distance: dtype {value.dtype}, expected uint8 hops")
    if name == "weight" and not value.is_floating_point():
        raise TypeError(f"weight: dtype {value.dtype}, expected a floating type")


def fit_int32(*counts: int) -> bool:
    """Whether ids of that many nodes or edges fit into 32 bits."""
    return max(counts) < 2**31


def check_int32(nb: Neighborhood) -> None:
    """Raise unless ids of nodes and edges fit into 32 bits."""
    counts = (nb.num_src, nb.num_dst, nb.num_edges)
    if not fit_int32(*counts):
        most = max(counts)
        raise ValueError(f"indices: {most} nodes or edges, expected fewer than 2^31 for int32")


def node_counts(
    edge_index: Tensor, num_nodes: int | None, num_src: int | None, num_dst: int | None
) -> tuple[int, int]:
    """(num_src, num_dst) of an edge list, from what the caller gave or from its largest id."""
    if num_nodes is not None and (num_src is not None or num_dst is not None):
        raise ValueError("num_nodes: give either num_nodes or num_src and num_dst, not both")
    if (num_src is None) != (num_dst is None):
        missing = "num_src" if num_src is None else "num_dst"
        raise ValueError(f"{missing}: not given, expected both sides of a bipartite graph")
    if num_nodes is None and num_src is None:
        num_nodes = int(edge_index.max()) + 1 if edge_index.numel() else 0
    for name, count in (("num_nodes", num_nodes), ("num_src", num_src), ("num_dst", num_dst)):
        known = isinstance(count, (int, torch.SymInt, NoneType)) or hasattr(count, "__index__")
        if not known:
            raise TypeError(f"{name}: got {count!r}, expected a whole number or None")
    num_src = num_nodes if num_src is None else num_src
    num_dst = num_nodes if num_dst is None else num_dst
    assert num_src is not None and num_dst is not None
    if num_src < 0 or num_dst < 0:
        raise ValueError(f"num_nodes: got {min(num_src, num_dst)}, expected 0 or more")
    return num_src, num_dst


def check_structure(nb: Neighborhood) -> None:
    """Raise unless the parts of a neighborhood fit together; reads them once."""
    ids = (torch.int64, torch.int32)
    for name, dtypes in (("indptr", ids[:1]), ("indices", ids)):
        tensor = getattr(nb, name)
        if tensor.dtype not in dtypes or tensor.dim() != 1:
            known = " or ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
            found = f"{tensor.dtype} of shape {tuple(tensor.shape)}"
            raise TypeError(f"{name}: {found}, expected {known} of one axis")
        check_values(name, tensor)
    if nb.indices.dtype == torch.int32:
        check_int32(nb)
    if nb.num_dst < 0:
        raise ValueError("indptr: empty, expected num_dst + 1 entries, the first 0")
    if not hasattr(nb.num_src, "__index__") or nb.num_src < 0:
        raise ValueError(f"num_src: got {nb.num_src!r}, expected a whole number of 0 or more")
    ends = (int(nb.indptr[0]), int(nb.indptr[-1]))
    if ends != (0, nb.num_edges) or bool((nb.indptr.diff() < 0).any()):
        raise ValueError(
            f"indptr: runs from {ends[0]} to {ends[1]}, "
            f"expected 0 to {nb.num_edges} without decreasing"
        )
    check_index("indices", nb.indices, nb.num_src)
    for name in ("weight", "distance"):
        if getattr(nb, name) is not None:
            check_edge_vector(name, getattr(nb, name), nb.num_edges)
    if nb.perm is not None:
        if not isinstance(nb.perm, Tensor) or nb.perm.dtype not in ids:
            kind = nb.perm.dtype if isinstance(nb.perm, Tensor) else type(nb.perm).__name__
            raise TypeError(f"perm: got {kind}, expected int64 or int32 places of edges")
        if nb.perm.shape != nb.indices.shape:
            raise ValueError(f"perm: shape {tuple(nb.perm.shape)}, expected [{nb.num_edges}]")
        if nb.num_edges and (least := int(nb.perm.min())) < 0:
            raise IndexError(
                f"perm: smallest entry is {least}, expected the places of edges, 0 or more"
            )
    if nb.sets is not None:
        check_sets(nb.sets, nb.indptr, nb.indices, nb.num_src)
