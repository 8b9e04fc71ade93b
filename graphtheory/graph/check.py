"""What the parts of a neighbourhood must be."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from graphtheory.graph.csr import check_index
from graphtheory.graph.sets import Sets, check_sets

if TYPE_CHECKING:
    from graphtheory.graph.neighborhood import Neighborhood


def check_edge_vector(name: str, value: Tensor, num_edges: int) -> None:
    """Raise unless `value` has one entry an edge, of the type of that attribute."""
    if not isinstance(value, Tensor):
        raise TypeError(f"{name}: got {type(value).__name__}, expected a tensor [{num_edges}]")
    if value.shape != (num_edges,):
        raise ValueError(
            f"{name}: shape {tuple(value.shape)}, expected one entry an edge: [{num_edges}]"
        )
    if name == "distance" and value.dtype != torch.uint8:
        raise TypeError(f"distance: dtype {value.dtype}, expected uint8 hops")
    if name == "weight" and not value.is_floating_point():
        raise TypeError(f"weight: dtype {value.dtype}, expected a floating type")


def fit_int32(*counts: int) -> bool:
    """Whether the ids of so many nodes or edges have 32 bits."""
    return max(counts) < 2**31


def check_int32(nb: Neighborhood) -> None:
    """Raise unless ids of nodes and edges fit into 32 bits."""
    counts = (nb.num_src, nb.num_dst, nb.num_edges)
    if not fit_int32(*counts):
        most = max(counts)
        raise ValueError(f"indices: {most} nodes or edges, expected fewer than 2^31 for int32")


def check_structure(nb: Neighborhood) -> None:
    """Raise unless the parts of a neighbourhood fit together; reads them once."""
    ids = (torch.int64, torch.int32)
    for name, dtypes in (("indptr", ids[:1]), ("indices", ids)):
        tensor = getattr(nb, name)
        if tensor.dtype not in dtypes or tensor.dim() != 1:
            known = " or ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
            found = f"{tensor.dtype} of shape {tuple(tensor.shape)}"
            raise TypeError(f"{name}: {found}, expected {known} of one axis")
    if nb.indices.dtype == torch.int32:
        check_int32(nb)
    if nb.num_dst < 0:
        raise ValueError("indptr: empty, expected num_dst + 1 entries, the first 0")
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
    if nb.blocks is not None and nb.sets is not None:
        raise ValueError(f"sets: given beside blocks {nb.blocks}, expected one of both")
    if nb.blocks is not None:
        count, dst, src = nb.blocks
        equal = Sets((dst,) * count, (src,) * count)
        check_sets("blocks", nb.blocks, equal, nb.indptr, nb.indices, nb.num_src)
    if nb.sets is not None:
        if not isinstance(nb.sets, Sets):
            raise TypeError(f"sets: got {type(nb.sets).__name__}, expected graph.Sets")
        check_sets("sets", nb.sets, nb.sets, nb.indptr, nb.indices, nb.num_src)
