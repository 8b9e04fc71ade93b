import csv
import gzip
import io
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch_geometric.datasets import ZINC, LRGBDataset, MoleculeNet

from battery.files import Forged
from graphtheory.lab.datasets import graph_readers
from graphtheory.lab.datasets.files import DamagedFileError
from graphtheory.lab.datasets.graph_readers import molecule, scaffold_split
from graphtheory.lab.datasets.graphs import load, load_graphs
from tests.lab.datasets.conftest import needs_rdkit
from tests.lab.datasets.test_text_files import read_free, read_peptides


def write_tudataset(root: Path, name: str, *, labels: str = "graph_labels", **more: str) -> None:
    """Two triangles, a path of three and two nodes without an edge; ids from 1."""
    folder = root / f"TUDataset/{name}/raw"
    folder.mkdir(parents=True)
    triangles = [(a + s, b + s) for s in (1, 4) for a in range(3) for b in range(3) if a != b]
    path = [(7, 8), (8, 7), (8, 9), (9, 8)]
    files = {
        "A": "\n".join(f"{a}, {b}" for a, b in triangles + path),
        "graph_indicator": "\n".join(str(g) for g in (1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 5)),
        labels: "\n".join(("1", "1", "-1", "1", "-1")),
    }
    for part, text in (files | more).items():
        (folder / f"{name}_{part}.txt").write_text(text + "\n")


def test_any_tudataset_is_found_by_its_folder(tmp_path: Path) -> None:
    write_tudataset(tmp_path, "My_Own")
    read = load_graphs("my-own", tmp_path)
    assert (read.name, read.kind, read.metric, read.num_outputs) == (
        "My_Own", "multiclass", "accuracy", 2,
    )  # fmt: skip
    degrees = torch.tensor([1.0, 2.0, 1.0]).log1p()[:, None]
    assert torch.equal(read[2].x, degrees) and read[2].y.tolist() == [0]
    assert read[4].num_nodes == 1 and read[4].edge_index.shape == (2, 0)  # no edges at the end
    with pytest.raises(ValueError, match=r"unknown data set 'your-own', expected one of digits"):
        load_graphs("your-own", tmp_path)


def test_attributes_come_before_labels_of_nodes_and_edges(tmp_path: Path) -> None:
    attributes = "\n".join(f"{i}.5" for i in range(11))
    of_nodes, of_edges = "\n".join("01101001011"), "\n".join("0" * 12 + "2" * 4)
    write_tudataset(
        tmp_path, "toy", node_labels=of_nodes, node_attributes=attributes, edge_labels=of_edges
    )
    made = load_graphs("toy", tmp_path)
    assert made[0].x.tolist() == [[0.5, 1.0, 0.0], [1.5, 0.0, 1.0], [2.5, 0.0, 1.0]]
    assert made[0].edge_attr.shape == (6, 3) and made[2].edge_attr[:, 2].tolist() == [1.0] * 4


def test_real_values_are_a_regression(tmp_path: Path) -> None:
    rows = "\n".join(("0.5, 1", "1, 2", "2, 3", "3, 4", "4, 5"))
    write_tudataset(tmp_path, "real", labels="graph_attributes", graph_attributes=rows)
    with pytest.raises(ValueError, match="split: real has random-80-10-10; got 'folds-10'"):
        load_graphs("real", tmp_path, split="folds-10")
    made = load_graphs("real", tmp_path)
    assert (made.kind, made.metric, made.num_outputs) == ("regression", "mae", 2)
    assert made[1].y.tolist() == [[1.0, 2.0]]


def test_an_edge_between_graphs_and_a_gap_in_the_indicator_are_damage(tmp_path: Path) -> None:
    write_tudataset(tmp_path, "toy", A="1, 2\n2, 1\n3, 4\n4, 3")
    with pytest.raises(DamagedFileError, match=r"graph 0: edge .* in edge_index, expected ids in"):
        load_graphs("toy", tmp_path)
    write_tudataset(tmp_path, "gap", graph_indicator="1\n1\n1\n2\n2\n2\n4\n4\n4\n4\n5")
    with pytest.raises(DamagedFileError, match="graph 2 has no nodes"):
        load_graphs("gap", tmp_path)


