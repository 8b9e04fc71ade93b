"""Graphs of other libraries: same matrix, right direction, edges and attributes in step."""

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import networkx as nx
import numpy as np
import pytest
import scipy.sparse
import torch
from torch import Tensor
from torch_geometric import EdgeIndex
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.nn import SimpleConv
from torch_geometric.utils import (
    from_networkx,
    from_scipy_sparse_matrix,
    to_torch_coo_tensor,
    to_torch_csc_tensor,
    to_torch_csr_tensor,
)

from graphtheory import Neighborhood
from graphtheory.graph import interop, neighborhood_from

# Torch says so once of the first sparse tensors it makes; PyG's converters make some.
pytestmark = pytest.mark.filterwarnings("ignore:Sparse invariant checks are implicitly disabled")

# Five nodes, directed, rows neither sorted nor symmetric, node 4 isolated, one loop.
EDGES = torch.tensor([[3, 1, 0, 2, 3, 0], [1, 0, 1, 2, 0, 3]])
WEIGHT = torch.tensor([0.5, -1.0, 2.0, 3.0, 0.25, 4.0])
NODES = 5


def sparse_tensor(edges: Tensor, weight: Tensor | None, num_src: int, num_dst: int) -> Any:
    torch_sparse = pytest.importorskip("torch_sparse", reason="extra `scatter` is not installed")
    return torch_sparse.SparseTensor(
        row=edges[1], col=edges[0], value=weight, sparse_sizes=(num_dst, num_src)
    )


def scipy_matrix(edges: Tensor, weight: Tensor, num_src: int, num_dst: int) -> Any:
    shape = (num_src, num_dst)
    return scipy.sparse.coo_array((weight.numpy(), tuple(edges.numpy())), shape=shape)


def digraph(edges: Tensor, weight: Tensor, num_src: int, num_dst: int) -> nx.DiGraph:
    graph = nx.DiGraph()
    graph.add_nodes_from(range(max(num_src, num_dst)))
    pairs = zip(edges.T.tolist(), weight.tolist(), strict=True)
    graph.add_weighted_edges_from((j, i, w) for (j, i), w in pairs)
    return graph


