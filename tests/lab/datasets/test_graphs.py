import dataclasses
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric import datasets as pyg
from torch_geometric.data import Data

from graphtheory.lab.datasets import graphs
from graphtheory.lab.datasets.files import DamagedFileError

# name: nodes, stored edges, features, classes, sizes of the default split 0
REAL = {
    "Cora": (2708, 10_556, 1433, 7, (140, 500, 1000)),
    "Actor": (7600, 30_019, 932, 5, (3648, 2432, 1520)),
    "Cornell": (183, 298, 1703, 5, (87, 59, 37)),
    "Wisconsin": (251, 515, 1703, 5, (120, 80, 51)),
    "chameleon-filtered": (890, 2 * 8854, 2325, 5, (409, 287, 194)),
    "minesweeper": (10_000, 2 * 39_402, 7, 2, (5000, 2500, 2500)),
    "tolokers": (11_758, 2 * 519_000, 10, 2, (5879, 2939, 2940)),
    "reed98": (962, 37_624, 745, 2, (433, 216, 216)),
    "johnshopkins55": (5180, 373_172, 2406, 2, (2382, 1190, 1190)),
    "Photo": (7650, 238_162, 745, 8, (4590, 1530, 1530)),
    "CS": (18_333, 163_788, 6805, 15, (10_999, 3667, 3667)),
    "facebook": (22_470, 2 * 171_002 - 179, 4714, 4, (13_482, 4494, 4494)),
}
EMBEDDED = {
    "digits": (1797, 19_858, 64, 10, (1079, 359, 359)),
    "karate": (34, 156, 34, 2, (20, 7, 7)),
    "core-neighborhood": (1000, 144_000, 20, 2, (600, 200, 200)),
    "core-distance": (1797, 19_858, 6, 6, (858, 286, 286)),
    "power-law": (169_343, 2_332_486, 128, 40, (101_605, 33_869, 33_869)),
}
MASKS = ("train_mask", "val_mask", "test_mask")
DIRECTED = {"Actor", "Cornell", "Wisconsin"}


def _check(data: Data, expected: tuple[int, int, int, int, tuple[int, int, int]]) -> None:
    nodes, edges, features, classes, sizes = expected
    assert data.x.shape == (nodes, features) and data.x.dtype == torch.float32
    assert data.y.shape == (nodes,) and data.y.dtype == torch.int64
    assert data.edge_index.shape == (2, edges) and data.edge_index.dtype == torch.int64
    assert int(data.edge_index.min()) >= 0 and int(data.edge_index.max()) < nodes
    assert data.num_classes == classes == int(data.y.max()) + 1
    masks = torch.stack([data[name] for name in MASKS])
    assert masks.shape == (3, nodes) and masks.dtype == torch.bool
    assert tuple(masks.sum(1).tolist()) == sizes
    assert int(masks.sum(0).max()) == 1, "a node is in two masks"


@pytest.mark.parametrize("name", EMBEDDED)
def test_embedded_sets_need_no_folder(name: str) -> None:
    data = graphs.load(name)
    _check(data, EMBEDDED[name])
    assert (data.name, data.split, data.metric) == (name, "random-60-20-20", "accuracy")
    assert data.is_undirected()


@pytest.mark.parametrize("name", REAL)
def test_real_sets_have_their_published_counts(name: str, data_root: Path, untouched: None) -> None:
    data = graphs.load(name, data_root)
    _check(data, REAL[name])
    assert data.is_undirected() == (name not in DIRECTED)
    assert data.metric == ("rocauc" if name in {"minesweeper", "tolokers"} else "accuracy")
    assert (data.x.layout == torch.sparse_csr) == (name in {"CS", "facebook"})


def _in_a_copy(data_root: Path, tmp_path: Path, folder: str) -> str:
    shutil.copytree(data_root / folder, tmp_path / folder)
    return str(tmp_path / folder.split("/")[0])


