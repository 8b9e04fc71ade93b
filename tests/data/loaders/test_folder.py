import json
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from graphtheory import ops
from graphtheory.data.loaders import (
    AttentionSetLoader,
    GraphFolder,
    NodeSetLoader,
    PartitionLoader,
    writing,
)
from graphtheory.patterns import LADIES, AddSelf, Compose, KHop, Sample


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(writing, "_ROWS", 7)


@pytest.fixture
def part():
    return torch.randint(5, (40,), generator=torch.Generator().manual_seed(1))


def permuted(data, order):
    """The same graph in memory, with nodes in another order."""
    new = torch.empty_like(order)
    new[order] = torch.arange(len(order))
    kept = {"x": data.x[order], "y": data.y[order], "edge_index": new[data.edge_index]}
    if "edge_weight" in data:
        kept["edge_weight"] = data.edge_weight
    return Data(**kept, original_id=order)


LOADERS = [
    lambda data: NodeSetLoader(data, LADIES(9), 2, batch_size=7, shuffle=True),
    lambda data: AttentionSetLoader(data, Compose(KHop(2), Sample(3), AddSelf()), batch_size=7),
    lambda data: PartitionLoader(
        data, torch.arange(40) // 9, node_order="folder", batch_size=2, shuffle=True
    ),
]


@pytest.mark.parametrize("load", LOADERS)
@pytest.mark.parametrize("weighted", [True, False])
def test_batches_from_files_are_those_from_memory(data, part, tmp_path, load, same, weighted):
    if not weighted:
        del data.edge_weight
    data = data.sort(sort_by_row=False)  # edges of a row keep their order
    kept = GraphFolder.write(data, tmp_path / "graph", part)
    order = part.argsort(stable=True)
    assert torch.equal(kept.original_id, order) and torch.equal(kept.part, part[order])
    found = list(load(GraphFolder(tmp_path / "graph")))
    assert same(found, list(load(permuted(data, order))))
    assert all(torch.equal(batch.x, data.x[batch.original_id]) for batch in found)


def test_a_part_lies_in_one_piece(data, part, tmp_path):
    kept = GraphFolder.write(data, tmp_path, part)
    assert kept.part.tolist() == sorted(part.tolist())
    for batch in PartitionLoader(kept, kept.part, batch_size=1):
        nodes = batch.n_id
        assert nodes.tolist() == list(range(int(nodes[0]), int(nodes[0]) + len(nodes)))


def test_nothing_is_read_whole(data, tmp_path):
    kept = GraphFolder.write(data, tmp_path)
    mapped = {"edges.indices": kept.graph.indices, "edges.weight": kept.graph.weight}
    for name, tensor in (mapped | {"x.x": kept.node["x"], "part": kept.part}).items():
        on_disk = np.load(tmp_path / f"{name}.npy", mmap_mode="r+")
        on_disk[-1] = 17
        assert bool((tensor[-1] == 17).all()), f"{name} is a copy in memory"
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    kept.node["x"].zero_()
    kept.graph.weight.zero_()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_another_process_maps_the_files_itself(data, tmp_path):
    kept = GraphFolder.write(data, tmp_path)
    wire = pickle.dumps(GraphFolder(tmp_path, ["y"]))
    assert len(wire) < 1000
    again = pickle.loads(wire)
    assert list(again.node) == ["y"] and torch.equal(again.graph.indices, kept.graph.indices)


def test_numbers_and_strings_travel_and_a_graph_without_edges_is_one(tmp_path):
    alone = torch.empty(2, 0, dtype=torch.int64)
    data = Data(x=torch.eye(3), edge_index=alone, name="three", num_classes=2)
    kept = GraphFolder.write(data, tmp_path)
    assert kept.graph.num_edges == 0
    (batch,) = PartitionLoader(kept, kept.part)
    assert (batch.name, batch.num_classes) == ("three", 2) and torch.equal(batch.x, torch.eye(3))