def transposed(to_torch: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda edges, weight, num_src, num_dst: to_torch(
        edges.flip(0), weight, size=(num_dst, num_src)
    )


# What another library holds, made from (edges, weight, num_src, num_dst).
KINDS: dict[str, Callable[[Tensor, Tensor, int, int], Any]] = {
    "csr": transposed(to_torch_csr_tensor),
    "csc": transposed(to_torch_csc_tensor),
    "coo": transposed(to_torch_coo_tensor),
    "SparseTensor": sparse_tensor,
    "scipy": scipy_matrix,
    "scipy csr": lambda *args: scipy_matrix(*args).tocsr(),
    "scipy spmatrix": lambda *args: scipy.sparse.csc_matrix(scipy_matrix(*args)),
}
ONE_NODE_SET: dict[str, Callable[[Tensor, Tensor, int, int], Any]] = {
    "Data": lambda e, w, n, _: Data(edge_index=e, edge_weight=w, num_nodes=n),
    "Data with adj_t": lambda e, w, n, _: Data(adj_t=sparse_tensor(e, w, n, n), num_nodes=n),
    "Batch": lambda e, w, n, _: Batch.from_data_list(
        [Data(edge_index=e, edge_weight=w, num_nodes=n)]
    ),
    "networkx": digraph,
}


def dense(edges: Tensor, weight: Tensor, num_src: int, num_dst: int) -> Tensor:
    return torch.zeros(num_dst, num_src).index_put((edges[1], edges[0]), weight, accumulate=True)


@pytest.mark.parametrize("kind", KINDS | ONE_NODE_SET)
def test_a_graph_is_read_in_its_direction_and_without_edges(kind: str) -> None:
    obj = (KINDS | ONE_NODE_SET)[kind](EDGES, WEIGHT, NODES, NODES)
    nb = neighborhood_from(obj)
    assert (nb.num_src, nb.num_dst, nb.num_edges) == (NODES, NODES, 6)
    assert torch.equal(nb.to_dense(), dense(EDGES, WEIGHT, NODES, NODES))
    obj = (KINDS | ONE_NODE_SET)[kind](EDGES[:, :0], WEIGHT[:0], 3, 3)
    nb = neighborhood_from(obj)
    assert (nb.num_src, nb.num_dst, nb.num_edges) == (3, 3, 0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [(4, 7), (7, 4)])
def test_a_bipartite_graph_keeps_its_sides(kind: str, size: tuple[int, int]) -> None:
    nb = neighborhood_from(KINDS[kind](EDGES, WEIGHT, *size))
    assert (nb.num_src, nb.num_dst) == size
    assert torch.equal(nb.to_dense(), dense(EDGES, WEIGHT, *size))


@pytest.mark.parametrize("kind", ["edge_index", "EdgeIndex", *KINDS, *ONE_NODE_SET])
def test_perm_finds_the_given_edge(kind: str) -> None:
    given = given_order(kind)
    nb = neighborhood_from(given[0], num_nodes=None if kind != "edge_index" else NODES)
    perm = torch.arange(6) if nb.perm is None else nb.perm
    assert torch.equal(given[1][:, perm], nb.edge_index())


def given_order(kind: str) -> tuple[Any, Tensor]:
    """An object, and its edges (sources first) in the order in which it gives edge attributes."""
    if kind == "edge_index":
        return EDGES, EDGES
    if kind == "EdgeIndex":
        return EdgeIndex(EDGES, sparse_size=(NODES, NODES)), EDGES
    obj = (KINDS | ONE_NODE_SET)[kind](EDGES, WEIGHT, NODES, NODES)
    if kind == "csr":
        rows = torch.arange(NODES).repeat_interleave(obj.crow_indices().diff())
        return obj, torch.stack([obj.col_indices(), rows])
    if kind == "csc":
        columns = torch.arange(NODES).repeat_interleave(obj.ccol_indices().diff())
        return obj, torch.stack([columns, obj.row_indices()])
    if kind == "coo":
        return obj, obj.indices().flip(0)
    if kind.startswith("scipy"):
        return obj, from_scipy_sparse_matrix(obj)[0]
    if kind == "networkx":
        return obj, from_networkx(obj).edge_index
    if kind in ("Data", "Batch"):
        return obj, obj.edge_index
    adj_t = obj if kind == "SparseTensor" else obj.adj_t
    row, col, _ = adj_t.coo()
    return obj, torch.stack([col, row])


@pytest.mark.filterwarnings("ignore:Converting sparse tensor to CSR")
@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "SparseTensor", "Data"])
def test_pyg_layers_agree_on_the_direction(kind: str) -> None:
    x = torch.arange(1.0, NODES + 1)[:, None]
    obj = (KINDS | ONE_NODE_SET)[kind](EDGES, WEIGHT, NODES, NODES)
    args = (obj.edge_index, obj.edge_weight) if kind == "Data" else (obj,)
    torch.testing.assert_close(neighborhood_from(obj).to_dense() @ x, SimpleConv()(x, *args))


def test_a_given_weight_follows_its_edges_and_its_gradient() -> None:
    weight = WEIGHT.clone().requires_grad_()
    nb = neighborhood_from(EDGES, num_nodes=NODES, weight=weight)
    torch.testing.assert_close(nb.to_dense(), dense(EDGES, WEIGHT, NODES, NODES))
    assert nb.weight is not None
    (nb.weight * nb.indices).sum().backward()
    assert torch.equal(weight.grad, EDGES[0].float())
    replaced = neighborhood_from(scipy_matrix(EDGES, WEIGHT, 5, 5), weight=2 * WEIGHT)
    assert torch.equal(replaced.to_dense(), 2 * dense(EDGES, WEIGHT, 5, 5))


