import io
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.datasets import ZINC, LRGBDataset

from graphtheory.lab.datasets.files import DamagedFileError
from graphtheory.lab.datasets.graphs import load, load_graphs

PARTS = ("train", "val", "test")


@pytest.fixture(autouse=True)
def any_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphtheory.lab.datasets.files.verify_counts", lambda info, found: None)


def write_zinc(root: Path, generator: torch.Generator) -> None:
    (root / "ZINC/raw").mkdir(parents=True)
    for part in PARTS:
        molecules = []
        for size in (3, 5, 4, 6):
            bonds = torch.randint(4, (size, size), generator=generator).triu(1)
            molecules.append(
                {
                    "num_atom": size,
                    "atom_type": torch.randint(28, (size,), generator=generator),
                    "bond_type": bonds + bonds.t(),
                    "logP_SA_cycle_normalized": torch.rand(1, generator=generator) - 2,
                }
            )
        (root / f"ZINC/raw/{part}.pickle").write_bytes(pickle.dumps(molecules))
        (root / f"ZINC/raw/{part}.index").write_text("2,0,3\n")


def test_zinc_is_pygs(tmp_path: Path, generator: torch.Generator) -> None:
    write_zinc(tmp_path, generator)
    made = load_graphs("zinc", tmp_path, cache=tmp_path / "cache")
    assert (made.kind, made.metric, made.num_outputs) == ("regression", "mae", 1)
    assert made.x_categories == (28,) and made.edge_categories == (4,)
    assert made.val_index.tolist() == [3, 4, 5]
    for start, part in zip((0, 3, 6), PARTS, strict=True):
        theirs = ZINC(str(tmp_path / "ZINC"), subset=True, split=part)
        for offset in range(3):
            ours = made[start + offset]
            assert torch.equal(ours.x, theirs[offset].x)
            assert torch.equal(ours.edge_index, theirs[offset].edge_index)
            assert torch.equal(ours.edge_attr.view(-1), theirs[offset].edge_attr)
            assert torch.equal(ours.y.view(-1), theirs[offset].y)


def test_superpixels_are_pygs(tmp_path: Path, generator: torch.Generator) -> None:
    folder = tmp_path / "LRGB/pascalvoc-sp/raw"
    folder.mkdir(parents=True)
    for part in PARTS:
        graphs = []
        for size in (4, 7):
            edges = torch.randint(size, (2, 9), generator=generator)
            x, edge_attr = (torch.rand(n, k, generator=generator) for n, k in ((size, 14), (9, 2)))
            graphs.append((x.double(), edge_attr.double(), edges, np.arange(size).tolist()))
        (folder / f"{part}.pickle").write_bytes(pickle.dumps(graphs))
    made = load_graphs("PascalVOC-SP", tmp_path, cache=tmp_path / "cache")
    assert (made.level, made.kind, made.metric, made.num_outputs) == ("node", "multiclass", "f1", 7)
    theirs = LRGBDataset(str(tmp_path / "LRGB"), "PascalVOC-SP", split="val")
    for offset in range(2):
        for name in ("x", "edge_index", "edge_attr", "y"):
            assert torch.equal(made[2 + offset][name], theirs[offset][name])
    assert made.val_index.tolist() == [2, 3]


def test_the_second_training_graph_alone(tmp_path: Path, generator: torch.Generator) -> None:
    folder = tmp_path / "LRGB/pascalvoc-sp/raw"
    folder.mkdir(parents=True)
    graphs = []
    for size, classes in ((6, [0, 1]), (40, [0, 15, 18])):
        edges = torch.randint(size, (2, 90), generator=generator)
        x, edge_attr = (torch.rand(n, k, generator=generator) for n, k in ((size, 14), (90, 2)))
        y = [classes[node % len(classes)] for node in range(size)]
        graphs.append((x.double(), edge_attr.double(), edges, y))
    (folder / "train.pickle").write_bytes(pickle.dumps(graphs))
    made = load("pascalvoc-sp-1g", tmp_path, cache=tmp_path / "cache")
    assert torch.equal(made.x, graphs[1][0].float()) and torch.equal(made.edge_index, graphs[1][2])
    assert made.num_classes == 3 and made.y.tolist() == [node % 3 for node in range(40)]
    assert int(made.train_mask.sum()) == 24


class Dangerous:
    def __reduce__(self) -> tuple[object, ...]:
        return (print, ("the file was unpickled",))


class Inside:
    def __reduce__(self) -> tuple[object, ...]:
        buffer = io.BytesIO()
        torch.save(Dangerous(), buffer, _use_new_zipfile_serialization=False)
        return (torch.storage._load_from_bytes, (buffer.getvalue(),))


def test_nothing_else_is_unpickled(
    tmp_path: Path, generator: torch.Generator, capfd: pytest.CaptureFixture[str]
) -> None:
    write_zinc(tmp_path, generator)
    (tmp_path / "ZINC/raw/val.pickle").write_bytes(pickle.dumps([Dangerous()]))
    with pytest.raises(DamagedFileError, match=r"builtin\w*\.print is not part of such a file"):
        load_graphs("ZINC", tmp_path, cache=tmp_path / "cache")
    inner = pickle.dumps([torch.ones(2)]).replace(b"_load_from_bytes", b"_load_from_bytez")
    (tmp_path / "ZINC/raw/val.pickle").write_bytes(inner)
    with pytest.raises(DamagedFileError, match="_load_from_bytez is not part"):
        load_graphs("ZINC", tmp_path, cache=tmp_path / "cache")
    (tmp_path / "ZINC/raw/val.pickle").write_bytes(pickle.dumps([Inside()]))
    with pytest.raises(DamagedFileError, match=r"builtin\w*\.print is not part of such a file"):
        load_graphs("ZINC", tmp_path, cache=tmp_path / "cache")
    (tmp_path / "ZINC/raw/val.pickle").write_bytes(b"")
    with pytest.raises(DamagedFileError, match="ZINC: the raw files of ZINC/raw cannot be read"):
        load_graphs("ZINC", tmp_path, cache=tmp_path / "cache")
    assert "unpickled" not in capfd.readouterr().out
