"""A pair of stores, here or elsewhere, gives what the same `Data` gives, without whole reads."""

import copy

import numpy as np
import pytest
import torch
from torch_geometric import EdgeIndex
from torch_geometric.data import EdgeAttr, FeatureStore, GraphStore, TensorAttr
from torch_geometric.index import index2ptr
from torch_geometric.testing import MyFeatureStore, MyGraphStore
from torch_geometric.utils import index_sort

from graphtheory.data.loaders import AttentionSetLoader, NodeSetLoader, SharedAnchors
from graphtheory.patterns import LADIES, AddSelf, Compose, KHop, Sample
from tests.data.loaders.conftest import random_data

LOADERS = [
    lambda data, **options: NodeSetLoader(data, LADIES(9), 2, **options),
    lambda data, **options: AttentionSetLoader(
        data, Compose(KHop(2), Sample(3), AddSelf()), **options
    ),
    lambda data, **options: AttentionSetLoader(data, SharedAnchors(6), **options),
]


class RemoteFeatures(FeatureStore):
    """The abstract methods and no more; rows come by ids, as copies, and are counted."""

    def __init__(self, held, answer):
        super().__init__()
        self.held, self.answer, self.asked = held, answer, []

    def _put_tensor(self, tensor, attr):
        raise AssertionError("a loader put a tensor")

    def _remove_tensor(self, attr):
        raise AssertionError("a loader removed a tensor")

    def _get_tensor(self, attr):
        assert isinstance(attr.index, torch.Tensor), f"{attr.attr_name}: a whole read or a slice"
        assert attr.index.device.type == "cpu" and attr.index.dtype == torch.int64
        self.asked.append((attr.attr_name, attr.index.clone()))
        return self.answer(self.held[attr.attr_name][attr.index])

    def _get_tensor_size(self, attr):
        return [torch.tensor(n) for n in self.held[attr.attr_name].shape]  # WholeGraph's are such

    def get_all_tensor_attrs(self):
        return [TensorAttr("paper", name) for name in self.held]


class RemoteGraph(GraphStore):
    """Edges in one layout, a copy for each reading; it may be read once."""

    def __init__(self, layout, parts, nodes):
        super().__init__()
        self.attr = EdgeAttr(("paper", "cites", "paper"), layout, size=(nodes, nodes))
        self.parts, self.read = parts, 0

    def _put_edge_index(self, edge_index, edge_attr):
        raise AssertionError("a loader put edges")

    def _remove_edge_index(self, edge_attr):
        raise AssertionError("a loader removed edges")

    def _get_edge_index(self, edge_attr):
        if edge_attr.layout != self.attr.layout:
            return None
        self.read += 1
        return self.parts()

    def get_all_edge_attrs(self):
        return [self.attr]


def layouts(data):
    """Name: (layout, function that gives the edges)."""
    (row, col), nodes = data.edge_index, data.num_nodes
    by_row, order = index_sort(row)
    return {
        "coo": ("coo", lambda: (row.clone(), col.clone())),
        "EdgeIndex": ("coo", lambda: EdgeIndex(data.edge_index.clone(), sort_order="col")),
        "csc": ("csc", lambda: (row.clone(), index2ptr(col, nodes))),
        "csr": ("csr", lambda: (index2ptr(by_row, nodes), col[order])),
        "narrow": ("coo", lambda: (row.int(), col.int())),
        "mixed": ("csc", lambda: (row.int(), index2ptr(col, nodes))),
        "numpy": ("coo", lambda: (row.numpy().copy(), col.numpy().copy())),
    }


@pytest.fixture
def plain(data):
    """Without weights, for which stores have no place; sorted, so that layouts keep the order."""
    del data.edge_weight
    return data.sort(sort_by_row=False)


def remote(data, layout="coo", answer=torch.clone):
    features = RemoteFeatures({"x": data.x, "y": data.y}, answer)
    return features, RemoteGraph(*layouts(data)[layout], data.num_nodes)


@pytest.mark.parametrize("load", LOADERS)
@pytest.mark.parametrize("layout", ["coo", "EdgeIndex", "csc", "csr", "narrow", "mixed", "numpy"])
def test_any_layout_gives_what_data_gives(plain, load, layout, same):
    options = {"batch_size": 7, "shuffle": True, "seed": 2, "input_nodes": torch.arange(0, 40, 2)}
    pair = remote(plain, layout)
    assert same(list(load(pair, **options)), list(load(plain, **options))) and pair[1].read == 1


