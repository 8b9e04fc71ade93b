"""What a PyG layer is given as `edge_index`, of any kind, as rows of senders and back again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary
from torch_geometric import EdgeIndex
from torch_geometric.typing import SparseTensor
from torch_geometric.utils import (
    is_torch_sparse_tensor,
    to_torch_coo_tensor,
    to_torch_csc_tensor,
    to_torch_csr_tensor,
)
from torch_geometric.utils.loop import compute_loop_attr
from torch_geometric.utils.sparse import set_sparse_value

from graphtheory.graph import Neighborhood, neighborhood_from
from graphtheory.graph.csr import check_edge_index

Sizes = tuple[int | None, int | None]


@dataclass(frozen=True, eq=False)
class Adjacency:
    """Rows of senders, with the way between their order and the given order of edges.

    The given order is that of the columns of an edge list, the rows of a `Neighborhood` or of a CSR
    matrix, the columns of a CSC matrix; appended self-loops come last, node by node.

    Attributes:
        neighborhood: The rows.
        order: Edge e of the rows is edge ``order[e]`` of the given order; None is the identity.
        edges: [2, E] senders and receivers in the given order, where self-loops were appended.
        loops: Number of self-loops appended.
        replaced: Bool [E] in the order of the rows, True for a given self-loop, which an appended
            one stands in for; None when there is none.
    """

    neighborhood: Neighborhood
    order: Tensor | None
    edges: Tensor | None = None
    loops: int = 0
    replaced: Tensor | None = None
    _made: dict[Any, Any] = field(default_factory=dict)

    @property
    def num_given(self) -> int:
        """Edges without the appended self-loops."""
        return self.neighborhood.num_edges - self.loops

    def to_rows(self, per_edge: Tensor) -> Tensor:
        """From the given order to that of the rows."""
        return per_edge if self.order is None else per_edge.index_select(0, self.order)

    def to_given(self, per_edge: Tensor) -> Tensor:
        """From the order of the rows to the given one."""
        if self.order is None:
            return per_edge
        return torch.zeros_like(per_edge).index_copy(0, self.order.long(), per_edge)

    def receivers(self) -> Tensor:
        """Receiver of each edge of the rows, int64 [E]."""
        return to_keep(self.neighborhood.receivers)

    def once(self, key: Any, make: Callable[[], Any]) -> Any:
        """What `make` returns, made once for this object."""
        if key not in self._made:
            self._made[key] = to_keep(make)
        return self._made[key]

    def edges_as_senders(self) -> Neighborhood:
        """The neighborhood in which every edge is a sender: receivers sum over edges."""
        return self.once("edges", self._edges_as_senders)

    def _edges_as_senders(self) -> Neighborhood:
        nb = self.neighborhood
        ids = torch.arange(nb.num_edges + 1, device=nb.device)
        out = Neighborhood(nb.indptr, ids[:-1], nb.num_edges, validate=False)
        out._adopt_transpose(ids, self.receivers(), ids[:-1])
        return out

    def with_loops(self, features: Tensor, fill_value: float | Tensor | str | None) -> Tensor:
        """Features [E, D] of the given edges, then of the self-loops as PyG fills them."""
        if self.loops == 0 or self.edges is None:
            return features
        src, dst = self.edges[:, : self.num_given]
        rows = self.loops
        if isinstance(fill_value, str):  # one row more, for edges that do not count
            dst = torch.where((src == dst) | (dst >= self.loops), self.loops, dst)
            rows += 1
        fill = compute_loop_attr(torch.stack([src, dst]), features, rows, False, fill_value)
        return torch.cat([features, fill[: self.loops]])

    def with_weights(self, given: Any, weights: Tensor, *, stored: bool = True) -> Any:
        """What PyG returns for `return_attention_weights`: the edges that count, and their weights.

        Args:
            given: What `read` was given.
            weights: [E, heads] in the order of the rows.
            stored: Store the weights in a torch sparse matrix, too; else it comes back as given.
        """
        weights = self.to_given(weights)
        if self.edges is None:
            return _beside(given, weights, stored)
        stays = self.edges[0] != self.edges[1]
        stays[self.num_given :] = True
        return _like(given, self.edges[:, stays], weights[stays], self.neighborhood)


def read(
    given: Any,
    num_src: int,
    num_dst: int | None,
    *,
    add_self_loops: bool = False,
    flow: str = "source_to_target",
) -> Adjacency:
    """Rows of whatever a PyG layer accepts as `edge_index`.

    The rows of a tensor that comes again, unchanged, are found, not sorted, again: its identity and
    version are compared, so in-place operations of torch show, writes through numpy do not.

    Args:
        given: Edge list, `EdgeIndex`, torch sparse matrix, `SparseTensor` or `Neighborhood`.
        num_src: Senders, as x has rows.
        num_dst: Receivers; None takes what `given` knows, else `num_src`.
        add_self_loops: Append one to each of the first min(num_src, num_dst) nodes; given ones are
            marked as replaced.
        flow: PyG's; "target_to_source" exchanges the rows of an edge list.

    Raises:
        TypeError: Not an adjacency, or not integer.
        ValueError: Sizes that differ from those of x; a flow that `given` does not allow.
        IndexError: A node id out of range.
    """
    reverse = flow == "target_to_source"
    if reverse and not _is_edge_list(given):
        raise ValueError(
            f"edge_index: a {type(given).__name__} says who receives; "
            "flow='target_to_source' takes edge lists only"
        )
    num_src, num_dst = _sizes(given, num_src, num_dst)
    if isinstance(given, Neighborhood) and not add_self_loops:
        return Adjacency(given, None)
    kind = (num_src, num_dst, add_self_loops, reverse)
    found = _found(given)
    if found is None:
        return _build(given, *kind)
    if kind not in found:
        found[kind] = to_keep(lambda: _build(given, *kind))
    return found[kind]


def edge_list(given: Any) -> Tensor:
    """[2, E] senders and receivers in the given order of edges."""
    if _is_edge_list(given):
        check_edge_index(given)
        return given if type(given) is Tensor else given.as_tensor()
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
    return given.coalesce().values() if given.layout is torch.sparse_coo else given.values()


def _build(
    given: Any, num_src: int, num_dst: int, add_self_loops: bool, reverse: bool
) -> Adjacency:
    if not add_self_loops and not reverse:
        nb = _neighborhood(given, size=(num_src, num_dst))
        # Of its own: whoever finds these rows again holds neither `given` nor a graph of gradients.
        indptr, indices = nb.indptr.detach(), nb.indices.detach()
        own = Neighborhood(indptr, indices, num_src, perm=nb.perm, validate=False)
        return Adjacency(own, nb.perm)
    edges = edge_list(given)
    loops = min(num_src, num_dst) if add_self_loops else 0
    ids = torch.arange(loops, dtype=edges.dtype, device=edges.device)
    edges = torch.cat([edges, torch.stack([ids, ids])], 1)
    nb = Neighborhood.from_edge_index(
        edges.flip(0) if reverse else edges, num_src=num_src, num_dst=num_dst
    )
    if isinstance(given, Neighborhood) and given.indices.dtype == torch.int32:
        nb = nb.to_int32()
    order = nb.perm
    assert order is not None
    if not add_self_loops:
        return Adjacency(nb, order)
    replaced = (nb.indices == nb.receivers()) & (order < edges.size(1) - loops)
    if not torch.compiler.is_compiling() and not bool(replaced.any()):
        return Adjacency(nb, order, edges, loops)
    return Adjacency(nb, order, edges, loops, replaced)


def _neighborhood(given: Any, size: Sizes | None = None) -> Neighborhood:
    try:
        return neighborhood_from(given, size=size)
    except TypeError as error:
        told = str(error).removeprefix("obj: ").removeprefix("edge_index: ")
        raise TypeError(f"edge_index: {told}") from error


def _is_edge_list(given: Any) -> bool:
    return isinstance(given, Tensor) and not is_torch_sparse_tensor(given)


def _sizes(given: Any, num_src: int, num_dst: int | None) -> tuple[int, int]:
    """Senders and receivers, where what `given` knows agrees with x."""
    known: Sizes = (None, None)
    if isinstance(given, Neighborhood):
        known = (given.num_src, given.num_dst)
    elif isinstance(given, EdgeIndex):
        known = given.sparse_size()
    elif isinstance(given, SparseTensor) or is_torch_sparse_tensor(given):
        known = (given.size(1), given.size(0))
    for side, have, want in zip(("senders", "receivers"), known, (num_src, num_dst), strict=True):
        if None not in (have, want) and have != want:
            raise ValueError(f"edge_index: has {have} {side}, expected {want} as x has rows")
    if num_dst is None:
        num_dst = num_src if known[1] is None else known[1]
    return num_src, num_dst


_FOUND = WeakIdKeyDictionary()  # tensor or Neighborhood -> (stamp, {kind: Adjacency})


def to_keep(make: Callable[[], Any]) -> Any:
    """What `make` returns, of use in training even when it is made in inference mode."""
    if torch.compiler.is_compiling():
        return make()
    with torch.inference_mode(False):
        return make()


def _found(given: Any) -> dict[Any, Adjacency] | None:
    """Rows made for `given` as it is now; None where a change could not be told."""
    if torch.compiler.is_compiling():
        return None
    key = given.storage.col() if isinstance(given, SparseTensor) else given
    if isinstance(key, Neighborhood):
        stamp = None
    elif type(key) in (Tensor, EdgeIndex) and not key.is_inference():
        now = key.as_tensor() if type(key) is EdgeIndex else key
        strided = now.layout is torch.strided
        place = (now.data_ptr(), now.stride()) if strided else now._nnz()
        stamp = (now._version, tuple(now.shape), place)
    else:
        return None
    seen = _FOUND.get(key)
    if seen is None or seen[0] != stamp:
        seen = _FOUND[key] = (stamp, {})
    return seen[1]


def _beside(given: Any, weights: Tensor, stored: bool) -> Any:
    if isinstance(given, SparseTensor):
        return given.set_value(weights, layout="coo")
    if isinstance(given, Neighborhood):
        return given.edge_index(), weights
    if is_torch_sparse_tensor(given) and stored:
        adj = given.coalesce() if given.layout is torch.sparse_coo else given
        return set_sparse_value(adj, weights), weights
    return given, weights


_TO_SPARSE = {
    torch.sparse_coo: to_torch_coo_tensor,
    torch.sparse_csr: to_torch_csr_tensor,
    torch.sparse_csc: to_torch_csc_tensor,
}


def _like(given: Any, edges: Tensor, weights: Tensor, nb: Neighborhood) -> Any:
    """Edges and weights as PyG returns them for `given`."""
    size = (nb.num_dst, nb.num_src)
    if isinstance(given, SparseTensor):
        return SparseTensor(row=edges[1], col=edges[0], value=weights, sparse_sizes=size)
    if isinstance(given, EdgeIndex):
        return EdgeIndex(edges, sparse_size=(nb.num_src, nb.num_dst)), weights
    if is_torch_sparse_tensor(given):
        adj = _TO_SPARSE[given.layout](edges.flip(0), weights, size)
        return adj, adj.values()
    return edges, weights
