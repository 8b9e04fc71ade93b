import csv
import gzip
import io
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from graphtheory.lab.datasets import graph_readers, graphs
from graphtheory.lab.datasets.files import DamagedFileError, processed
from graphtheory.lab.datasets.graph_readers import molecule, scaffold_split
from graphtheory.lab.datasets.node_readers import read_ogbn
from tests.lab.datasets.ogbn_folder import EDGES, NODES, write_ogbn

OFFLINE = """
import socket, sys, threading
reached = []
socket.socket.connect = lambda *a: reached.append(a)
socket.getaddrinfo = lambda *a, **k: reached.append(a)
from graphtheory.lab.datasets.graph_readers import import_ogb
known = set(threading.enumerate())
module = import_ogb("ogb.nodeproppred")
assert module.NodePropPredDataset and module.Evaluator("ogbn-arxiv").eval_metric == "acc"
assert set(threading.enumerate()) == known, threading.enumerate()
assert "outdated" not in sys.modules and not reached, reached
"""


needs_rdkit = pytest.mark.skipif(find_spec("rdkit") is None, reason="needs the extra [molecules]")


@pytest.fixture
def arxiv(tmp_path: Path) -> Path:
    """A small graph in the layout of ogbn-arxiv's archive."""
    write_ogbn(tmp_path, "arxiv")
    return tmp_path


def test_raw_files_are_read_as_ogb_reads_them(
    arxiv: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    info = graphs.describe("ogbn-arxiv")
    stored = processed(
        info, arxiv, arxiv / "cache", lambda root: dict(read_ogbn(root, info).items())
    )
    data = Data(**stored)
    raw = arxiv / "ogbn_arxiv/raw"
    edges = np.loadtxt(raw / "edge.csv.gz", delimiter=",", dtype=np.int64)  # unpacks by itself
    assert torch.equal(data.edge_index, torch.from_numpy(edges.T))
    features = np.loadtxt(raw / "node-feat.csv.gz", delimiter=",")
    torch.testing.assert_close(data.x, torch.from_numpy(features).float())
    assert data.y.shape == (NODES,) and data.y.dtype == torch.int64
    masks = torch.cat([data.train_mask, data.val_mask, data.test_mask], dim=1)
    assert masks.sum(0).tolist() == [18, 6, 6] and bool((masks.sum(1) == 1).all())
    assert capsys.readouterr() == ("", "")  # neither ogb's lines nor its progress bar


def test_load_checks_the_counts_of_the_real_set(arxiv: Path) -> None:
    before = sorted(arxiv.rglob("*"))
    with pytest.raises(DamagedFileError, match="ogbn-arxiv: expected 169,343 nodes, found 30"):
        graphs.load("ogbn-arxiv", arxiv)
    assert sorted(arxiv.rglob("*")) == before


def test_a_forged_split_file_is_not_read(arxiv: Path) -> None:
    (arxiv / "ogbn_arxiv/split/time/split_dict.pt").write_bytes(b"not a tensor")
    (arxiv / "ogbn_arxiv/processed").mkdir()
    (arxiv / "ogbn_arxiv/processed/data_processed").write_bytes(b"not a tensor")
    with pytest.raises(DamagedFileError, match="expected 169,343 nodes, found 30"):
        graphs.load("ogbn-arxiv", arxiv)


def test_proteins_have_the_mean_of_their_edges_and_many_labels(tmp_path: Path) -> None:
    edges = np.random.default_rng(1).integers(NODES - 1, size=(EDGES, 2))
    rows = write_ogbn(tmp_path, "proteins", edge=edges)
    features, labels = rows["edge-feat"], rows["node-label"]
    data = read_ogbn(tmp_path, graphs.describe("ogbn-proteins"))
    assert data.num_edges == 2 * EDGES and data.x.shape == (NODES, 8)
    at = (edges == 5).any(1)
    counted = np.where((edges == 5).all(1), 2, 1)[at, None]  # a self-loop is stored twice
    expected = (features[at] * counted).sum(0) / counted.sum()
    torch.testing.assert_close(data.x[5], torch.from_numpy(expected).float())
    assert not bool(data.x[NODES - 1].any())
    assert torch.equal(data.y, torch.from_numpy(labels).float())
    with pytest.raises(DamagedFileError, match="ogbn-proteins: expected 132,534 nodes, found 30"):
        graphs.load("ogbn-proteins", tmp_path, cache=tmp_path / "cache")


def test_products_run_both_ways(tmp_path: Path) -> None:
    write_ogbn(tmp_path, "products")
    data = read_ogbn(tmp_path, graphs.describe("ogbn-products"))
    assert data.num_edges == 2 * EDGES and data.is_undirected() and data.y.dtype == torch.int64


def test_importing_ogb_reaches_for_nothing() -> None:
    done = subprocess.run(
        [sys.executable, "-c", OFFLINE], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@needs_rdkit
def test_ethanol_has_ogbs_features(capfd: pytest.CaptureFixture[str]) -> None:
    graph = molecule("CCO")
    assert graph is not None
    assert graph.x[:, 0].tolist() == [5, 5, 7]  # atomic number - 1
    assert graph.edge_index.tolist() == [[0, 1, 1, 2], [1, 0, 2, 1]]
    assert graph.x.shape == (3, 9) and graph.edge_attr.shape == (4, 3)
    atoms, bonds = graph_readers._category_sizes().values()
    assert bool((graph.x < torch.tensor(atoms)).all()) and len(bonds) == 3
    single = molecule("[Na+]")
    assert single is not None and single.edge_index.shape == (2, 0)
    assert single.edge_attr.shape == (0, 3)
    assert [molecule(text) for text in ("", "C(", "c1ccc", "not a molecule")] == [None] * 4
    assert capfd.readouterr() == ("", "")


@needs_rdkit
def test_scaffolds_stay_together_and_the_largest_train() -> None:
    rings = [f"c1ccccc1{'C' * i}" for i in range(1, 7)]  # one scaffold
    others = ["C1CC1C", "C1CCC1C", "C1CCCC1C", "CC"]
    parts = scaffold_split([*others, *rings])
    assert set(range(4, 10)) < set(parts.train.tolist())
    assert [len(part) for part in parts] == [8, 1, 1]
    assert sorted(torch.cat(list(parts)).tolist()) == list(range(10))
    with pytest.raises(ValueError, match=r"smiles: row 1, 'C.', is not a SMILES"):
        scaffold_split(["CC", "C("])


@needs_rdkit
@pytest.mark.parametrize("name", ["molesol", "molbace"])
def test_the_split_is_ogbs_on_ogbs_molecules(name: str, data_root: Path) -> None:
    folder = data_root / f"OGB/ogbg_{name}"
    table = io.StringIO(gzip.decompress((folder / "mapping/mol.csv.gz").read_bytes()).decode())
    parts = scaffold_split([row["smiles"].strip() for row in csv.DictReader(table)])
    for part, file in zip(parts, ("train", "valid", "test"), strict=True):
        published = gzip.decompress((folder / f"split/scaffold/{file}.csv.gz").read_bytes())
        assert part.tolist() == sorted(map(int, published.split()))


def test_without_rdkit_one_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise graph_readers.PackageNotFoundError(name)

    monkeypatch.setattr(graph_readers, "version", missing)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'graphtheory\[molecules\]'"):
        molecule("CC")