def test_what_cannot_be_written_is_refused_before_anything_is(data, tmp_path):
    sparse = Data(x=torch.eye(40).to_sparse_csr(), edge_index=data.edge_index)
    with pytest.raises(ValueError, match=r"x: torch.sparse_csr of shape \(2, 40\) for 2 rows"):
        GraphFolder.write(sparse, tmp_path / "sparse")
    half = Data(x=torch.ones(40, 2).bfloat16(), edge_index=data.edge_index)
    with pytest.raises(TypeError, match=r"x: dtype torch.bfloat16, expected one that numpy has"):
        GraphFolder.write(half, tmp_path / "sparse")
    for value in (torch.zeros(1), torch.tensor(3.0)):
        data.level = value
        with pytest.raises(ValueError, match=r"level: torch.strided of shape .* for 2 rows"):
            GraphFolder.write(data, tmp_path / "level")
    del data.level
    data.original_id = torch.arange(40)
    with pytest.raises(ValueError, match="original_id: the folder says something else"):
        GraphFolder.write(data, tmp_path / "named")
    del data.original_id
    data["a" * 241] = torch.arange(40)
    with pytest.raises(ValueError, match="attributes: got a name of 241 letters, expected up to"):
        GraphFolder.write(data, tmp_path / "named")
    assert not (tmp_path / "sparse").exists() and not (tmp_path / "named").exists()
    del data["a" * 241]
    (tmp_path / "full").mkdir()
    (tmp_path / "full/mine.txt").write_text("")
    with pytest.raises(FileExistsError, match="folder: something lies in"):
        GraphFolder.write(data, tmp_path / "full")
    with pytest.raises(TypeError, match="part: got"):
        GraphFolder.write(data, tmp_path / "parts", torch.zeros(40))


def test_what_is_no_folder_of_ours(data, tmp_path):
    with pytest.raises(FileNotFoundError):
        GraphFolder(tmp_path / "nothing")
    kept = GraphFolder.write(data, tmp_path / "graph")
    with pytest.raises(ValueError, match="attributes: 'z' is none of the data's"):
        GraphFolder(tmp_path / "graph", ["z"])
    with pytest.raises(TypeError, match="attributes: got some, expected None"):
        NodeSetLoader(kept, LADIES(3), 1, attributes=["x"])
    np.save(tmp_path / "graph/edges.indices.npy", np.zeros(3, dtype=np.int64))
    with pytest.raises(
        ValueError, match=r"edges.indices.npy: int64 \[3\], expected numbers in 90 rows"
    ):
        GraphFolder(tmp_path / "graph")
    told = json.loads((tmp_path / "graph/graph.json").read_text())
    assert told["attributes"] == ["x", "y"]


def as_a_folder(path):
    path.unlink()
    path.mkdir()


def header_of_many_rows(path):
    content = path.read_bytes().replace(b"(90,)", b"(%d,)" % 2**60)
    path.write_bytes(content)


@pytest.mark.filterwarnings("ignore:overflow encountered")
@pytest.mark.parametrize("damage", [
    as_a_folder,
    header_of_many_rows,
    lambda path: np.save(path, np.zeros(90, np.longdouble)),
    lambda path: np.save(path, np.zeros(90, ">i8")),
    lambda path: np.save(path, np.array(["a"] * 90)),
])  # fmt: skip
def test_what_numpy_or_torch_refuses_is_named(data, tmp_path, damage):
    GraphFolder.write(data, tmp_path / "graph")
    damage(tmp_path / "graph/edges.indices.npy")
    with pytest.raises(ValueError, match=r"edges.indices.npy: cut off or damaged .*90 rows"):
        GraphFolder(tmp_path / "graph")


def test_facts_that_cannot_be_are_refused_by_name(data, tmp_path):
    GraphFolder.write(data, tmp_path / "graph")
    facts = tmp_path / "graph/graph.json"
    told = json.loads(facts.read_text())
    facts.write_text(json.dumps(told | {"edges": 2**63}))
    with pytest.raises(ValueError, match=f"graph.json: edges: {2**63}, expected int"):
        GraphFolder(tmp_path / "graph")
    for more in ({"whole": {"x": 3}}, {"whole": {"edge_index": 3}}, {"attributes": ["x", "x"]}):
        told.pop("digest", None)
        facts.write_text(json.dumps(told | more))
        with pytest.raises(ValueError, match=r"graph.json: attributes: got .* expected each once"):
            GraphFolder(tmp_path / "graph")
    facts.write_text(json.dumps(told | {"attributes": ["x", "ä" * 121]}))
    with pytest.raises(ValueError, match="a name of 121 letters, expected up to 240 bytes"):
        GraphFolder(tmp_path / "graph")
    as_a_folder(facts)
    with pytest.raises(ValueError, match=r"graph.json: .*; write the folder again"):
        GraphFolder(tmp_path / "graph")


