import csv
import gzip
import io
from pathlib import Path

import pytest
import torch

from graphtheory.lab.datasets import ogb_readers
from graphtheory.lab.datasets.ogb_readers import category_sizes, molecule, scaffold_split

pytest.importorskip("rdkit", reason="needs the extra [molecules]")


def test_ethanol_has_ogbs_features(capfd: pytest.CaptureFixture[str]) -> None:
    graph = molecule("CCO")
    assert graph is not None
    assert graph.x[:, 0].tolist() == [5, 5, 7]  # atomic number - 1
    assert graph.edge_index.tolist() == [[0, 1, 1, 2], [1, 0, 2, 1]]
    assert graph.x.shape == (3, 9) and graph.edge_attr.shape == (4, 3)
    atoms, bonds = category_sizes().values()
    assert bool((graph.x < torch.tensor(atoms)).all()) and len(bonds) == 3
    single = molecule("[Na+]")
    assert single is not None and single.edge_index.shape == (2, 0)
    assert single.edge_attr.shape == (0, 3)
    assert [molecule(text) for text in ("", "C(", "c1ccc", "not a molecule")] == [None] * 4
    assert capfd.readouterr() == ("", "")


def test_scaffolds_stay_together_and_the_largest_train() -> None:
    rings = [f"c1ccccc1{'C' * i}" for i in range(1, 7)]  # one scaffold
    others = ["C1CC1C", "C1CCC1C", "C1CCCC1C", "CC"]
    parts = scaffold_split([*others, *rings])
    assert set(range(4, 10)) < set(parts.train.tolist())
    assert [len(part) for part in parts] == [8, 1, 1]
    assert sorted(torch.cat(list(parts)).tolist()) == list(range(10))
    with pytest.raises(ValueError, match=r"smiles: row 1, 'C.', is not a SMILES"):
        scaffold_split(["CC", "C("])


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
        raise ogb_readers.PackageNotFoundError(name)

    monkeypatch.setattr(ogb_readers, "version", missing)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'graphtheory\[molecules\]'"):
        molecule("CC")
