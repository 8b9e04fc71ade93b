import hashlib
import json
import os
import pickle
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix
from torch_geometric.data import Data

from battery.files import Forged
from graphtheory.lab.datasets import catalogue, graphs, safe_pickle
from graphtheory.lab.datasets.files import DamagedFileError, processed
from graphtheory.lab.datasets.node_readers import MASKS, READERS, read_ogbn
from tests.lab.datasets.ogbn_folder import EDGES, NODES, write_ogbn


def payload(canary: Path, how: str = "mkdir") -> Forged:
    """What makes the canary where it is unpickled."""
    name = str(canary)
    calls = {
        "os.system": (os.system, f"touch {name}"), "mkdir": (os.mkdir, name),
        "exec": (exec, f"import os; os.mkdir({name!r})"),
        "eval": (eval, f"__import__('os').mkdir({name!r})"),
    }  # fmt: skip
    call, argument = calls[how]
    return Forged(call, [argument])


def _pickled_as_in_2016(array: object) -> bytes:
    """Protocol 3 with the module names of the numpy and scipy that wrote Planetoid's files."""
    content = pickle.dumps(array, protocol=3)
    content = content.replace(b"cnumpy._core.multiarray\n", b"cnumpy.core.multiarray\n")
    return content.replace(b"cscipy.sparse._csr\n", b"cscipy.sparse.csr\n")


@pytest.mark.parametrize("how", ["os.system", "mkdir", "exec", "eval"])
def test_hostile_pickles_run_nothing(how: str, tmp_path: Path) -> None:
    path, canary = tmp_path / "ind.cora.x", tmp_path / "canary"
    for hostile in (payload(canary, how), [1, {"deep": payload(canary, how)}]):
        path.write_bytes(pickle.dumps(hostile, protocol=2))
        with pytest.raises(pickle.UnpicklingError, match="is not part of such a file"):
            safe_pickle.read(path, safe_pickle.MATRICES)
        assert not canary.exists()
    pickle.loads(path.read_bytes())  # the payload is real: plain pickle runs it
    assert canary.exists()


def test_the_old_format_of_matrices_and_arrays_is_read_and_no_other_name(tmp_path: Path) -> None:
    matrix = csr_matrix(np.eye(3, dtype=np.float32))
    path = tmp_path / "ind.cora.x"
    path.write_bytes(_pickled_as_in_2016(matrix))
    assert np.array_equal(safe_pickle.read(path, safe_pickle.MATRICES).toarray(), np.eye(3))
    path.write_bytes(_pickled_as_in_2016(np.arange(4)))
    assert safe_pickle.read(path, safe_pickle.MATRICES).tolist() == [0, 1, 2, 3]
    path.write_bytes(b"cnumpy\nfromfile\n.")
    with pytest.raises(pickle.UnpicklingError, match=r"numpy.fromfile is not part"):
        safe_pickle.read(path, safe_pickle.MATRICES)


def test_a_forged_processed_file_is_not_read_and_an_altered_raw_one_refused_unopened(
    data_root: Path, tmp_path: Path
) -> None:
    home, canary = tmp_path / "Planetoid/Cora", tmp_path / "canary"
    shutil.copytree(data_root / "Planetoid/Cora", home)
    (home / "processed").mkdir()
    for name in ("data.pt", "pre_transform.pt", "pre_filter.pt"):
        (home / "processed" / name).write_bytes(pickle.dumps(payload(canary)))
    assert graphs.load("Cora", tmp_path).num_nodes == 2708
    (home / "raw/ind.cora.x").write_bytes(pickle.dumps(payload(canary)))
    with pytest.raises(DamagedFileError, match=r"ind.cora.x: expected 22,119 bytes"):
        graphs.load("Cora", tmp_path)
    assert not canary.exists()