PYG = {  # folder, class and its arguments
    "Cora": ("Planetoid/Cora", pyg.Planetoid, ["Cora"]),
    "Actor": ("Actor", pyg.Actor, []),
    "Cornell": ("WebKB/cornell", pyg.WebKB, ["cornell"]),
    "Photo": ("Amazon/Photo", pyg.Amazon, ["Photo"]),
    "reed98": ("LINKXDataset/reed98", pyg.LINKXDataset, ["reed98"]),
    "minesweeper": (
        "HeterophilousGraphDataset/minesweeper", pyg.HeterophilousGraphDataset, ["minesweeper"]
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PYG)
def test_equal_to_the_class_of_pyg(name: str, data_root: Path, tmp_path: Path) -> None:
    folder, kind, given = PYG[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyG unpickles what numpy and scipy have since renamed
        theirs = kind(_in_a_copy(data_root, tmp_path, folder), *given)[0]
    for seed in (0, 7):
        ours = graphs.load(name, data_root, seed=seed)
        for part in ("x", "y", "edge_index"):
            assert torch.equal(ours[part], theirs[part]), part
        for mask in MASKS if not ours.split.startswith("random") else ():
            published = theirs[mask].view(len(ours.y), -1)
            assert torch.equal(ours[mask], published[:, seed % published.size(1)].bool()), mask


def test_what_comes_from_the_cache_is_what_was_read(
    data_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRAPHTHEORY_CACHE", str(tmp_path))
    for name in ("Cora", "facebook", "minesweeper"):
        first, second = (graphs.load(name, data_root) for _ in range(2))
        assert first.keys() == second.keys()
        for key in ("y", "edge_index", *MASKS):
            assert torch.equal(first[key], second[key])
        assert torch.equal(first.x.to_dense()[:100], second.x.to_dense()[:100])
    assert len(list(tmp_path.iterdir())) == 3


def test_labels_features_and_splits_of_real_sets(data_root: Path) -> None:
    x = graphs.load("facebook", data_root).x
    assert x.values().unique().tolist() == [1.0] and len(x.values()) == 314_583
    layer = torch.nn.Linear(x.size(1), 4)
    out = layer(x)
    out.sum().backward()
    torch.testing.assert_close(out[:50], layer(x.to_dense()[:50]))
    data = graphs.load("reed98", data_root)
    unlabeled = data.y < 0
    assert int(unlabeled.sum()) == 962 - (433 + 216 + 216)
    for mask in MASKS:
        assert not (data[mask] & unlabeled).any()
    data = graphs.load("cora", data_root, split="random-20")
    assert data.split == "random-20"
    assert data.y[data.train_mask].bincount().tolist() == [20] * 7
    assert [int(data[mask].sum()) for mask in MASKS] == [140, 500, 1000]
    masks = [graphs.load("Cornell", data_root, seed=seed).test_mask for seed in (0, 1, 10)]
    assert torch.equal(masks[0], masks[2]) and not torch.equal(masks[0], masks[1])


@pytest.mark.parametrize("name", ["digits", "core-neighborhood"])
def test_seed_repeats_and_varies_and_global_random_state_is_left_alone(name: str) -> None:
    before = torch.get_rng_state()
    same, again, other = (graphs.load(name, seed=seed) for seed in (3, 3, 4))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(same.train_mask, again.train_mask)
    assert torch.equal(same.edge_index, again.edge_index)
    assert not torch.equal(same.train_mask, other.train_mask)
    assert torch.equal(same.edge_index, other.edge_index) == (name == "digits")


@pytest.mark.parametrize(("arguments", "message"), [
    ({"name": "Coar"}, "unknown data set 'Coar', expected .*lists; did you mean 'Cora'"),
    ({"name": "karate", "split": "public"}, "karate has random-60-20-20; got 'public'"),
    ({"name": "Actor", "split": "x"}, "Actor has published, random-60-20-20; got 'x'"),
    ({"name": "karate", "seed": -1}, "seed: got -1, expected a whole number"),
    ({"name": "karate", "seed": 0.5}, "seed: got 0.5, expected a whole number"),
    ({"name": "ENZYMES"}, "ENZYMES is a set of graphs"),
])  # fmt: skip
def test_bad_arguments_are_named(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        graphs.load(**arguments)


@pytest.mark.parametrize("name", [n for n in graphs.names("node") if n not in EMBEDDED])
def test_missing_files_are_one_sentence_and_no_download(name: str, tmp_path: Path) -> None:
    info = graphs.describe(name)
    with pytest.raises(FileNotFoundError) as caught:
        graphs.load(name, tmp_path)
    message = str(caught.value)
    assert info.files[0] in message and str(tmp_path / info.folder) in message
    assert info.how in message and "\n" not in message
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(FileNotFoundError, match=f"root: {name} does not come with the package"):
        graphs.load(name)


def test_a_missing_file_is_named_alone(data_root: Path, tmp_path: Path) -> None:
    _in_a_copy(data_root, tmp_path, "Planetoid/Cora")
    (tmp_path / "Planetoid/Cora/raw/ind.cora.ty").unlink()
    with pytest.raises(FileNotFoundError, match=r"Cora: 1 of 8 raw files are missing \(ind.cora.t"):
        graphs.load("Cora", tmp_path)


def test_counts_catch_another_release(
    data_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = dataclasses.replace(graphs.describe("Cornell"), counts=(("nodes", 184),))
    monkeypatch.setattr(graphs, "describe", lambda name: info)
    monkeypatch.setenv("GRAPHTHEORY_CACHE", str(tmp_path))
    with pytest.raises(DamagedFileError, match="Cornell: expected 184 nodes, found 183"):
        graphs.load("Cornell", data_root)
    assert list(tmp_path.iterdir()) == [], "what was refused must not be cached"


@pytest.mark.parametrize("name", ["Cora", "PubMed"])
def test_topology_without_features(name: str, data_root: Path, untouched: None) -> None:
    data = graphs.load_topology(name, data_root)
    nodes, edges, classes = {"Cora": (2708, 10_556, 7), "PubMed": (19_717, 88_648, 3)}[name]
    assert data.x is None and data.y.shape == (nodes,) and data.num_nodes == nodes
    assert data.num_edges == edges and data.num_classes == classes and data.is_undirected()
    sizes = [int(data[mask].sum()) for mask in MASKS]
    assert sizes == [20 * classes, 500, 1000]
    assert data.y[data.train_mask].bincount().tolist() == [20] * classes
    if name == "Cora":
        full = graphs.load("Cora", data_root)
        assert all(torch.equal(data[key], full[key]) for key in ("y", "edge_index", *MASKS))


def test_nodes_whose_features_are_at_hand(data_root: Path, tmp_path: Path) -> None:
    cora, full = graphs.load_known("Cora", data_root), graphs.load("Cora", data_root)
    assert torch.equal(cora.x, full.x) and torch.equal(cora.y, full.y)
    folder = tmp_path / "Planetoid_Cora_partial"
    folder.mkdir()
    for part in ("x", "tx", "y", "ty", "ally", "graph", "test.index"):
        name = f"ind.cora.{part}"
        shutil.copyfile(data_root / "Planetoid/Cora/raw" / name, folder / name)
    some = graphs.load_known("cora", tmp_path)
    nodes = torch.cat([full[mask].nonzero().flatten() for mask in ("train_mask", "test_mask")])
    assert len(some.y) == 1140 and some.y.bincount().tolist() == full.y[nodes].bincount().tolist()
    test = np.loadtxt(folder / "ind.cora.test.index", dtype=np.int64)
    order = torch.cat([nodes[:140], torch.from_numpy(test)])
    assert torch.equal(some.x, full.x[order]) and torch.equal(some.y, full.y[order])
    (folder / "ind.cora.tx").unlink()
    with pytest.raises(FileNotFoundError, match="Cora: 8 of 8 raw files are missing"):
        graphs.load_known("Cora", tmp_path)
    with pytest.raises(FileNotFoundError, match="Actor: 12 of 12"):
        graphs.load_known("Actor", tmp_path)


def test_topology_is_for_planetoid_only(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="name: got 'Actor', expected 'Cora', 'CiteSeer' or"):
        graphs.load_topology("Actor", tmp_path)
    with pytest.raises(FileNotFoundError, match="PubMed: 5 of 5 raw files are missing"):
        graphs.load_topology("PubMed", tmp_path)