@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "SparseTensor"])
def test_stored_values_pass_their_gradient(kind: str) -> None:
    weight = WEIGHT.clone().requires_grad_()
    nb = neighborhood_from(KINDS[kind](EDGES, weight, NODES, NODES))
    assert nb.weight is not None
    (nb.weight * nb.targets()).sum().backward()
    assert torch.equal(weight.grad, EDGES[1].float())


def test_values_that_are_no_weight() -> None:
    integers = scipy.sparse.coo_array(np.array([[0, 3], [0, 0]]))
    assert neighborhood_from(integers).weight.tolist() == [3.0]
    features = sparse_tensor(EDGES, torch.ones(6, 2), NODES, NODES)
    assert neighborhood_from(features).weight is None
    data = Data(edge_index=EDGES, edge_weight=torch.ones(6, 2), num_nodes=NODES)
    with pytest.raises(ValueError, match=r"edge_weight: shape \(6, 2\), expected \[num_edges\]"):
        neighborhood_from(data)
    weight = torch.arange(6.0)
    flat, column = (
        neighborhood_from(Data(edge_index=EDGES, edge_weight=w, num_nodes=NODES))
        for w in (weight, weight[:, None])
    )
    assert torch.equal(flat.weight, column.weight)
    assert neighborhood_from(sparse_tensor(EDGES, None, NODES, NODES)).weight is None


def test_duplicates_of_coo_add_up_as_torch_says() -> None:
    twice = torch.sparse_coo_tensor(
        torch.tensor([[0, 0], [1, 1]]), torch.tensor([1.0, 2.0]), (2, 2), check_invariants=True
    )
    nb = neighborhood_from(twice)
    assert nb.num_edges == 1 and torch.equal(nb.to_dense(), twice.to_dense())


def test_networkx_graphs_send_both_ways_and_keep_parallel_edges() -> None:
    graph = nx.Graph([("b", "a"), ("a", "a")])
    assert neighborhood_from(graph).to_dense().tolist() == [[0, 1], [1, 1]]
    graph.add_edge("c", "a", weight=5)
    assert neighborhood_from(graph).to_dense().tolist() == [[0, 1, 0], [1, 1, 5], [0, 5, 0]]
    assert neighborhood_from(nx.MultiDiGraph([(0, 1), (0, 1)])).num_edges == 2


def test_sizes_of_an_edge_list_and_of_an_edge_index_object() -> None:
    nb = neighborhood_from(EdgeIndex(EDGES, sparse_size=(4, 7)))
    assert (nb.num_src, nb.num_dst) == (4, 7)
    nb = neighborhood_from(EdgeIndex(EDGES), size=(4, 7))
    assert (nb.num_src, nb.num_dst) == (4, 7) and type(nb.indices) is Tensor
    edges = torch.tensor([[0, 6], [1, 2]])
    assert neighborhood_from(edges).num_dst == 7
    assert neighborhood_from(edges, num_nodes=9).num_dst == 9
    half = neighborhood_from(edges, size=(None, 5))
    assert (half.num_src, half.num_dst) == (7, 5)
    none = neighborhood_from(edges[:, :0], size=(None, 2))
    assert (none.num_src, none.num_dst) == (0, 2)
    parameter = torch.nn.Parameter(edges, requires_grad=False)
    assert neighborhood_from(parameter).num_edges == 2


def test_a_neighborhood_is_returned_as_it_is_and_other_sparse_tensors_are_refused() -> None:
    nb = Neighborhood.from_edge_index(EDGES, NODES)
    assert neighborhood_from(nb, num_nodes=NODES) is nb
    assert torch.equal(neighborhood_from(nb, weight=WEIGHT).weight, WEIGHT)
    with pytest.raises(TypeError, match=r"layout torch\.sparse_bsr"):
        neighborhood_from(torch.eye(2).to_sparse_bsr((1, 1)))
    with pytest.raises(ValueError, match="expected a sparse"):
        neighborhood_from(torch.ones(2).to_sparse())


