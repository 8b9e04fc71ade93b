"""A pair of PyG's stores gives what the same `Data` gives."""

import copy

import pytest
import torch
from torch_geometric.index import index2ptr
from torch_geometric.testing import MyFeatureStore, MyGraphStore
from torch_geometric.utils import index_sort

from graphtheory.data.loaders import AttentionSetLoader, NodeSetLoader, SharedAnchors
from graphtheory.patterns import LADIES, Compose, KHop, Sample

LOADERS = [
    lambda data, **options: NodeSetLoader(data, LADIES(9), 2, **options),
    lambda data, **options: AttentionSetLoader(data, Compose(KHop(2), Sample(3)), **options),
    lambda data, **options: AttentionSetLoader(data, SharedAnchors(6), **options),
]


@pytest.fixture
def plain(data):
    """Without weights, for which stores have no place; sorted, so that layouts keep the order."""
    del data.edge_weight
    return data.sort(sort_by_row=False)


def stores(data, layout="coo", node_type=None, *, size=True):
    features, graph = MyFeatureStore(), MyGraphStore()
    for name in ("x", "y"):
        features.put_tensor(data[name], group_name=node_type, attr_name=name, index=None)
    (row, col), nodes = data.edge_index, data.num_nodes
    if layout == "csc":
        col = index2ptr(col, nodes)
    if layout == "csr":
        row, order = index_sort(row)
        row, col = index2ptr(row, nodes), col[order]
    edge_type = None if node_type is None else (node_type, "to", node_type)
    graph.put_edge_index(
        (row, col), edge_type=edge_type, layout=layout, size=(nodes, nodes) if size else None
    )
    return features, graph


@pytest.mark.parametrize("load", LOADERS)
@pytest.mark.parametrize(
    "pair",
    [
        lambda data: (data, copy.copy(data)),
        stores,
        lambda data: stores(data, "csc"),
        lambda data: stores(data, "csr"),
        lambda data: stores(data, node_type="paper"),
        lambda data: stores(data, size=False),
    ],
    ids=["data", "coo", "csc", "csr", "typed", "sizeless"],
)
def test_stores_give_what_data_gives(plain, load, pair, same):
    options = {"batch_size": 7, "shuffle": True, "seed": 2, "input_nodes": torch.arange(0, 40, 2)}
    assert same(list(load(pair(plain), **options)), list(load(plain, **options)))


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_stores_cross_into_workers(plain, same):
    alone = LOADERS[0](stores(plain), batch_size=9)
    assert same(list(LOADERS[0](stores(plain), batch_size=9, num_workers=1)), list(alone))


def test_features_of_other_types_stay(plain):
    pair = stores(plain, node_type="paper")
    pair[0].put_tensor(torch.rand(5, 2), group_name="author", attr_name="z", index=None)
    (batch,) = LOADERS[0](pair, batch_size=40)
    assert "z" not in batch and {"x", "y"} <= set(batch.keys())
    (batch,) = LOADERS[0](pair, batch_size=40, attributes=["y"])
    assert "x" not in batch and torch.equal(batch.y, plain.y[batch.n_id])


@pytest.mark.parametrize("name", ["pair_index", "pair_distance", "spd_distance"])
def test_pairs_are_refused_by_name(plain, name):
    pair = stores(plain)
    pair[0].put_tensor(torch.zeros(2, 70), group_name=None, attr_name=name, index=None)
    with pytest.raises(ValueError, match=f"{name}: "):
        LOADERS[0](pair)
    LOADERS[0](pair, attributes=["x"])


def test_weights_are_not_lost_in_silence(data):
    with pytest.raises(ValueError, match="edge_weight: a graph store has no place"):
        LOADERS[0]((data, data))


def test_graph_of_several_types_is_refused(plain):
    features, graph = stores(plain, node_type="paper")
    edges = torch.zeros(2, 1, dtype=torch.int64)
    graph.put_edge_index(edges, edge_type=("author", "of", "paper"), layout="coo", size=(1, 40))
    with pytest.raises(ValueError, match="expected exactly one"):
        LOADERS[0]((features, graph))
    only = MyGraphStore()
    only.put_edge_index(edges, edge_type=("author", "of", "paper"), layout="coo", size=(1, 40))
    with pytest.raises(ValueError, match="join two node types"):
        LOADERS[0]((features, only))


def test_store_that_does_not_know_its_size_is_refused(plain):
    graph = stores(plain, size=False)[1]
    with pytest.raises(ValueError, match="expected the number of nodes"):
        LOADERS[0]((MyFeatureStore(), graph))


def test_pair_holds_stores_in_their_order(plain):
    features, graph = stores(plain)
    with pytest.raises(TypeError, match=r"data\[0\]: got MyGraphStore"):
        LOADERS[0]((graph, features))
