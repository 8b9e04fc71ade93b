"""Graphs of PyG, torch, scipy and networkx as neighborhoods.

The other libraries are imported when a function needs them. Edge lists, scipy matrices and networkx
graphs name the source first (row sends, column receives); sparse matrices of torch and torch_sparse
are PyG's `adj_t` (row receives, column sends).
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import Tensor

from graphtheory.graph.content import is_tracing
from graphtheory.graph.csr import check_edge_index, plain
from graphtheory.graph.neighborhood import Neighborhood

Sizes = tuple[int | None, int | None]  # (num_src, num_dst), None where not known


def neighborhood_from(
    obj: Any,
    *,
    num_nodes: int | None = None,
    size: Sizes | None = None,
    weight: Tensor | None = None,
) -> Neighborhood:
    """Read a graph of any of these kinds; `perm` of the result refers to the given edge order.

    ============================  ===================  =======================================
    kind                          its row              given order of edges
    ============================  ===================  =======================================
    integer tensor [2, E]         row 0 sends          columns
    PyG `EdgeIndex`               row 0 sends          columns
    PyG `Data`                    as its graph         that of `edge_index`, else of `adj_t`
    scipy sparse                  sends                `tocoo()`, `from_scipy_sparse_matrix`
    networkx                      source sends         `edges()`, `from_networkx`
    torch CSR                     receives (`adj_t`)   by row, as in the result (`perm` None)
    `torch_sparse.SparseTensor`   receives (`adj_t`)   by row, as in the result (`perm` None)
    torch COO                     receives (`adj_t`)   by row, after `coalesce()`
    torch CSC                     receives (`adj_t`)   by column
    `Neighborhood`                receives             its own; returned as it is
    ============================  ===================  =======================================

    One value per edge becomes the `weight`; integers and Booleans become floating. So do
    `edge_weight` of `Data`, as [E] or [E, 1], and the attribute "weight" of networkx edges (1 for
    edges without it if others have one). Several values per edge are features, which are left to
    the caller. Edges of undirected networkx graphs run both ways. `torch.compile` traces a
    `Neighborhood` and an edge list of given size only.

    Args:
        obj: The graph.
        num_nodes: Number of nodes; by default that of `obj`, for an edge list the largest id + 1.
        size: (num_src, num_dst) of a bipartite graph as in PyG's `propagate`; either may be None.
        weight: Floating [E] in the given order, replaces that of `obj`; differentiable.

    Raises:
        TypeError: If `obj` is of a kind that is not in the table.
        ValueError: If sizes contradict `obj`, or if both `num_nodes` and `size` are given.
        IndexError: If a node id lies outside its side.

    Example:
        >>> import scipy.sparse
        >>> neighborhood_from(scipy.sparse.coo_array([[0, 3], [0, 0]])).edge_index().tolist()
        [[0], [1]]
    """
    if num_nodes is not None and size is not None:
        raise ValueError("num_nodes: give either num_nodes or size, not both")
    asked: Sizes = (num_nodes, num_nodes) if size is None else (size[0], size[1])
    return _read(obj, asked, weight)


def to_sparse_tensor(nb: Neighborhood) -> Any:
    """`adj_t` as `torch_sparse.SparseTensor`, which sorts sources within a row."""
    from torch_sparse import SparseTensor

    sources, size = nb.indices.long(), (nb.num_dst, nb.num_src)
    return SparseTensor(row=nb.targets(), col=sources, value=nb.weight, sparse_sizes=size)


def _read(obj: Any, asked: Sizes, weight: Tensor | None) -> Neighborhood:
    if isinstance(obj, Neighborhood):
        _agree((obj.num_src, obj.num_dst), asked)
        return obj if weight is None else obj.replace(weight=weight)
    if type(obj) is Tensor and obj.layout is torch.strided:
        return _from_edge_list(obj, asked, weight)
    for module, name, reader in _READERS:  # a module that was never imported has no objects
        if module in sys.modules and isinstance(obj, getattr(sys.modules[module], name)):
            return reader(obj, asked, weight)
    known = ", ".join(f"{module}.{name}" for module, name, _ in _READERS)
    raise TypeError(f"obj: got {type(obj).__name__}, expected a Neighborhood or one of {known}")


def _agree(known: Sizes, asked: Sizes) -> Sizes:
    """The sizes of `obj`, completed by those that were asked for; raises if they differ."""
    for side, have, want in zip(("sources", "targets"), known, asked, strict=True):
        if None not in (have, want) and have != want:
            raise ValueError(f"size: asked for {want} {side}, but obj has {have}")
    src, dst = (want if have is None else have for have, want in zip(known, asked, strict=True))
    return src, dst


def _as_weight(value: Tensor | None) -> Tensor | None:
    """Stored values as a floating weight, if there is one value per edge; None for features."""
    if value is None or value.dim() != 1:
        return None
    return value if value.is_floating_point() else value.to(torch.get_default_dtype())


def _from_edge_list(edge_index: Tensor, sizes: Sizes, weight: Tensor | None) -> Neighborhood:
    if sizes == (None, None):
        return Neighborhood.from_edge_index(edge_index, weight=weight)
    check_edge_index(edge_index)
    src, dst = (
        n if n is not None else int(edge_index[side].max()) + 1 if edge_index.numel() else 0
        for side, n in enumerate(sizes)
    )
    return Neighborhood.from_edge_index(edge_index, num_src=src, num_dst=dst, weight=weight)


def merged(matrix: Tensor) -> Tensor:
    """A COO matrix by row, each entry once; PyG's layers mark matrices as such that are not."""
    if not matrix.is_coalesced() or is_tracing():
        return matrix.coalesce()
    row, col = matrix.indices()
    if bool(((row * matrix.size(1) + col).diff() > 0).all()):
        return matrix
    again = matrix.indices(), matrix.values(), matrix.shape
    return torch.sparse_coo_tensor(*again, check_invariants=True).coalesce()


