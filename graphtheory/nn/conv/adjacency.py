"""Any `edge_index` that PyG layers accept as a `Neighborhood`, and results back in its order."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from weakref import ref

import torch
from torch import Tensor
from torch_geometric import EdgeIndex
from torch_geometric.typing import SparseTensor
from torch_geometric.utils import coalesce, is_torch_sparse_tensor
from torch_geometric.utils.loop import compute_loop_attr
from torch_geometric.utils.sparse import set_sparse_value, to_torch_sparse_tensor

from graphtheory.graph import Neighborhood, neighborhood_from
from graphtheory.graph.content import is_tracing, leave_inference_mode, refuse_traces, state_of
from graphtheory.graph.csr import check_edge_index, copied, plain, rows_of_edges
from graphtheory.graph.interop import merged

Sizes = tuple[int | None, int | None]
_NARROW = (torch.int16, torch.int8, torch.uint8)


@dataclass(frozen=True, eq=False)
class Adjacency:
    """A neighborhood (CSR), and the permutation between its order and the given order of edges.

    The given order is that of the columns of an edge list, the rows of a `Neighborhood` or of a CSR
    matrix, the columns of a CSC matrix; appended self-loops come last, sorted by node.
    """

    neighborhood: Neighborhood
    order: Tensor | None  # edge e in CSR order is given edge order[e]; None is the identity
    edges: Tensor | None = None  # [2, E] in the given order; None without appended self-loops
    loops: int = 0  # number of appended self-loops
    replaced: Tensor | None = None  # Bool [E] in CSR order: given self-loops that these replace
    _made: dict[Any, Any] = field(default_factory=dict)

    @property
    def num_given(self) -> int:
        """Number of edges without the appended self-loops."""
        return self.neighborhood.num_edges - self.loops

    def one_per_edge(self, weight: Tensor) -> Tensor:
        """Weights [E] of the given edges; a single one is that of all, as in PyG's product."""
        of_all = weight.dim() == 0 or (weight.numel() == 1 and not torch.compiler.is_exporting())
        return weight.flatten().expand(self.num_given) if of_all else weight.flatten()

    def to_csr_order(self, per_edge: Tensor) -> Tensor:
        """Values in CSR order of those in the given order; a ValueError unless there are E."""
        if per_edge.size(0) != self.neighborhood.num_edges:
            got, edges = tuple(per_edge.shape), self.neighborhood.num_edges
            raise ValueError(f"per_edge: shape {got}, expected one row per edge [{edges}, ...]")
        return per_edge if self.order is None else per_edge.index_select(0, self.order)

    def to_edge_order(self, per_edge: Tensor) -> Tensor:
        """Values in the given order of those in CSR order."""
        if self.order is None:
            return per_edge
        return torch.zeros_like(per_edge).index_copy(0, self.order.long(), per_edge)

    def targets(self) -> Tensor:
        """Target node of each edge in CSR order, int64 [E]."""
        return outside_inference_mode(self.neighborhood.targets)

    def cached(self, key: Any, make: Callable[[], Any]) -> Any:
        """The result of `make`, called once per key for this object."""
        if key not in self._made:
            self._made[key] = outside_inference_mode(make)
        return self._made[key]

    def edges_as_sources(self, *, given_order: bool = False) -> Neighborhood:
        """The neighborhood whose source nodes are the edges, in CSR order or in the given one."""
        return self.cached(("edges", given_order), lambda: self._edges_as_sources(given_order))

    def _edges_as_sources(self, given_order: bool) -> Neighborhood:
        nb = self.neighborhood
        ids = torch.arange(nb.num_edges + 1, device=nb.device)
        order, by_edge = ids[:-1], (self.targets(), ids[:-1])
        if given_order and self.order is not None:
            order = self.order
            by_edge = self.to_edge_order(by_edge[0]), self.to_edge_order(by_edge[1])
        out = Neighborhood(nb.indptr, order, nb.num_edges, validate=False)
        out._adopt_transpose(ids, *by_edge)
        return out._seal(nb)

    def with_loops(self, features: Tensor, fill_value: float | Tensor | str | None) -> Tensor:
        """Features [E, D] of the given edges, then of the self-loops, filled in as PyG does."""
        if self.loops == 0 or self.edges is None:
            return features
        rows, (src, dst) = self.loops, self.edges[:, : self.num_given]
        if isinstance(fill_value, str):  # an extra row collects the edges that are not reduced
            dst = torch.where((src == dst) | (dst >= self.loops), self.loops, dst)
            rows += 1
        ends = torch.stack([src, dst]).long()  # gather by narrow ids has a wrong gradient
        fill = compute_loop_attr(ends, features, rows, False, fill_value)
        return torch.cat([features, fill[: self.loops]])

    def with_weights(self, given: Any, weights: Tensor, *, stored: bool = True) -> Any:
        """What PyG returns for weights [E, heads] in CSR order; `stored`: as a matrix's values."""
        weights = self.to_edge_order(weights)
        if self.edges is None:
            return with_given_edges(given, weights, stored)
        kept, nb = self.edges[0] != self.edges[1], self.neighborhood
        kept[self.num_given :] = True
        edges, weights, size = self.edges[:, kept], weights[kept], (nb.num_dst, nb.num_src)
        if isinstance(given, SparseTensor):
            return SparseTensor(row=edges[1], col=edges[0], value=weights, sparse_sizes=size)
        if isinstance(given, EdgeIndex):
            return EdgeIndex(edges, sparse_size=size[::-1]), weights
        if is_torch_sparse_tensor(given):
            by_row = given.layout is not torch.sparse_csc
            ordered = coalesce(edges.flip(0), weights, max(size), sort_by_row=by_row)
            adj = to_torch_sparse_tensor(*ordered, size, is_coalesced=True, layout=given.layout)
            return adj, ordered[1]  # torch cannot add gradients of a matrix and of its `values()`
        return edges.long(), weights  # as beside PyG's self-loops