def resident(path):
    """Bytes of a mapped file that this process holds."""
    found, inside = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if not line[0].isupper():
            inside = line.endswith(str(path))
        elif inside and line.startswith("Rss:"):
            found += int(line.split()[1]) * 1024
    return found


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="needs Linux's /proc")
def test_a_batch_of_one_part_reads_its_pages_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(writing, "_ROWS", 65_536)
    draw, nodes = torch.Generator().manual_seed(0), 100_000
    part = torch.randint(50, (nodes,), generator=draw)
    edges = torch.randint(nodes, (2, 20 * nodes), generator=draw)
    GraphFolder.write(Data(edge_index=edges, x=torch.zeros(nodes, 8)), tmp_path, part)
    kept = GraphFolder(tmp_path)
    files = {name: tmp_path / f"{name}.npy" for name in ("edges.indices", "x.x")}
    size = {name: path.stat().st_size for name, path in files.items()}
    batch = next(
        iter(PartitionLoader(kept, kept.part, input_nodes=[nodes // 2], node_order="folder"))
    )
    assert abs(batch.num_nodes - nodes / 50) < 300
    for name, path in files.items():
        assert 0 < resident(path) < 0.1 * size[name], name
    kept.graph.indices.sum()
    assert resident(files["edges.indices"]) > 0.9 * size["edges.indices"]


def test_a_changed_byte_is_seen(tmp_path: Path) -> None:
    data = Data(x=torch.eye(3), edge_index=torch.tensor([[0, 1], [1, 2]]))
    folder = GraphFolder.write(data, tmp_path / "graph")
    folder.verify()
    path = tmp_path / "graph" / "x.x.npy"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(ValueError, match=r"x\.x\.npy: damaged"):
        folder.verify()
    path.write_bytes(whole)
    told = tmp_path / "graph" / "graph.json"
    told.write_text(told.read_text().replace('"weighted": false', '"weighted": true'))
    with pytest.raises(ValueError, match=r"graph\.json: damaged"):
        GraphFolder(tmp_path / "graph")


MASK = torch.arange(40) % 9 == 7
SEEDS = {"ids": [7], "tensor": torch.tensor([33, 7, 2]), "mask": MASK}


@pytest.mark.parametrize("kind", SEEDS)
@pytest.mark.parametrize("load", [
    lambda data, part, **options: NodeSetLoader(data, Compose(), 1, **options),
    lambda data, part, **options: AttentionSetLoader(data, KHop(1), **options),
    lambda data, part, **options: PartitionLoader(data, part, **options),
])  # fmt: skip
def test_seeds_of_a_folder_in_parts_are_those_that_were_said(data, part, tmp_path, load, kind):
    data.train_mask, seeds = MASK, SEEDS[kind]
    kept = GraphFolder.write(data, tmp_path / "graph", part)
    with pytest.raises(ValueError, match=r"input_nodes: .* node_order='original'"):
        load(kept, kept.part, input_nodes=seeds)
    options = {"input_nodes": seeds, "batch_size": 5}
    for given in (part, kept.part):  # the parts that were written, or those of the folder
        (batch,) = load(kept, given, **options, node_order="original")
        (wanted,) = load(data, part, **options)
        seen, size = batch.original_id[: batch.batch_size], wanted.batch_size
        assert sorted(seen.tolist()) == sorted(wanted.n_id[:size].tolist())
        assert torch.equal(batch.y[: batch.batch_size], data.y[seen])
        known = torch.arange(40) if kind == "mask" else torch.as_tensor(seeds)
        assert torch.equal(known[batch.input_id], seen)
    (batch,) = load(kept, kept.part, **options | {"node_order": "folder"})
    assert set(batch.n_id[: batch.batch_size].tolist()) == set(
        (seeds.nonzero().flatten() if kind == "mask" else torch.as_tensor(seeds)).tolist()
    )
    (batch,) = load(kept, kept.part, input_nodes=kept.node["train_mask"], batch_size=5)
    assert set(batch.original_id[: batch.batch_size].tolist()) == {7, 16, 25, 34}


def test_parts_of_an_order_that_nobody_said_are_refused(data, part, tmp_path):
    kept = GraphFolder.write(data, tmp_path / "graph", part)
    with pytest.raises(ValueError, match=r"part: .* has its nodes in the order of their parts"):
        PartitionLoader(kept, part)
    with pytest.raises(ValueError, match="node_order: got 'old', expected 'original' or 'folder'"):
        NodeSetLoader(data, Compose(), 1, node_order="old")
    alone = GraphFolder.write(data, tmp_path / "alone")  # whose nodes did not move
    (batch,) = NodeSetLoader(alone, Compose(), 1, input_nodes=[7])
    assert batch.n_id[0] == batch.original_id[0] == 7


def test_original_ids_are_looked_up(data, part, tmp_path):
    kept = GraphFolder.write(data, tmp_path, part)
    assert torch.equal(kept.original_id[kept.ids([7, 33, 7])], torch.tensor([7, 33, 7]))
    assert torch.equal(kept.node["x"][kept.ids(MASK)], data.x[MASK])
    for outside in ([40], [-1]):
        with pytest.raises(IndexError, match=r"expected a node id in 0\.\.39"):
            kept.ids(outside)
    twice = kept.original_id.numpy().copy()
    twice[twice == 3] = 4
    np.save(tmp_path / "original_id.npy", twice)
    with pytest.raises(ValueError, match=r"original_id\.npy: no node that was 3, expected each of"):
        GraphFolder(tmp_path).ids([1])


@pytest.mark.parametrize("stop", [KeyboardInterrupt, OSError("no space left"), None])
def test_an_interrupted_writing_leaves_nothing_in_the_way(data, tmp_path, monkeypatch, stop):
    path = tmp_path / "graph"
    if stop is None:  # killed long ago, before anything could be cleared away
        left = tmp_path / ".graph.1.draft"
        left.mkdir()
        (left / "part.npy").write_bytes(b"")
        for old in (left / "part.npy", left):
            os.utime(old, (0, 0))
    else:
        with monkeypatch.context() as broken, pytest.raises((KeyboardInterrupt, OSError)):
            broken.setattr(writing, "_edges_of", lambda *_: (_ for _ in ()).throw(stop))
            GraphFolder.write(data, path)
        assert not list(tmp_path.iterdir())
    GraphFolder.write(data, path).verify()
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("size", [0, 5, 40, 200])
@pytest.mark.parametrize("name", [
    "edges.indptr", "edges.indices", "edges.weight", "part", "original_id", "x.x"
])  # fmt: skip
def test_a_file_that_was_cut_off_is_named(data, tmp_path, name, size):
    GraphFolder.write(data, tmp_path)
    path = tmp_path / f"{name}.npy"
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(ValueError, match=rf"{name}\.npy: cut off .*write the folder again"):
        GraphFolder(tmp_path)


def test_the_table_notices_seeds_that_are_taken_as_they_stand(data, part, tmp_path, monkeypatch):
    kept = GraphFolder.write(data, tmp_path, part)
    monkeypatch.setattr(GraphFolder, "is_original", lambda *_: False)  # as it was before
    batch = next(iter(NodeSetLoader(kept, Compose(), 1, input_nodes=[7])))
    assert batch.original_id[0] != 7


def test_ids_that_change_under_an_open_folder_lead_no_loop_astray(data, tmp_path):
    kept = GraphFolder.write(data, tmp_path)
    sets = AttentionSetLoader(kept, Compose(KHop(2), Sample(3), AddSelf()), batch_size=8)
    before = [batch.neighborhood.edge_index() for batch in sets]
    np.load(tmp_path / "edges.indices.npy", mmap_mode="r+")[:] = 10**9
    sets.set_epoch(0)
    assert all(map(torch.equal, before, [batch.neighborhood.edge_index() for batch in sets]))
    with pytest.raises(IndexError, match="indices: entry 0 is 1000000000"):
        NodeSetLoader(kept, Sample(3), 2, batch_size=8)


def test_edges_of_the_folder_itself_are_looked_at_in_each_operation(data, tmp_path):
    kept = GraphFolder.write(data, tmp_path)
    list(AttentionSetLoader(kept, Compose(KHop(2), Sample(3)), batch_size=8))
    x = torch.ones(40, 1, 1, dtype=torch.float64, requires_grad=True)
    ops.aggregate(None, x, kept.graph).sum().backward()
    kept.graph.indices[0] = 39 - kept.graph.indices[0]
    with pytest.raises(ValueError, match="changed in place"):
        ops.aggregate(None, x, kept.graph)
