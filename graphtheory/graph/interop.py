"""Conversion between `Neighborhood` and graphs of PyG, torch sparse, scipy and networkx.

The other libraries are imported when a function needs them. Edge lists, scipy matrices and networkx
graphs name the source first (row sends, column receives); sparse matrices of torch and torch_sparse
are PyG's `adj_t` (row receives, column sends).
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor

from graphtheory.graph.neighborhood import Neighborhood
from graphtheory.graph.readers import Sizes, read


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
    return read(obj, asked, weight)


def to_edge_index(nb: Neighborhood) -> tuple[Tensor, Tensor | None]:
    """PyG's pair (edge_index [2, E], edge_weight [E] or None), in edge order."""
    return nb.edge_index(), nb.weight


def to_data(nb: Neighborhood) -> Any:
    """PyG's `Data` with edge_index, num_nodes and, when there is a weight, edge_weight.

    Raises:
        ValueError: If sources and targets are different nodes; `Data` has one kind of node.
    """
    from torch_geometric.data import Data

    data = Data(edge_index=nb.edge_index(), num_nodes=_one_node_set(nb, "to_data"))
    if nb.weight is not None:
        data.edge_weight = nb.weight
    return data


def to_edge_index_object(nb: Neighborhood) -> Any:
    """PyG's `EdgeIndex`, sorted by column and of known size; it cannot hold the weight."""
    from torch_geometric import EdgeIndex

    size = (nb.num_src, nb.num_dst)
    return EdgeIndex(nb.edge_index(), sparse_size=size, sort_order="col")


def to_torch_csr(nb: Neighborhood) -> Tensor:
    """`adj_t` as torch CSR [num_dst, num_src] of weights, or ones; duplicate edges are summed.

    Sources ascend within a row, as torch's CSR requires.
    """
    index = torch.stack([nb.targets(), nb.indices.long()])
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

    It sorts sources within a row, so its values need not lie in the order of `nb`.
    """
    from torch_sparse import SparseTensor

    sources, size = nb.indices.long(), (nb.num_dst, nb.num_src)
    return SparseTensor(row=nb.targets(), col=sources, value=nb.weight, sparse_sizes=size)


def to_scipy(nb: Neighborhood) -> Any:
    """`scipy.sparse.csc_array` [num_src, num_dst] of weights, or ones.

    A row sends; duplicate edges are kept as separate entries.
    """
    from scipy.sparse import csc_array

    value = torch.ones(nb.num_edges) if nb.weight is None else nb.weight.detach().cpu()
    parts = (value.numpy(), nb.indices.cpu().numpy(), nb.indptr.cpu().numpy())
    return csc_array(parts, shape=(nb.num_src, nb.num_dst))


def to_networkx(nb: Neighborhood, *, multigraph: bool = False) -> Any:
    """`networkx.DiGraph` over nodes 0..N-1, with the edge attribute "weight" if there is a weight.

    Args:
        nb: A graph, whose sources and targets are the same nodes.
        multigraph: Return a `MultiDiGraph`, which can hold duplicate edges.

    Raises:
        ValueError: If sources and targets are different nodes, or if a `DiGraph` would get
            duplicate edges.
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


def _one_node_set(nb: Neighborhood, who: str) -> int:
    if nb.num_src != nb.num_dst:
        raise ValueError(
            f"{who}: {nb.num_src} sources and {nb.num_dst} targets, expected one set of nodes"
        )
    return nb.num_dst