def test_rows_that_a_store_has_already_stay_where_they_are(plain, tmp_path):
    row, ptr = layouts(plain)["csc"][1]()
    mapped = np.memmap(tmp_path / "rows", np.int64, "w+", shape=len(row))
    mapped[:] = row
    given = torch.from_numpy(mapped)
    loader = LOADERS[0]((remote(plain)[0], RemoteGraph("csc", lambda: (given, ptr), 40)))
    assert loader.dataset.base.indices.data_ptr() == given.data_ptr()
    for wrong, message in (
        (ptr[:-1], "40 row pointers for 40 nodes and the end"),
        (ptr.flip(0), "indptr"),
    ):
        with pytest.raises(ValueError, match=message):
            LOADERS[0]((remote(plain)[0], RemoteGraph("csc", lambda w=wrong: (row, w), 40)))


@pytest.mark.parametrize("answer", [torch.clone, lambda rows: np.asarray(rows).copy()])
def test_only_the_rows_of_a_batch_are_asked_for(plain, answer, same):
    pair = remote(plain, answer=answer)
    loader = LOADERS[0](pair, batch_size=5, input_nodes=[3, 1, 20, 8, 9, 11])
    assert pair[0].asked == []
    batches = list(loader)
    assert [name for name, _ in pair[0].asked] == ["x", "y"] * len(batches)
    for place, batch in enumerate(batches):
        for _, ids in pair[0].asked[2 * place : 2 * place + 2]:
            assert torch.equal(ids, batch.n_id) and len(ids.unique()) == len(ids)
    assert same(batches, list(LOADERS[0](plain, batch_size=5, input_nodes=[3, 1, 20, 8, 9, 11])))


def test_what_a_batch_does_to_its_rows_stays_in_the_batch(plain):
    loader = LOADERS[1](remote(plain), batch_size=40)
    (first,) = loader
    first.x.zero_()
    loader.set_epoch(0)
    (again,) = loader
    assert torch.equal(again.x, plain.x[again.n_id])


def test_processes_that_share_the_seeds_read_the_same_stores(plain, same):
    options = {"batch_size": 6, "shuffle": True, "seed": 4, "world_size": 2}
    parts = [list(LOADERS[0](remote(plain), rank=rank, **options)) for rank in (0, 1)]
    seeds = torch.cat([b.n_id[: b.batch_size] for part in parts for b in part])
    assert sorted(seeds.tolist()) == list(range(40))
    assert same(parts[1], list(LOADERS[0](plain, rank=1, **options)))


def stores(data, layout="coo", node_type=None, *, size=True):
    features, graph = MyFeatureStore(), MyGraphStore()
    for name in ("x", "y"):
        features.put_tensor(data[name], group_name=node_type, attr_name=name, index=None)
    (kind, edges), nodes = layouts(data)[layout], data.num_nodes
    edge_type = None if node_type is None else (node_type, "to", node_type)
    shape = (nodes, nodes) if size else None
    graph.put_edge_index(edges(), edge_type=edge_type, layout=kind, size=shape)
    return features, graph


@pytest.mark.parametrize("load", LOADERS)
@pytest.mark.parametrize("pair", [
    lambda data: (data, copy.copy(data)),
    stores,
    lambda data: stores(data, "csc"),
    lambda data: stores(data, "csr"),
    lambda data: stores(data, node_type="paper"),
    lambda data: stores(data, size=False),
], ids=["data", "coo", "csc", "csr", "typed", "sizeless"])  # fmt: skip
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


def test_what_a_store_cannot_give_is_refused(plain):
    with pytest.raises(ValueError, match="edge_weight: a graph store has no place"):
        LOADERS[0]((random_data(), random_data()))
    features, graph = stores(plain, node_type="paper")
    edges = torch.zeros(2, 1, dtype=torch.int64)
    graph.put_edge_index(edges, edge_type=("author", "of", "paper"), layout="coo", size=(1, 40))
    with pytest.raises(ValueError, match="expected exactly one"):
        LOADERS[0]((features, graph))
    only = MyGraphStore()
    only.put_edge_index(edges, edge_type=("author", "of", "paper"), layout="coo", size=(1, 40))
    with pytest.raises(ValueError, match="join two node types"):
        LOADERS[0]((features, only))
    graph = stores(plain, size=False)[1]
    with pytest.raises(ValueError, match="expected the number of nodes"):
        LOADERS[0]((MyFeatureStore(), graph))


def test_pair_holds_stores_in_their_order(plain):
    features, graph = stores(plain)
    with pytest.raises(TypeError, match=r"data\[0\]: got MyGraphStore"):
        LOADERS[0]((graph, features))


def test_ids_of_a_store_that_were_changed_are_refused_by_the_next_epoch():
    data = random_data(weighted=False)
    row, col = data.edge_index[:, data.edge_index[1].argsort(stable=True)]
    store = MyGraphStore()
    ends = (row, index2ptr(col, 40))
    store.put_edge_index(ends, edge_type=None, layout="csc", size=(40, 40))
    loader = AttentionSetLoader((data, store), Compose(KHop(2), Sample(3)), batch_size=8)
    assert len(list(loader)) == 5
    row[0] += 1
    with pytest.raises(ValueError, match="indptr or indices were changed in place"):
        iter(loader)
