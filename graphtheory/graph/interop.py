"""Bridges between a `Neighborhood` and other libraries' graphs: PyG, torch sparse, scipy, networkx.

The other libraries are imported when a function needs them. Edge lists, scipy matrices and networkx
graphs name the sender first (row sends, column receives); sparse matrices of torch and torch_sparse
are PyG's `adj_t` (row receives, column sends).
"""

from __future__ import annotations

import sys
import warnings
from typing import Any

import torch
from torch import Tensor

from graphtheory.graph.csr import check_edge_index
from graphtheory.graph.neighborhood import Neighborhood

Sizes = tuple[int | None, int | None]  # (num_src, num_dst), None where not known


def neighborhood_from(
    obj: Any,
    *,
    num_nodes: int | None = None,
    size: Sizes | None = None,
    weight: Tensor | None = None,
) -> Neighborhood:
    """Read a graph of any of these kinds; `perm` of the result refers to the given order of edges.

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

    Where an edge holds one number, that becomes the `weight`, integers and Booleans as floating
    numbers; so do `edge_weight` of `Data` and the attribute "weight" of networkx edges (1 where
    some lack it), the former as [E] or [E, 1]. Several numbers an edge are features, left to the
    caller. Undirected networkx graphs send both ways. `torch.compile` traces a `Neighborhood` and
    an edge list of given size, no others.

    Args:
        obj: The graph.
        num_nodes: Number of nodes; default what `obj` says, for an edge list the largest id + 1.
        size: (num_src, num_dst) of a bipartite graph as in PyG's `propagate`; either may be None.
        weight: Floating [E] in the given order, replaces what `obj` holds; differentiable.

    Raises:
        TypeError: A kind that is not in the table.
        ValueError: Sizes that contradict `obj`, or both `num_nodes` and `size`.
        IndexError: A node id outside its side.

    Example:
        >>> import scipy.sparse
        >>> neighborhood_from(scipy.sparse.coo_array([[0, 3], [0, 0]])).edge_index().tolist()
        [[0], [1]]
    """
    if num_nodes is not None and size is not None:
        raise ValueError("num_nodes: give either num_nodes or size, not both")
    asked: Sizes = (num_nodes, num_nodes) if size is None else (size[0], size[1])
    if isinstance(obj, Neighborhood):
        _agree((obj.num_src, obj.num_dst), asked)
        return obj if weight is None else obj.replace(weight=weight)
    if type(obj) is Tensor and obj.layout is torch.strided:
        return _from_edge_list(obj, asked, weight)
    for module, name, read in _READERS:
        if _is(obj, module, name):
            return read(obj, asked, weight)
    known = ", ".join(f"{module}.{name}" for module, name, _ in _READERS)
    raise TypeError(f"obj: got {type(obj).__name__}, expected a Neighborhood or one of {known}")


def to_edge_index(nb: Neighborhood) -> tuple[Tensor, Tensor | None]:
    """PyG's pair (edge_index [2, E], edge_weight [E] or None), in the order of the rows."""
    return nb.edge_index(), nb.weight


def to_data(nb: Neighborhood) -> Any:
    """PyG's `Data` with edge_index, num_nodes and, when there is a weight, edge_weight.

    Raises:
        ValueError: Senders and receivers are different nodes; `Data` has one kind of node.
    """
    from torch_geometric.data import Data

    data = Data(edge_index=nb.edge_index(), num_nodes=_one_node_set(nb, "to_data"))
    if nb.weight is not None:
        data.edge_weight = nb.weight
    return data


def to_edge_index_object(nb: Neighborhood) -> Any:
    """PyG's `EdgeIndex`, sorted by column and of known size; it has no place for the weight."""
    from torch_geometric import EdgeIndex

    size = (nb.num_src, nb.num_dst)
    return EdgeIndex(nb.edge_index(), sparse_size=size, sort_order="col")


def to_torch_csr(nb: Neighborhood) -> Tensor:
    """`adj_t` as torch CSR [num_dst, num_src] of weights (ones without); duplicate edges add up.

    Senders ascend within a row, as torch's CSR demands.
    """
    index = torch.stack([nb.receivers(), nb.indices.long()])
    value = torch.ones(nb.num_edges, device=nb.device) if nb.weight is None else nb.weight
    size = (nb.num_dst, nb.num_src)
    coo = torch.sparse_coo_tensor(index, value, size, check_invariants=False).coalesce()
    counts = torch.bincount(coo.indices()[0], minlength=nb.num_dst)
    indptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta")
        return torch.sparse_csr_tensor(
            indptr, coo.indices()[1], coo.values(), size, check_invariants=False
        )


def to_sparse_tensor(nb: Neighborhood) -> Any:
    """`adj_t` as `torch_sparse.SparseTensor` [num_dst, num_src]; duplicate edges are kept.

    It sorts senders within a row, so its values need not lie in the order of `nb`.
    """
    from torch_sparse import SparseTensor

    senders, size = nb.indices.long(), (nb.num_dst, nb.num_src)
    return SparseTensor(row=nb.receivers(), col=senders, value=nb.weight, sparse_sizes=size)


