"""Attributes of edges travel with the edges that are drawn, or are refused by name."""

import json

import pytest
import torch
from torch_geometric.data import Data

from graphtheory.data.loaders import (
    AttentionSetLoader,
    GraphFolder,
    NodeSetLoader,
    PartitionLoader,
)
from graphtheory.data.loaders.folder import _digest_of
from graphtheory.patterns import AddSelf, Compose, GraphSAGE, KHop, SymmetricNormalize

NAMES = ["x", "edge_attr", "edge_kind"]


@pytest.fixture
def part():
    return torch.arange(40) * 7 % 5


@pytest.fixture
def data(data):
    """Each edge knows its number, so that a batch can be looked up."""
    data.edge_kind = torch.arange(90)
    data.edge_attr = torch.stack([data.edge_kind / 8, data.edge_kind % 7], 1)
    return data


def loaders(source, part, **options):
    some = {"batch_size": 9, "shuffle": True} | options
    few = {"batch_size": 2, "shuffle": True} | options
    normed = Compose(SymmetricNormalize(), GraphSAGE(2))  # no edge more than those of the data
    return {
        "layers": NodeSetLoader(source, GraphSAGE(2), 2, **some),
        "normalized": NodeSetLoader(source, normed, 1, **some),
        "sets": AttentionSetLoader(source, GraphSAGE(3), **some),
        "parts": PartitionLoader(source, part, **few),
        "layers of parts": PartitionLoader(source, part, GraphSAGE(1), num_layers=2, **few),
    }


def check(batch, data):
    """Each edge of each neighborhood brings the attributes of that edge of the data."""
    several = "neighborhoods" in batch
    graphs = batch.neighborhoods if several else [batch.neighborhood]
    kinds, attributes = (
        batch[name] if several else [batch[name]] for name in ("edge_kind", "edge_attr")
    )
    assert len(graphs) == len(kinds) == len(attributes)
    nodes, edges = batch.get("original_id", batch.n_id), 0
    for graph, kind, attribute in zip(graphs, kinds, attributes, strict=True):
        ends = torch.stack([nodes[graph.indices], nodes[graph.targets()]])
        assert torch.equal(data.edge_index[:, kind], ends)
        assert torch.equal(data.edge_attr[kind], attribute)
        edges += len(kind)
    return edges


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("name", ["layers", "normalized", "sets", "parts", "layers of parts"])
def test_edges_bring_their_attributes(data, part, tmp_path, name, kept):
    source, options = data, {"attributes": NAMES}
    if kept:
        GraphFolder.write(data, tmp_path, part).verify()
        source, options = GraphFolder(tmp_path, NAMES), {}
        part = source.part
    assert sum(check(batch, data) for batch in loaders(source, part, **options)[name]) > 20


def test_those_that_nobody_asked_for_stay_behind_and_are_written_again(data, part, tmp_path):
    first = GraphFolder.write(data, tmp_path / "first", part)
    for loader in loaders(first, first.part).values():
        assert not {"edge_attr", "edge_kind"} & set(next(iter(loader)).keys())
    for attributes in (["x"], ["x", "edge_kind"]):
        some = GraphFolder(tmp_path / "first", attributes)
        assert [*some.edge] == attributes[1:]
        again = GraphFolder.write(some, tmp_path / str(len(attributes)))
        assert [*again.left] == attributes[1:] and [*again.node] == ["x"]
    GraphFolder.write(first, tmp_path / "second", first.ids(torch.arange(40)) % 3)
    second = GraphFolder(tmp_path / "second", NAMES)
    for batch in NodeSetLoader(second, Compose(), 1, batch_size=40):
        assert check(batch, data) == 90
    assert [*first.left] == ["edge_attr", "edge_kind"] or [*first.left] == [
        "edge_kind",
        "edge_attr",
    ]


@pytest.mark.parametrize("pattern", [AddSelf(), KHop(2), Compose(AddSelf(), GraphSAGE(2))])
def test_edges_that_the_data_has_not_are_refused(data, part, tmp_path, pattern):
    GraphFolder.write(data, tmp_path)
    for source, options in ((data, {"attributes": NAMES}), (GraphFolder(tmp_path, NAMES), {})):
        for make in (
            lambda *given, **more: NodeSetLoader(*given, 2, **more),
            AttentionSetLoader,
            lambda source, *given, **more: PartitionLoader(
                source, torch.zeros(40, dtype=torch.int64), *given, node_order="folder", **more
            ),
        ):
            with pytest.raises(
                ValueError, match=r"attributes: 'edge_.*' has a row for each edge of"
            ):
                list(make(source, pattern, **options))


def test_a_changed_byte_is_noticed_and_sparse_rows_are_refused(data, tmp_path):
    kept = GraphFolder.write(data, tmp_path / "one")
    path = tmp_path / "one" / "e.edge_attr.npy"
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 1
    path.write_bytes(raw)
    with pytest.raises(ValueError, match=r"edge_attr\.npy: damaged"):
        kept.verify()
    data.edge_attr = data.edge_attr.to_sparse_csr()
    with pytest.raises(ValueError, match=r"edge_attr: torch.sparse_csr .* for 2 rows"):
        GraphFolder.write(data, tmp_path / "two")


def test_as_many_edges_as_nodes():
    edges = torch.stack([torch.arange(4), torch.arange(4).roll(1)])
    data = Data(x=torch.eye(4), edge_index=edges, edge_kind=torch.arange(4), y=torch.arange(4))
    data.edge_attr = data.edge_kind[:, None]
    for batch in NodeSetLoader(data, Compose(), 1, batch_size=3, attributes=NAMES):
        assert check(batch, data) == batch.batch_size


def test_a_folder_of_an_older_version_is_read(data, tmp_path):
    del data.edge_attr, data.edge_kind
    GraphFolder.write(data, tmp_path)
    told = json.loads((tmp_path / "graph.json").read_text())
    del told["edge_attributes"], told["digest"]
    (tmp_path / "graph.json").write_text(json.dumps(told | {"digest": _digest_of(told)}))
    kept = GraphFolder(tmp_path)
    kept.verify()
    assert kept.edge == kept.left == {} and torch.equal(kept.node["x"], data.x)