@pytest.mark.parametrize("kind", ["data", "sparse_tensor"])
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("narrow", [True, False])
def test_there_and_back(kind: str, weighted: bool, narrow: bool) -> None:
    if kind == "sparse_tensor":
        pytest.importorskip("torch_sparse", reason="extra `scatter` is not installed")
    twice = torch.cat([EDGES, EDGES[:, :1]], 1)  # an edge that comes again
    weight = torch.cat([WEIGHT, WEIGHT[:1]]) if weighted else None
    nb = Neighborhood.from_edge_index(twice, NODES, weight=weight)
    nb = nb.to_int32() if narrow else nb
    theirs = Data(edge_index=nb.edge_index(), edge_weight=nb.weight, num_nodes=NODES)
    back = neighborhood_from(interop.to_sparse_tensor(nb) if kind == "sparse_tensor" else theirs)
    assert (back.num_dst, back.num_edges) == (NODES, 7)
    assert torch.equal(back.to_dense(), nb.to_dense())


@pytest.mark.parametrize(("obj", "options", "error", "words"), [
    ([[0], [1]], {}, TypeError, "obj: got list"),
    (HeteroData(), {}, TypeError, "obj: got HeteroData"),
    (EDGES.float(), {}, TypeError, r"edge_index: dtype torch\.float32"),
    (EDGES.T, {}, ValueError, "transpose it"),
    (EDGES, {"num_nodes": 3}, IndexError, r"edge_index.*entry 0 is 3"),
    (EDGES, {"num_nodes": 5, "size": (5, 5)}, ValueError, "not both"),
    (EDGES, {"weight": WEIGHT[:2]}, ValueError, "weight: shape"),
    (EdgeIndex(EDGES, sparse_size=(5, 5)), {"num_nodes": 6}, ValueError, "asked for 6 sources"),
    (scipy.sparse.coo_array((2, 3)), {"num_nodes": 2}, ValueError, "2 targets, but obj has 3"),
    (scipy.sparse.coo_array(np.ones(3)), {}, ValueError, "expected a matrix"),
    (nx.path_graph(3), {"num_nodes": 2}, ValueError, "obj has 3"),
    (Neighborhood.from_edge_index(EDGES), {"num_nodes": 9}, ValueError, "obj has 4"),
    (Data(x=torch.ones(2, 1)), {}, ValueError, "neither edge_index nor adj_t"),
])  # fmt: skip
def test_what_does_not_fit_is_refused(obj, options, error, words) -> None:
    with pytest.raises(error, match=words):
        neighborhood_from(obj, **options)


def test_an_edge_list_is_traced_through() -> None:
    @torch.compile(fullgraph=True, backend="aot_eager")
    def row_sums(edges: Tensor, weight: Tensor) -> Tensor:
        nb = neighborhood_from(edges, num_nodes=NODES, weight=weight)
        nb = neighborhood_from(nb)
        return weight.new_zeros(NODES).index_add(0, nb.targets(), nb.weight)

    weight = WEIGHT.clone().requires_grad_()
    out = row_sums(EDGES, weight)
    torch.testing.assert_close(out, dense(EDGES, WEIGHT, NODES, NODES).sum(1))
    out.dot(torch.arange(5.0)).backward()
    assert torch.equal(weight.grad, EDGES[1].float())


def test_reading_one_library_loads_no_other() -> None:
    code = (
        "import sys, torch, scipy.sparse\n"
        "from graphtheory.graph import neighborhood_from\n"
        "neighborhood_from(torch.zeros(2, 1, dtype=torch.int64))\n"
        "neighborhood_from(scipy.sparse.eye_array(2))\n"
        "sys.exit(any(name in sys.modules for name in ('torch_geometric', 'networkx')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