def test_pubmed_loads_with_its_features_and_names_the_file_without(
    data_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = tmp_path / "Planetoid/PubMed/raw"
    shutil.copytree(data_root / "Planetoid_PubMed_partial", raw)
    train, test = (
        safe_pickle.read(raw / f"ind.pubmed.{part}", safe_pickle.MATRICES).toarray()
        for part in ("x", "tx")
    )
    rows = np.zeros((19_717 - 1000, 500), dtype=np.float32)  # in the place of the file that lacks
    rows[: len(train)] = train
    rows[len(train) :, 7] = np.arange(len(train), len(rows))
    content = _pickled_as_in_2016(csr_matrix(rows))
    (raw / "ind.pubmed.allx").write_bytes(content)
    pin = (len(content), hashlib.sha256(content).hexdigest())
    info = graphs.describe("PubMed")
    pinned = replace(info, sha256={**info.sha256, "ind.pubmed.allx": pin})
    monkeypatch.setitem(catalogue._GRAPHS, "pubmed", pinned)
    data, bare = graphs.load("PubMed", tmp_path), graphs.load_topology("PubMed", tmp_path)
    assert data.x.shape == (19_717, 500) and data.num_classes == 3
    assert [int(data[mask].sum()) for mask in MASKS] == [60, 500, 1000]
    assert torch.equal(data.edge_index, bare.edge_index) and torch.equal(data.y, bare.y)
    order = torch.from_numpy(np.loadtxt(raw / "ind.pubmed.test.index", dtype=np.int64))
    for found, expected in ((data.x[:60], train), (data.x[order], test)):
        assert torch.equal(found, torch.from_numpy(expected).float())
    between = data.x[60:18_717]  # known nodes precede the test nodes
    assert torch.equal(between[:, 7], torch.arange(60.0, 18_717.0))
    assert graphs.load("PubMed", tmp_path, split="random-20", seed=2).train_mask.sum() == 60
    (raw / "ind.pubmed.allx").unlink()
    with pytest.raises(FileNotFoundError, match=r"1 of 8 raw files are missing \(ind.pubmed.allx"):
        graphs.load("PubMed", tmp_path)


OFFLINE = """
import socket, sys, threading
from graphtheory.lab.datasets import catalogue
catalogue.describe("Cora")
assert "torch_geometric" not in sys.modules
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


@pytest.fixture
def arxiv(tmp_path: Path) -> Path:
    """A small graph in the layout of ogbn-arxiv's archive."""
    write_ogbn(tmp_path, "arxiv")
    return tmp_path


def test_raw_files_are_read_as_by_ogb(arxiv: Path, capsys: pytest.CaptureFixture[str]) -> None:
    info = graphs.describe("ogbn-arxiv")
    stored = processed(info, arxiv, lambda root: dict(read_ogbn(root, info).items()))
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


def test_the_real_set_is_checked_by_counts_and_no_forged_split_is_read(
    arxiv: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRAPHTHEORY_CACHE", str(tmp_path_factory.mktemp("cache")))
    before = sorted(arxiv.rglob("*"))
    with pytest.raises(DamagedFileError, match="ogbn-arxiv: expected 169,343 nodes, found 30"):
        graphs.load("ogbn-arxiv", arxiv)
    assert sorted(arxiv.rglob("*")) == before
    (arxiv / "ogbn_arxiv/split/time/split_dict.pt").write_bytes(b"not a tensor")
    (arxiv / "ogbn_arxiv/processed").mkdir()
    (arxiv / "ogbn_arxiv/processed/data_processed").write_bytes(b"not a tensor")
    with pytest.raises(DamagedFileError, match="expected 169,343 nodes, found 30"):
        graphs.load("ogbn-arxiv", arxiv)


def test_proteins_have_the_mean_of_their_edges_and_products_run_both_ways(tmp_path: Path) -> None:
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
        graphs.load("ogbn-proteins", tmp_path)
    write_ogbn(tmp_path, "products")
    data = read_ogbn(tmp_path, graphs.describe("ogbn-products"))
    assert data.num_edges == 2 * EDGES and data.is_undirected() and data.y.dtype == torch.int64


def test_wikics_validates_on_two_masks(tmp_path: Path) -> None:
    nodes, splits = 6, 2
    folder = tmp_path / "WikiCS" / "raw"
    folder.mkdir(parents=True)
    of_split = [[i % 4 == part for i in range(nodes)] for part in range(4)]
    content = {
        "features": [[float(i)] * 3 for i in range(nodes)], "labels": [i % 2 for i in range(nodes)],
        "links": [[(i + 1) % nodes] for i in range(nodes)], "test_mask": of_split[3],
        "train_masks": [of_split[0]] * splits, "val_masks": [of_split[1]] * splits,
        "stopping_masks": [of_split[2]] * splits,
    }  # fmt: skip
    (folder / "data.json").write_text(json.dumps(content))
    data = READERS["wikics"](tmp_path, replace(catalogue.describe("WikiCS"), counts=()))
    expected = [of_split[0], [i % 4 in (1, 2) for i in range(nodes)], of_split[3]]
    for name, mask in zip(MASKS, expected, strict=True):
        assert data[name].t().tolist() == [mask] * splits
    assert data.num_edges == 2 * nodes  # both directions


def test_importing_ogb_reaches_for_nothing_and_a_name_needs_no_torch_geometric() -> None:
    done = subprocess.run(
        [sys.executable, "-c", OFFLINE], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