@pytest.mark.parametrize(("name", "kind", "metric", "sizes"), [
    ("ogbg-molesol", "regression", "rmse", [902, 113, 113]),
    ("ogbg-molbace", "multilabel", "rocauc", [1210, 151, 152]),
])  # fmt: skip
def test_molecules_of_ogb(
    name: str, kind: str, metric: str, sizes: list[int], data_root: Path, untouched: None,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    made = load_graphs(name, data_root)
    assert (made.kind, made.metric) == (kind, metric)
    parts = (made.train_index, made.val_index, made.test_index)
    assert made.split == "scaffold" and [len(part) for part in parts] == sizes
    assert made[0].x.dtype == torch.int64 and made[0].y.shape == (1, 1)
    assert made[0].y.dtype == torch.float32 and len(made.smiles or []) == len(made)
    assert made.x_categories == (119, 5, 12, 12, 10, 6, 6, 2, 2)
    assert made.edge_categories == (5, 6, 2)
    assert capfd.readouterr() == ("", "")


def test_truncated_molecules_of_ogb_are_refused(data_root: Path, tmp_path: Path) -> None:
    shutil.copytree(data_root / "OGB/ogbg_molesol", tmp_path / "OGB/ogbg_molesol")
    for part in ("edge", "node-feat", "edge-feat", "graph-label", "num-node-list", "num-edge-list"):
        path = tmp_path / f"OGB/ogbg_molesol/raw/{part}.csv.gz"
        path.chmod(0o644)
        whole = path.read_bytes()
        path.write_bytes(whole[:-200])
        with pytest.raises(DamagedFileError, match=r"ogbg-molesol.*truncated"):
            load_graphs("ogbg-molesol", tmp_path)
        path.write_bytes(whole)


@needs_rdkit
@pytest.mark.usefixtures("any_counts")
def test_a_row_that_is_no_molecule_is_named_and_the_others_kept(tmp_path: Path) -> None:
    good = [f'"{i}-thing, of {i}",{"C" * i}O,{i}.5,0' for i in range(1, 9)]
    head, bad = "iupac,smiles,expt,calc", "bad,C((,1.0,0"
    with pytest.warns(UserWarning, match=r"FreeSolv: left out row 2: 'C\(\(' is not a SMILES"):
        made = read_free(tmp_path, "\n".join([head, *good[:2], bad, *good[2:], "none,CCN,,0\n"]))
    assert made.left_out[1] == "row 9: 'CCN' has no label" and len(made) == 8
    assert made.smiles == [f"{'C' * i}O" for i in range(1, 9)]
    assert [float(graph.y) for graph in made] == [i + 0.5 for i in range(1, 9)]
    assert len(made.train_index) + len(made.val_index) + len(made.test_index) == 8
    with pytest.raises(DamagedFileError, match="none of 1 rows is a molecule with a label"):
        read_free(tmp_path / "none", f"{head}\n{bad}\n")


@needs_rdkit
def test_esol_is_pygs_but_for_the_order_of_edges(data_root: Path, tmp_path: Path) -> None:
    made = load_graphs("esol", data_root)
    assert made.metric == "rmse" and made.num_outputs == 1 and not made.left_out
    shutil.copytree(data_root / "MoleculeNet/esol", tmp_path / "esol")
    theirs = MoleculeNet(str(tmp_path), "ESOL")
    assert len(made) == len(theirs) == 1128
    for index in (0, 500, 1127):
        assert torch.equal(made[index].y, theirs[index].y)
        assert made[index].num_edges == theirs[index].num_edges
    ogbs = load_graphs("ogbg-molesol", data_root)
    for index in (0, 500, 1127):
        assert torch.equal(made[index].x, ogbs[index].x)
        assert torch.equal(made[index].edge_attr, ogbs[index].edge_attr)
    drawn = load_graphs("esol", data_root, split="random-80-10-10", seed=3)
    assert len(drawn.test_index) == 113 and not torch.equal(drawn.test_index, made.test_index)


@needs_rdkit
@pytest.mark.usefixtures("any_counts")
def test_peptides_keep_their_lists_of_rows(tmp_path: Path) -> None:
    rows = [f'{i},{"C" * (i + 1)}N,seq,"[{i % 2}, 1]",{i}' for i in range(6)]
    rows[2] = '2,C((,seq,"[0, 1]",2'
    with pytest.warns(UserWarning, match=r"Peptides-func: left out row 2: 'C\(\('"):
        made = read_peptides(tmp_path, "\n".join([",smiles,peptide_seq,labels,identifier", *rows]))
    assert (made.kind, made.metric, made.num_outputs) == ("multilabel", "ap", 2)
    parts = (made.train_index, made.val_index, made.test_index)
    assert [part.tolist() for part in parts] == [[0, 4], [1, 2], [3]]
    assert made[4].num_nodes == 7 and made[4].y.tolist() == [[1.0, 1.0]]


PARTS = ("train", "val", "test")


def write_zinc(root: Path, generator: torch.Generator) -> None:
    (root / "ZINC/raw").mkdir(parents=True)
    for part in PARTS:
        molecules = []
        for size in (3, 5, 4, 6):
            bonds = torch.randint(4, (size, size), generator=generator).triu(1)
            atoms = torch.randint(28, (size,), generator=generator)
            molecules.append({
                "num_atom": size, "atom_type": atoms, "bond_type": bonds + bonds.t(),
                "logP_SA_cycle_normalized": torch.rand(1, generator=generator) - 2,
            })  # fmt: skip
        (root / f"ZINC/raw/{part}.pickle").write_bytes(pickle.dumps(molecules))
        (root / f"ZINC/raw/{part}.index").write_text("2,0,3\n")


@pytest.mark.usefixtures("any_counts")
def test_zinc_is_pygs(tmp_path: Path, generator: torch.Generator) -> None:
    write_zinc(tmp_path, generator)
    made = load_graphs("zinc", tmp_path)
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


def write_superpixels(
    root: Path, part: str, labels: list[list[int]], generator: torch.Generator
) -> list[Any]:
    """A file of graphs with these labels, in PyG's format; returns what is in it."""
    (root / "LRGB/pascalvoc-sp/raw").mkdir(parents=True, exist_ok=True)
    graphs = []
    for y in labels:
        edges = torch.randint(len(y), (2, 90), generator=generator)
        x, edge_attr = (torch.rand(n, k, generator=generator) for n, k in ((len(y), 14), (90, 2)))
        graphs.append((x.double(), edge_attr.double(), edges, y))
    (root / f"LRGB/pascalvoc-sp/raw/{part}.pickle").write_bytes(pickle.dumps(graphs))
    return graphs


@pytest.mark.usefixtures("any_counts")
def test_superpixels_are_pygs(tmp_path: Path, generator: torch.Generator) -> None:
    for part in PARTS:
        write_superpixels(tmp_path, part, [list(range(4)), list(range(7))], generator)
    made = load_graphs("PascalVOC-SP", tmp_path)
    assert (made.level, made.kind, made.metric, made.num_outputs) == ("node", "multiclass", "f1", 7)
    theirs = LRGBDataset(str(tmp_path / "LRGB"), "PascalVOC-SP", split="val")
    for offset in range(2):
        for name in ("x", "edge_index", "edge_attr", "y"):
            assert torch.equal(made[2 + offset][name], theirs[offset][name])
    assert made.val_index.tolist() == [2, 3]


def test_the_second_training_graph_alone(tmp_path: Path, generator: torch.Generator) -> None:
    labels = [3 * [0, 1], [[0, 15, 18][node % 3] for node in range(40)]]
    graphs = write_superpixels(tmp_path, "train", labels, generator)
    made = load("pascalvoc-sp-1g", tmp_path)
    assert torch.equal(made.x, graphs[1][0].float()) and torch.equal(made.edge_index, graphs[1][2])
    assert made.num_classes == 3 and made.y.tolist() == [node % 3 for node in range(40)]
    assert int(made.train_mask.sum()) == 24


@pytest.mark.usefixtures("any_counts")
def test_nothing_else_is_unpickled(
    tmp_path: Path, generator: torch.Generator, capfd: pytest.CaptureFixture[str]
) -> None:
    write_zinc(tmp_path, generator)
    print_it = Forged(print, ["the file was unpickled"])
    buffer = io.BytesIO()
    torch.save(print_it, buffer, _use_new_zipfile_serialization=False)
    stored = Forged(torch.storage._load_from_bytes, [buffer.getvalue()])
    inner = pickle.dumps([torch.ones(2)]).replace(b"_load_from_bytes", b"_load_from_bytez")
    for content, message in (
        (pickle.dumps([print_it]), r"builtin\w*\.print is not part of such a file"),
        (inner, "_load_from_bytez is not part"),
        (pickle.dumps([stored]), r"builtin\w*\.print is not part of such a file"),
        (b"", "ZINC: the raw files of ZINC/raw cannot be read"),
    ):
        (tmp_path / "ZINC/raw/val.pickle").write_bytes(content)
        with pytest.raises(DamagedFileError, match=message):
            load_graphs("ZINC", tmp_path)
    assert "unpickled" not in capfd.readouterr().out


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
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'pyg-graphtheory\[molecules\]'"):
        molecule("CC")