def adjacency_of(
    given: Any,
    num_src: int,
    num_dst: int | None,
    *,
    add_self_loops: bool = False,
    flow: str = "source_to_target",
) -> Adjacency:
    """The neighborhood of what a PyG layer accepts as `edge_index`, kept while that holds the same.

    Self-loops are appended for the first min(num_src, num_dst) nodes, and given ones marked.
    """
    refuse_traces()
    reverse = flow == "target_to_source"
    if reverse and not _is_edge_list(given):
        raise ValueError(
            f"edge_index: a {type(given).__name__} has fixed target nodes; "
            "flow='target_to_source' requires an edge list"
        )
    simple = type(given) is Tensor and given.layout is torch.strided
    if not simple:
        num_src, num_dst = _sizes(given, num_src, num_dst)
    elif num_dst is None:
        num_dst = num_src
    if isinstance(given, Neighborhood) and not add_self_loops:
        return Adjacency(given, None)
    key = (num_src, num_dst, add_self_loops, reverse)
    cache = cached_for(given)
    if cache is None:
        return _build(given, simple, *key)
    if key not in cache:
        with leave_inference_mode():
            cache[key] = _build(given, simple, *key)
    return cache[key]


def edge_list(given: Any) -> Tensor:
    """[2, E] source and target nodes in the given order of edges."""
    if _is_edge_list(given):
        check_edge_index(given)
        return given.as_tensor() if isinstance(given, EdgeIndex) else given
    nb = given if isinstance(given, Neighborhood) else _neighborhood(given)
    if isinstance(given, Neighborhood) or nb.perm is None:
        return nb.edge_index()
    return torch.zeros(2, nb.num_edges, dtype=torch.int64, device=nb.device).index_copy(
        1, nb.perm, nb.edge_index()
    )


def stored_values(given: Any) -> Tensor | None:
    """Values [E] or [E, D] of a sparse matrix in the given order; None for any other graph."""
    if isinstance(given, SparseTensor):
        return given.storage.value()
    if not is_torch_sparse_tensor(given):
        return None
    return _merged(given).values() if given.layout is torch.sparse_coo else given.values()


def _merged(given: Tensor) -> Tensor:
    """`merged`, which looks at a matrix once in its present state: that waits for a device."""
    known = cached_for(given) if given.is_coalesced() else None
    if known is not None and known.get("merged"):
        return given
    found = merged(given)
    if known is not None:
        known["merged"] = found is given
    return found


def _build(
    given: Any, simple: bool, num_src: int, num_dst: int, add_self_loops: bool, reverse: bool
) -> Adjacency:
    if not (add_self_loops or reverse or simple):
        nb = _neighborhood(given, size=(num_src, num_dst))
        if nb.weight is not None:  # the cache must keep no autograd graph alive
            nb = nb.replace(weight=None)
        return Adjacency(nb, nb.perm)
    if simple:
        given = given.long() if given.dtype in _NARROW else given  # as where PyG adds self-loops
        check_edge_index(given)
    edges = given if simple else plain(edge_list(given))
    loops = min(num_src, num_dst) if add_self_loops else 0
    if add_self_loops:
        ids = torch.arange(loops, dtype=edges.dtype, device=edges.device)
        edges = torch.cat([edges, torch.stack([ids, ids])], 1)
    compiling = torch.compiler.is_compiling()
    others = None
    if compiling and simple and not torch.compiler.is_exporting():
        indptr, indices, order, *turned = _sorted(given, num_src, num_dst, loops, reverse)
    else:
        both, ends = torch.is_grad_enabled(), edges.flip(0) if reverse else edges
        counted = loops if add_self_loops and not compiling else None
        rows, turned, others = rows_of_edges(ends, num_src, num_dst, both, counted)
        indptr, indices, order = rows
    nb = Neighborhood(indptr, indices, num_src, perm=order, validate=False)
    if turned:
        nb._adopt_transpose(*turned)
    if isinstance(given, Neighborhood) and given.indices.dtype == torch.int32:
        nb = nb.to_int32()
        order = order.int()
    nb._seal()
    if not add_self_loops:
        return Adjacency(nb, order)
    if others == 0 and not compiling:  # which these replace
        return Adjacency(nb, order, edges, loops)
    replaced = (nb.indices == nb.targets()) & (order < edges.size(1) - loops)
    return Adjacency(nb, order, edges, loops, replaced)


