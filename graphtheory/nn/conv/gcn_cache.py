"""The normalized edges that `GCNConv(cached=True)` keeps, also in the form of PyG's layer."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch_geometric.typing import SparseTensor
from torch_geometric.utils import is_torch_sparse_tensor

from graphtheory.graph import Neighborhood
from graphtheory.graph.interop import neighborhood_from, to_sparse_tensor
from graphtheory.nn.conv.adjacency import TO_SPARSE, adjacency_of, outside_inference_mode
from graphtheory.nn.conv.on_core import OnCore

Rows = tuple[Neighborhood, Tensor | None]  # and the weight of each edge in its order


class Kept(NamedTuple):
    """The edges of a call; at least one of two forms.

    Attributes:
        rows: For `ops`; None until a call needs them.
        given: As PyG's layer keeps them, if they came from PyG; otherwise computed when asked for.
        loops: Number of self-loops, the last edges of the list that the rows were read from.
        layout: Of the sparse matrix that the rows were read from, if any.
    """

    rows: Rows | None
    given: Any = None
    loops: int = 0
    layout: torch.layout | None = None


class KeepsEdges(OnCore):
    """Mixin of a layer with PyG's attributes `_cached_edge_index` and `_cached_adj_t`.

    As in PyG the first is for edge lists and torch's sparse matrices (and a `Neighborhood`), the
    second for a `SparseTensor`; each is None until such a graph was seen, and None clears it.
    """

    _kept_edges: Kept | None = None
    _kept_matrix: Kept | None = None

    @property
    def _cached_edge_index(self) -> tuple[Tensor, Tensor | None] | None:
        kept = self._kept_edges
        if kept is None or kept.given is not None:
            return None if kept is None else kept.given
        assert kept.rows is not None
        return outside_inference_mode(lambda: _as_pyg(kept, self.flow))

    @_cached_edge_index.setter
    def _cached_edge_index(self, given: tuple[Tensor, Tensor | None] | None) -> None:
        self.__dict__["_cached_edge_index"] = None  # what PyG's layer has before its first call
        self._set("_kept_edges", None if given is None else Kept(None, given))

    @property
    def _cached_adj_t(self) -> Any:
        kept = self._kept_matrix
        if kept is None or kept.given is not None:
            return None if kept is None else kept.given
        assert kept.rows is not None
        nb, weight = kept.rows
        return to_sparse_tensor(nb if weight is None else nb.replace(weight=weight))

    @_cached_adj_t.setter
    def _cached_adj_t(self, given: Any) -> None:
        self.__dict__["_cached_adj_t"] = None
        self._set("_kept_matrix", None if given is None else Kept(None, given))

    def __prepare_scriptable__(self) -> Any:
        twin: Any = super().__prepare_scriptable__()
        twin._cached_edge_index, twin._cached_adj_t = self._cached_edge_index, self._cached_adj_t
        return twin

    def _set(self, name: str, kept: Kept | None) -> None:
        self.__dict__.pop(name, None)
        if kept is not None:
            setattr(self, name, kept)

    def _kept_rows(self, given: Any, num_nodes: int) -> Rows | None:
        """The rows that are kept for graphs of the kind of `given`."""
        name = "_kept_matrix" if isinstance(given, SparseTensor) else "_kept_edges"
        kept: Kept | None = getattr(self, name)
        if kept is None or kept.rows is not None:
            return None if kept is None else kept.rows
        rows = outside_inference_mode(lambda: _rows(kept.given, num_nodes, self.flow))
        setattr(self, name, kept._replace(rows=rows))
        return rows

    def _keep(self, given: Any, rows: Rows, loops: int) -> None:
        """Keep the rows of a graph for all later ones of its kind."""
        name = "_kept_matrix" if isinstance(given, SparseTensor) else "_kept_edges"
        layout = None
        if isinstance(given, Tensor) and is_torch_sparse_tensor(given):
            layout = torch.sparse_coo if given.layout is torch.sparse_coo else torch.sparse_csr
        setattr(self, name, Kept(rows, None, loops, layout))


def _as_pyg(kept: Kept, flow: str) -> tuple[Tensor, Tensor | None]:
    """Edge list and weights: the given edges, then a self-loop of each node; or the matrix."""
    assert kept.rows is not None
    nb, weight = kept.rows
    edges = nb.edge_index()
    if kept.layout is not None:
        return TO_SPARSE[kept.layout](edges.flip(0), weight, (nb.num_dst, nb.num_src)), None
    if nb.perm is not None:
        order = nb.perm.argsort()
        edges, weight = edges[:, order], None if weight is None else weight[order]
    if kept.loops:
        stays = edges[0] != edges[1]
        stays[-kept.loops :] = True
        edges, weight = edges[:, stays], None if weight is None else weight[stays]
    return edges if flow == "source_to_target" else edges.flip(0), weight


def _rows(given: Any, num_nodes: int, flow: str) -> Rows:
    """What PyG's layer keeps as rows."""
    if isinstance(given, SparseTensor):
        nb = neighborhood_from(given, num_nodes=num_nodes)
        return nb, nb.weight
    edges, weight = given
    if weight is None:  # a sparse matrix, which holds its values
        nb = neighborhood_from(edges, num_nodes=num_nodes)
        return nb, nb.weight
    adj = adjacency_of(edges, num_nodes, num_nodes, flow=flow)
    return adj.neighborhood, adj.to_csr_order(weight)