def to_scipy(nb: Neighborhood) -> Any:
    """`scipy.sparse.csc_array` [num_src, num_dst] of weights (ones without).

    A row sends; duplicate edges are kept as entries of their own.
    """
    from scipy.sparse import csc_array

    value = torch.ones(nb.num_edges) if nb.weight is None else nb.weight.detach().cpu()
    parts = (value.numpy(), nb.indices.cpu().numpy(), nb.indptr.cpu().numpy())
    return csc_array(parts, shape=(nb.num_src, nb.num_dst))


def to_networkx(nb: Neighborhood, *, multigraph: bool = False) -> Any:
    """`networkx.DiGraph` over nodes 0..N-1, with edge attribute "weight" where there is a weight.

    Args:
        nb: One node set.
        multigraph: Return a `MultiDiGraph`, which can hold duplicate edges.

    Raises:
        ValueError: Senders and receivers are different nodes, or duplicate edges in a `DiGraph`.
    """
    import networkx as nx

    graph = nx.MultiDiGraph() if multigraph else nx.DiGraph()
    graph.add_nodes_from(range(_one_node_set(nb, "to_networkx")))
    pairs = nb.edge_index().T.tolist()
    if nb.weight is None:
        graph.add_edges_from(pairs)
    else:
        weights = nb.weight.tolist()
        graph.add_weighted_edges_from((j, i, w) for (j, i), w in zip(pairs, weights, strict=True))
    if graph.number_of_edges() != nb.num_edges:
        raise ValueError("nb: has duplicate edges, expected none; multigraph=True keeps them")
    return graph


def _is(obj: Any, module: str, name: str) -> bool:
    """Whether `obj` is of that class; of a module that was never imported there are no objects."""
    loaded = sys.modules.get(module)
    return loaded is not None and isinstance(obj, getattr(loaded, name))


def _one_node_set(nb: Neighborhood, who: str) -> int:
    if nb.num_src != nb.num_dst:
        raise ValueError(
            f"{who}: {nb.num_src} senders and {nb.num_dst} receivers, expected one set of nodes"
        )
    return nb.num_dst


def _agree(known: Sizes, asked: Sizes) -> Sizes:
    """Sizes that `obj` knows, filled up with those asked for; both may not differ."""
    for side, have, want in zip(("senders", "receivers"), known, asked, strict=True):
        if None not in (have, want) and have != want:
            raise ValueError(f"size: asked for {want} {side}, but obj has {have}")
    src, dst = (want if have is None else have for have, want in zip(known, asked, strict=True))
    return src, dst


def _as_weight(value: Tensor | None) -> Tensor | None:
    """Stored values as a weight: one number an edge, floating; None for features."""
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


def _from_rows(
    indptr: Tensor, indices: Tensor, sizes: Sizes, weight: Tensor | None
) -> Neighborhood:
    """From row pointers, which no sorting has to find."""
    return Neighborhood(indptr.long(), indices.long(), sizes[0], weight=weight)


def _from_tensor(obj: Tensor, asked: Sizes, weight: Tensor | None) -> Neighborhood:
    """Sparse layouts and subclasses."""
    if obj.layout is torch.strided:
        return _from_edge_list(obj.as_subclass(Tensor), asked, weight)
    if obj.dim() - obj.dense_dim() != 2:
        raise ValueError(f"obj: shape {tuple(obj.shape)}, expected a sparse [num_dst, num_src]")
    sizes = _agree((obj.size(1), obj.size(0)), asked)
    if obj.layout is torch.sparse_coo:
        obj = obj.coalesce()
    value = _as_weight(obj.values()) if weight is None else weight
    if obj.layout is torch.sparse_csr:
        return _from_rows(obj.crow_indices(), obj.col_indices(), sizes, value)
    if obj.layout is torch.sparse_coo:
        return _from_edge_list(obj.indices().flip(0), sizes, value)
    if obj.layout is torch.sparse_csc:
        senders = torch.arange(obj.size(1), device=obj.device)
        senders = senders.repeat_interleave(obj.ccol_indices().diff())
        return _from_edge_list(torch.stack([senders, obj.row_indices().long()]), sizes, value)
    raise TypeError(f"obj: layout {obj.layout}, expected an edge list, or sparse COO, CSR or CSC")


def _from_edge_index_object(obj: Any, asked: Sizes, weight: Tensor | None) -> Neighborhood:
    return _from_edge_list(obj.as_tensor(), _agree(obj.sparse_size(), asked), weight)


def _from_data(data: Any, asked: Sizes, weight: Tensor | None) -> Neighborhood:
    graph = data.edge_index if "edge_index" in data else data.get("adj_t")
    if graph is None:
        raise ValueError(f"obj: {data} has neither edge_index nor adj_t")
    if weight is None:
        weight = _edge_weight(data.get("edge_weight"))
    size = (data.num_nodes, data.num_nodes) if asked == (None, None) else asked
    return neighborhood_from(graph, size=size, weight=weight)


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
    return _from_rows(indptr, indices, sizes, _as_weight(value) if weight is None else weight)


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