@torch.library.custom_op("graphtheory::adjacency", mutates_args=(), tags=torch.Tag.cudagraph_unsafe)
def _sorted(
    edge_index: Tensor, num_src: int, num_dst: int, loops: int, reverse: bool
) -> list[Tensor]:
    """What compiled code looks up in each call in place of sorting."""
    flow = "target_to_source" if reverse else "source_to_target"
    adj = adjacency_of(edge_index, num_src, num_dst, add_self_loops=loops > 0, flow=flow)
    nb, t = adj.neighborhood, adj.neighborhood._turned()
    return copied(nb.indptr, nb.indices, nb.perm) + copied(t.indptr, t.indices, t.perm)


@_sorted.register_fake
def _(edge_index: Tensor, num_src: int, num_dst: int, loops: int, reverse: bool) -> list[Tensor]:
    edges = edge_index.size(1) + loops
    sizes = (num_dst + 1, edges, edges, num_src + 1, edges, edges)
    return [edge_index.new_empty(n, dtype=torch.int64) for n in sizes]


def _neighborhood(given: Any, size: Sizes | None = None) -> Neighborhood:
    try:
        return neighborhood_from(given, size=size)
    except TypeError as error:
        message = str(error).removeprefix("obj: ").removeprefix("edge_index: ")
        raise TypeError(f"edge_index: {message}") from error


def _is_edge_list(given: Any) -> bool:
    return isinstance(given, Tensor) and not is_torch_sparse_tensor(given)


def _sizes(given: Any, num_src: int, num_dst: int | None) -> tuple[int, int]:
    known: Sizes = (None, None)
    if isinstance(given, Neighborhood):
        known = (given.num_src, given.num_dst)
    elif isinstance(given, EdgeIndex):
        known = given.sparse_size()
    elif isinstance(given, SparseTensor) or is_torch_sparse_tensor(given):
        known = (given.size(1), given.size(0))
    for side, have, want in zip(("sources", "targets"), known, (num_src, num_dst), strict=True):
        if None not in (have, want) and have != want:
            raise ValueError(f"edge_index: has {have} {side}, expected {want} as x has rows")
    if num_dst is None:
        num_dst = num_src if known[1] is None else known[1]
    return num_src, num_dst


# id of a tensor or a Neighborhood -> (reference to it, state, {key: what was made})
_CACHE: dict[int, tuple[Any, Any, dict[Any, Any]]] = {}


def outside_inference_mode(make: Callable[[], Any]) -> Any:
    """The result of `make`, usable in training even if called in inference mode or torch.func."""
    with leave_inference_mode():
        return make()


def cached_for(given: Any) -> dict[Any, Any] | None:
    """What was made of `given` in its present state; None if changes could not be detected."""
    if is_tracing():  # which would take what is known of these edges for that of any
        return None
    key = given.storage.col() if isinstance(given, SparseTensor) else given
    is_edge_list = type(given) is Tensor and given.layout is torch.strided
    state = state_of(given) if is_edge_list else _state(given)
    if state is None:
        return None
    place = id(key)  # which is another's only when this one is gone
    entry = _CACHE.get(place)
    if entry is None or entry[0]() is not key or entry[1] != state:
        held = ref(key, partial(_CACHE.pop, place))
        entry = _CACHE[place] = (held, state, {})
    return entry[2]


def _state(given: Any) -> Any:
    """What a graph's edges are now; None if changes of it could not be noticed."""
    if isinstance(given, Neighborhood):
        return given.check_unchanged()
    if isinstance(given, SparseTensor):
        return state_of(given.storage.row(), given.storage.col())
    if type(given) is EdgeIndex:
        return state_of(given.as_tensor())
    if type(given) is Tensor and is_torch_sparse_tensor(given):
        state = state_of(*_ids_of(given))
        once = given.layout is not torch.sparse_coo or given.is_coalesced()
        return None if state is None else (given.layout, once, state)
    return None


def _ids_of(matrix: Tensor) -> tuple[Tensor, ...]:
    if matrix.layout is torch.sparse_coo:
        return (matrix._indices(),)
    if matrix.layout is torch.sparse_csr:
        return matrix.crow_indices(), matrix.col_indices()
    return matrix.ccol_indices(), matrix.row_indices()


def with_given_edges(given: Any, weights: Tensor, stored: bool) -> Any:
    """`Adjacency.with_weights` of weights [E, heads] in the given order, without self-loops."""
    if isinstance(given, SparseTensor):
        return given.set_value(weights, layout="coo")
    if isinstance(given, Neighborhood):
        return given.edge_index(), weights
    if is_torch_sparse_tensor(given) and stored:
        adj = _merged(given) if given.layout is torch.sparse_coo else given
        return set_sparse_value(adj, weights), weights
    return given, weights
