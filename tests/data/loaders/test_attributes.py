"""What travels with the nodes: cut right, left behind, or refused by name."""

import pytest
import torch
from torch_geometric.data import Data

from graphtheory.data.loaders import AttentionSetLoader, NodeSetLoader, SharedAnchors
from graphtheory.data.transforms import AddDistances
from graphtheory.patterns import GraphSAGE, KHop

LOADERS = [
    lambda data, **options: NodeSetLoader(data, GraphSAGE(2), 2, **options),
    lambda data, **options: AttentionSetLoader(data, SharedAnchors(6), **options),
]
each_loader = pytest.mark.parametrize("load", LOADERS, ids=["node_sets", "attention_sets"])


@each_loader
def test_rows_of_nodes_travel_and_those_of_edges_stay(data, load):
    data.train_mask = torch.arange(40) % 3 == 0
    data.edge_attr = torch.rand(90, 2)
    data.edge_kind = torch.arange(90)
    data.name, data.temperature, data.level = "graph", 0.5, torch.tensor([3])
    for batch in load(data, batch_size=9):
        for name in ("x", "y", "train_mask"):
            assert torch.equal(batch[name], data[name][batch.n_id])
        assert (batch.name, batch.temperature, batch.level.tolist()) == ("graph", 0.5, [3])
        assert not {"edge_attr", "edge_kind", "edge_weight", "edge_index"} & set(batch.keys())


@each_loader
def test_as_many_edges_as_nodes(load):
    edges = torch.stack([torch.arange(4), torch.arange(4).roll(1)])
    data = Data(x=torch.eye(4), edge_index=edges, edge_attr=torch.arange(4), y=torch.arange(4))
    for batch in load(data, batch_size=2):
        assert torch.equal(batch.y, batch.n_id) and "edge_attr" not in batch
        assert torch.equal(batch.x, torch.eye(4)[batch.n_id])  # square, but features


@each_loader
@pytest.mark.parametrize(("name", "value"), [
    ("pair_index", torch.zeros(2, 70, dtype=torch.int64)),
    ("node_index", torch.arange(40)),
    ("face", torch.zeros(3, 5, dtype=torch.int64)),
    ("pairs", torch.zeros(2, 70, dtype=torch.int64)),
    ("pair_distance", torch.zeros(70)),
    ("distances", torch.zeros(40, 40)),
    ("names", ["a"] * 40),
    ("n_id", torch.arange(40)),
    ("batch_size", 3),
])  # fmt: skip
def test_what_cannot_be_cut_is_refused_by_name(data, load, name, value):
    data[name] = value
    with pytest.raises(ValueError, match=f"{name}: "):
        load(data)
    (batch,) = load(data, batch_size=40, attributes=["x"])  # the way out that the message names
    assert torch.equal(batch.x, data.x[batch.n_id]) and "y" not in batch


def test_attributes_travel_on_the_callers_word_and_a_table_of_all_pairs_does_not(data):
    data.year_index, data.table = torch.arange(40), torch.rand(40, 40)
    loader = LOADERS[0](data, batch_size=9, attributes=["year_index", "table"])
    for batch in loader:
        assert torch.equal(batch.year_index, batch.n_id)
        assert torch.equal(batch.table, data.table[batch.n_id]) and "x" not in batch
    with pytest.raises(ValueError, match=r"distance: shape \(1600,\), expected one row for each"):
        AttentionSetLoader(AddDistances()(data), KHop(1), attributes=["distance"])


@pytest.mark.parametrize(("attributes", "error", "match"), [
    (["x", "label"], ValueError, "attributes: 'label'"),
    ("x", TypeError, "attributes: got the string 'x'"),
])  # fmt: skip
def test_attributes_are_names_of_the_data(data, attributes, error, match):
    with pytest.raises(error, match=match):
        LOADERS[0](data, attributes=attributes)


def test_sparse_features(data):
    dense = data.x * (data.x > 0)
    data.x = dense.to_sparse_csr()
    for batch in LOADERS[0](data, batch_size=9):
        assert batch.x.layout == torch.sparse_csr
        assert torch.equal(batch.x.to_dense(), dense[batch.n_id])