def _from_tensor(obj: Tensor, asked: Sizes, weight: Tensor | None) -> Neighborhood:
    """Read a torch sparse matrix, or an edge list in a subclass of Tensor."""
    if obj.layout is torch.strided:
        return _from_edge_list(plain(obj), asked, weight)
    if obj.dim() - obj.dense_dim() != 2:
        raise ValueError(f"obj: shape {tuple(obj.shape)}, expected a sparse [num_dst, num_src]")
    sizes = _agree((obj.size(1), obj.size(0)), asked)
    if obj.layout is torch.sparse_coo:
        obj = merged(obj)
    value = _as_weight(obj.values()) if weight is None else weight
    if obj.layout is torch.sparse_csr:
        rows = obj.crow_indices().long(), obj.col_indices().long()
        return Neighborhood(*rows, sizes[0], weight=value)
    if obj.layout is torch.sparse_coo:
        return _from_edge_list(obj.indices().flip(0), sizes, value)
    if obj.layout is torch.sparse_csc:
        sources = torch.arange(obj.size(1), device=obj.device)
        sources = sources.repeat_interleave(obj.ccol_indices().diff())
        return _from_edge_list(torch.stack([sources, obj.row_indices().long()]), sizes, value)
    raise TypeError(f"obj: layout {obj.layout}, expected an edge list, or sparse COO, CSR or CSC")


def _from_edge_index_object(obj: Any, asked: Sizes, weight: Tensor | None) -> Neighborhood:
    return _from_edge_list(obj.as_tensor(), _agree(obj.sparse_size(), asked), weight)


def _edge_weight(value: Tensor | None) -> Tensor | None:
    """[E] or [E, 1] as a weight; unlike values of `adj_t` these are never features."""
    if value is not None and value.dim() == 2 and value.size(1) == 1:
        value = value.squeeze(1)
    if value is not None and value.dim() != 1:
        raise ValueError(f"edge_weight: shape {tuple(value.shape)}, expected [num_edges]")
    return _as_weight(value)


def _from_sparse_tensor(adj_t: Any, asked: Sizes, weight: Tensor | None) -> Neighborhood:
    sizes = _agree((adj_t.size(1), adj_t.size(0)), asked)
    indptr, indices, value = adj_t.csr()
    weight = _as_weight(value) if weight is None else weight
    return Neighborhood(indptr, indices, sizes[0], weight=weight)


def _from_scipy(matrix: Any, asked: Sizes, weight: Tensor | None) -> Neighborhood:
    if matrix.ndim != 2:
        raise ValueError(f"obj: shape {matrix.shape}, expected a matrix [num_src, num_dst]")
    sizes = _agree(matrix.shape, asked)
    coo = matrix.tocoo()
    ids = torch.stack([torch.as_tensor(ids, dtype=torch.int64) for ids in (coo.row, coo.col)])
    return _from_edge_list(
        ids, sizes, _as_weight(torch.as_tensor(coo.data)) if weight is None else weight
    )


def _from_networkx(graph: Any, asked: Sizes, weight: Tensor | None) -> Neighborhood:
    directed = graph if graph.is_directed() else graph.to_directed()
    position = {node: i for i, node in enumerate(directed)}
    edges = [(position[j], position[i], w) for j, i, w in directed.edges(data="weight")]
    index = torch.tensor([e[:2] for e in edges], dtype=torch.int64).view(-1, 2).T
    if weight is None and any(w is not None for *_, w in edges):
        weight = torch.tensor([1.0 if w is None else float(w) for *_, w in edges])
    return _from_edge_list(index, _agree((len(position), len(position)), asked), weight)


def _from_data(data: Any, asked: Sizes, weight: Tensor | None) -> Neighborhood:
    graph = data.edge_index if "edge_index" in data else data.get("adj_t")
    if graph is None:
        raise ValueError(f"obj: {data} has neither edge_index nor adj_t")
    if weight is None:
        weight = _edge_weight(data.get("edge_weight"))
    size = (data.num_nodes, data.num_nodes) if asked == (None, None) else asked
    return _read(graph, size, weight)


# First match wins: an `EdgeIndex` is a Tensor too.
_READERS = (
    ("torch_geometric", "EdgeIndex", _from_edge_index_object),
    ("torch", "Tensor", _from_tensor),
    ("torch_geometric.data", "Data", _from_data),
    ("torch_sparse", "SparseTensor", _from_sparse_tensor),
    ("scipy.sparse", "sparray", _from_scipy),
    ("scipy.sparse", "spmatrix", _from_scipy),
    ("networkx", "Graph", _from_networkx),
)
