"""Row pointers from unordered edges, as torch operators that `torch.compile` can trace."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import is_fake

from graphtheory.graph.content import PerTensorCache, ascends, fit, is_plain, is_tracing, within

_TABLE = 4  # table entries that cost as much as sorting one id
_WAITS = torch.Tag.cudagraph_unsafe  # of operators that may read from a device
RANKED = 8_192  # edges and nodes up to which every edge of a GPU is compared with every other
_PINNED = 2**24  # bytes of a tensor that cost less to copy once more than to wait for


def check_index(name: str, index: Tensor, limit: int, kind: str = "node") -> None:
    """Raise unless every entry of `index` lies in 0..limit-1; the message names an offender."""
    if not isinstance(index, Tensor) or index.dtype not in (torch.int64, torch.int32):
        found = index.dtype if isinstance(index, Tensor) else type(index).__name__
        raise TypeError(f"{name}: got {found}, expected a tensor of int64 {kind} ids")
    if index.numel() == 0:
        return
    check_values(name, index)
    if index.is_cpu and is_plain(index):
        if within(index, limit):
            return
    elif int(index.min()) >= 0 and int(index.max()) < limit:
        return
    position = int(((index < 0) | (index >= limit)).nonzero()[0])
    side = " on that side" if kind == "node" else ""
    raise IndexError(
        f"{name}: entry {position} is {int(index[position])}, expected a {kind} id in "
        f"0..{limit - 1} (there are {limit} {kind}s{side})"
    )


def check_rows(indptr: Tensor, indices: Tensor, num_src: int) -> None:
    """Raise unless these are rows of sources in 0..num_src-1, in main memory; reads them once."""
    check_pointers(indptr, indices.size(0))
    check_index("indices", indices, num_src)


def check_pointers(
    indptr: Tensor, num_edges: int, name: str = "indptr", rows: int | None = None,
    of: str = "edges",
) -> None:  # fmt: skip
    """Raise unless the pointers of these rows run from 0 to the number of edges, never down."""
    of_rows = rows is None or len(indptr) == rows + 1
    if indptr.dim() == 1 and len(indptr) and of_rows and not indptr.is_floating_point():
        if indptr.is_cpu and is_plain(indptr):
            fits = ascends(indptr, num_edges)
        else:
            ends = (int(indptr[0]), int(indptr[-1]))
            fits = ends == (0, num_edges) and not bool((indptr.diff() < 0).any())
        if fits:
            return
    raise ValueError(
        f"{name}: {indptr.dtype} of shape {tuple(indptr.shape)}, expected row pointers that run "
        f"from 0 to {num_edges}, the number of {of}, without decreasing"
    )


def check_values(name: str, index: Tensor) -> None:
    """Raise unless the tensor holds values."""
    if index.is_meta:
        raise ValueError(f"{name}: got a tensor on meta, expected a device that holds its values")


def check_edge_index(edge_index: Tensor) -> None:
    """Raise unless `edge_index` is an integer tensor [2, E]."""
    if not isinstance(edge_index, Tensor):
        raise TypeError(f"edge_index: got {type(edge_index).__name__}, expected a tensor [2, E]")
    if edge_index.dtype not in (torch.int64, torch.int32):
        raise TypeError(f"edge_index: dtype {edge_index.dtype}, expected int64 or int32")
    if edge_index.dim() != 2 or edge_index.size(0) != 2:
        shape = tuple(edge_index.shape)
        hint = "; transpose it?" if edge_index.dim() == 2 and edge_index.size(1) == 2 else ""
        raise ValueError(f"edge_index: shape {shape}, expected [2, num_edges]{hint}")
    check_values("edge_index", edge_index)


def plain(tensor: Tensor) -> Tensor:
    """Without the subclass of a library; tensors without data, which torch.export traces, stay."""
    return tensor if type(tensor) is Tensor or is_fake(tensor) else tensor.as_subclass(Tensor)


def _stable_order(key: Tensor, num_keys: int) -> Tensor:
    """Positions of the keys in ascending order, equal ones as given."""
    if not key.is_cpu:
        return torch.sort(key, stable=True)[1]
    # numpy sorts 16-bit keys in linear time, on one thread. torch's sort synchronizes its threads
    # so often that it becomes many times slower on a busy machine.
    digits = key.numpy()
    order = np.argsort(digits.astype(np.uint16), kind="stable")
    for shift in range(16, max(num_keys - 1, 0).bit_length(), 16):
        higher = (digits >> shift).astype(np.uint16)
        order = order[np.argsort(higher[order], kind="stable")]
    return torch.from_numpy(order)


def row_places(indptr: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """(indptr [R + 1], positions [E']) of the entries of some rows, in the order of the rows."""
    starts = indptr[rows]
    counts = indptr[rows + 1] - starts
    ends = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    offset = torch.repeat_interleave(starts - ends[:-1], counts)
    return ends, torch.arange(len(offset), device=indptr.device) + offset


def distinct_ids(ids: Tensor, limit: int) -> tuple[Tensor, Tensor]:
    """(distinct ids, ascending [n]; the position of each id among them [E]), both int64."""
    if limit > _TABLE * len(ids):
        order = _stable_order(ids, limit)
        ascending = ids[order].long()
        fresh = torch.ones_like(ascending, dtype=torch.bool)
        fresh[1:] = ascending[1:] != ascending[:-1]
        place = torch.empty_like(order)
        place[order] = fresh.cumsum(0) - 1
        return ascending[fresh], place
    seen = torch.zeros(limit, dtype=torch.bool, device=ids.device)
    seen[ids] = True
    table = seen.cumsum(0) - 1
    return seen.nonzero().flatten(), table[ids]


def sort_by_key(key: Tensor, num_keys: int) -> tuple[Tensor, Tensor]:
    """(indptr [num_keys + 1], order [E]) that groups equal keys, each group in the given order."""
    eager = not torch.compiler.is_compiling()
    if not key.is_cpu or (eager and torch._C._functorch.is_functorch_wrapped_tensor(key)):
        ascending, order = torch.sort(key, stable=True)  # counting keys waits for the device
        first = torch.arange(num_keys + 1, dtype=key.dtype, device=key.device)
        return torch.searchsorted(ascending, first), order
    counts = torch.bincount(key, minlength=num_keys)
    indptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    return indptr, _stable_order(key, num_keys)


def _longest(indptr: Tensor) -> Tensor:
    return indptr.diff(prepend=indptr[:1]).max()


extent: PerTensorCache[list[int]] = PerTensorCache(
    lambda indptr: torch.stack([indptr[-1], _longest(indptr)]).tolist()
)
"""Edges of row pointers, and of their longest row; `tell` it where both are known."""


def rows_of_edges(
    edge_index: Tensor, num_src: int, num_dst: int, both: bool = False, loops: int | None = None
) -> tuple[list[Tensor], list[Tensor], int]:
    """Results of `csr_from_edges` and `csr_transpose`; self-loops before the last `loops` edges.

    A device is waited for once, for all that is checked, planned with and asked. The transposed
    structure is made only there, and only for `both`; without `loops` none are counted.
    """
    if edge_index.is_cpu or not is_plain(edge_index) or is_tracing():
        others = 0 if loops is None else int(_self_loops(edge_index)) - loops
        return list(csr_from_edges(edge_index, num_src, num_dst)), [], others
    edges = edge_index.size(1)
    if rank_edges is None or not 0 < edges <= RANKED >= max(num_src, num_dst):
        return sorted_rows(edge_index, num_src, num_dst, both, loops)
    rows, turned, outside, others = rank_edges(edge_index, num_src, num_dst, both, loops or 0)
    for side, limit in enumerate((num_src, num_dst) if outside else ()):
        check_index(f"edge_index[{side}]", edge_index[side], limit)  # which names an offender
    return rows, turned, others


rank_edges: Callable[..., tuple[list[Tensor], list[Tensor], int, int]] | None = None
"""What makes the rows of a GPU's few edges in one launch; the kernels set it."""


def _self_loops(edge_index: Tensor) -> Tensor:
    return (edge_index[0] == edge_index[1]).sum()


def sorted_rows(
    edge_index: Tensor, num_src: int, num_dst: int, both: bool, loops: int | None
) -> tuple[list[Tensor], list[Tensor], int]:
    """`rows_of_edges` by sorting, on a device."""
    indptr, perm = sort_by_key(edge_index[1].contiguous(), num_dst)
    indices, targets = (side.long()[perm] for side in edge_index)
    turned, ends = list[Tensor](), list[Tensor]()
    if both:
        t_indptr, order = sort_by_key(indices, num_src)
        turned = [t_indptr, targets[order], order]
    pointers = [indptr, *turned[:1]]
    if len(perm):
        ends = [end for side in edge_index for end in torch.aminmax(side)]
    asked = [] if loops is None else [_self_loops(edge_index)]
    found = torch.stack([*ends, *map(_longest, pointers), *asked]).tolist()
    for side, limit in enumerate((num_src, num_dst) if ends else ()):
        if found[2 * side] < 0 or found[2 * side + 1] >= limit:
            check_index(f"edge_index[{side}]", edge_index[side], limit)  # which names an offender
    for one, longest in zip(pointers, found[len(ends) :], strict=False):
        extent.tell(one, [len(perm), longest])
    return [indptr, indices, perm], turned, 0 if loops is None else found[-1] - loops


@torch.library.custom_op("graphtheory::csr_from_edges", mutates_args=(), tags=_WAITS)
def csr_from_edges(edge_index: Tensor, num_src: int, num_dst: int) -> tuple[Tensor, Tensor, Tensor]:
    """Sort edges by target: (indptr [num_dst + 1], indices [E], perm [E])."""
    if not edge_index.is_cpu:
        indptr, indices, perm = sorted_rows(edge_index, num_src, num_dst, False, None)[0]
        return indptr, indices, perm
    for side, limit in enumerate((num_src, num_dst)):
        row = edge_index[side]
        if row.numel() and (int(row.min()) < 0 or int(row.max()) >= limit):
            check_index(f"edge_index[{side}]", row, limit)  # which names an offender
    indptr, perm = sort_by_key(edge_index[1].contiguous(), num_dst)
    return indptr, edge_index[0].long()[perm], perm


@csr_from_edges.register_fake
def _(edge_index: Tensor, num_src: int, num_dst: int) -> tuple[Tensor, Tensor, Tensor]:
    sizes = (num_dst + 1, edge_index.size(1), edge_index.size(1))
    indptr, indices, perm = (edge_index.new_empty(n, dtype=torch.int64) for n in sizes)
    return indptr, indices, perm


def copied(indptr: Tensor, *more: Tensor | None) -> list[Tensor]:
    """Copies of rows for compiled code, which may reuse their memory."""
    copies = [t.clone() for t in (indptr, *more) if t is not None]
    if not indptr.is_cpu:
        extent.tell(copies[0], extent(indptr))
    return copies


_transposed: PerTensorCache[dict[int, tuple[Tensor, Tensor, Tensor]]] = PerTensorCache(
    lambda indices, indptr: {}
)


@torch.library.custom_op("graphtheory::csr_transpose", mutates_args=(), tags=_WAITS)
def csr_transpose(indptr: Tensor, indices: Tensor, num_src: int) -> tuple[Tensor, Tensor, Tensor]:
    """As `by_source`; of the same rows, which compiled code gives each time, it is kept."""
    known = _transposed(indices, indptr)
    if num_src not in known:
        known[num_src] = _by_source(indptr, indices, num_src)
    return tuple(copied(*known[num_src]))  # type: ignore[return-value]


def by_source(indptr: Tensor, indices: Tensor, num_src: int) -> tuple[Tensor, Tensor, Tensor]:
    """Sort a CSR by source: (indptr [num_src + 1]; targets, perm [E] of the dtype of `indices`)."""
    return (csr_transpose if is_tracing() else _by_source)(indptr, indices, num_src)


def _by_source(indptr: Tensor, indices: Tensor, num_src: int) -> tuple[Tensor, Tensor, Tensor]:
    if indptr.is_cpu and not fit(indptr, indices, num_src):
        check_rows(indptr, indices, num_src)  # which names what is wrong
    t_indptr, perm = sort_by_key(indices, num_src)
    rows = torch.arange(indptr.numel() - 1, dtype=indices.dtype, device=indptr.device)
    targets = torch.repeat_interleave(rows, indptr.diff(), output_size=len(indices))[perm]
    return t_indptr, targets, perm.to(indices.dtype)


@csr_transpose.register_fake
def _(indptr: Tensor, indices: Tensor, num_src: int) -> tuple[Tensor, Tensor, Tensor]:
    return indptr.new_empty(num_src + 1), torch.empty_like(indices), torch.empty_like(indices)


def csr_targets(indptr: Tensor, num_edges: int) -> Tensor:
    """Target of each edge, int64 [num_edges]."""
    if torch.compiler.is_compiling() and not torch.onnx.is_in_onnx_export():
        return _checked_targets(indptr, num_edges)
    if indptr.is_cpu and is_plain(indptr):  # torch itself writes beyond the end for wrong ones
        check_pointers(indptr, num_edges)
    rows = torch.arange(indptr.numel() - 1, device=indptr.device)
    return torch.repeat_interleave(rows, indptr.diff(), output_size=num_edges)


@torch.library.custom_op("graphtheory::csr_targets", mutates_args=())
def _checked_targets(indptr: Tensor, num_edges: int) -> Tensor:
    return csr_targets(indptr, num_edges)


@_checked_targets.register_fake
def _(indptr: Tensor, num_edges: int) -> Tensor:
    return indptr.new_empty(num_edges)


def sent(tensor: Tensor | None, device: torch.device, non_blocking: bool) -> Tensor | None:
    """A copy on a device; a small one goes to a GPU from pinned memory, so that nothing waits."""
    if tensor is None:
        return None
    own = device.type == "cuda" and tensor.is_cpu and is_plain(tensor) and not is_tracing()
    if own and not tensor.requires_grad and tensor.nbytes <= _PINNED:
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device, non_blocking=non_blocking)


def take_rows(value: Tensor, nodes: Tensor) -> Tensor:
    """Rows of a dense or sparse CSR tensor."""
    if value.layout != torch.sparse_csr:
        return value.index_select(0, nodes)  # half the time of value[nodes]
    indptr, at = row_places(value.crow_indices(), nodes)
    size = (len(nodes), value.size(1))
    parts = (indptr, value.col_indices()[at], value.values()[at])
    return torch.sparse_csr_tensor(*parts, size, check_invariants=True)
