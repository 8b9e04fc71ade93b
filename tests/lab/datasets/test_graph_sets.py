import shutil
from pathlib import Path

import pytest
import torch
from torch_geometric.datasets import TUDataset
from torch_geometric.loader import DataLoader

from graphtheory.lab.datasets import graphs
from graphtheory.lab.datasets.files import DamagedFileError
from graphtheory.lab.datasets.graphs import load_graphs


def test_enzymes_has_its_published_counts(data_root: Path, untouched: None) -> None:
    dataset = load_graphs("enzymes", data_root)
    assert len(dataset) == 600 and dataset.num_classes == 6 and dataset.num_features == 21
    assert sum(graph.num_nodes for graph in dataset) == 19_580  # mean 32.63
    assert sum(graph.num_edges for graph in dataset) == 74_564  # mean 62.14, both directions
    assert (dataset.name, dataset.split, dataset.metric) == (
        "ENZYMES",
        "random-80-10-10",
        "accuracy",
    )
    parts = (dataset.train_index, dataset.val_index, dataset.test_index)
    assert [len(part) for part in parts] == [480, 60, 60]
    assert dataset.y[dataset.test_index].bincount().tolist() == [10] * 6
    batch = next(iter(DataLoader(dataset[dataset.val_index], batch_size=60)))
    assert batch.num_graphs == 60 and int(batch.edge_index.max()) < batch.num_nodes


def test_equal_to_the_class_of_pyg(data_root: Path, tmp_path: Path) -> None:
    shutil.copytree(data_root / "TUDataset", tmp_path / "TUDataset")
    theirs = TUDataset(str(tmp_path / "TUDataset"), "ENZYMES", use_node_attr=True)
    ours = graphs.load_graphs("ENZYMES", data_root)
    for index in (0, 299, 599):
        for part in ("x", "edge_index", "y"):
            assert torch.equal(ours[index][part], theirs[index][part])


def test_seed_draws_the_split(data_root: Path) -> None:
    first, again, other = (load_graphs("ENZYMES", data_root, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(first.test_index, again.test_index)
    assert not torch.equal(first.test_index, other.test_index)


@pytest.mark.parametrize(
    "part", ["A", "graph_indicator", "graph_labels", "node_labels", "node_attributes"]
)
def test_truncated_files_are_refused(part: str, data_root: Path, tmp_path: Path) -> None:
    shutil.copytree(data_root / "TUDataset", tmp_path / "TUDataset")
    path = tmp_path / f"TUDataset/ENZYMES/raw/ENZYMES_{part}.txt"
    lines = path.read_text().splitlines()
    path.write_text("\n".join(lines[: len(lines) // 2]) + "\n")
    with pytest.raises(DamagedFileError, match=r"ENZYMES.*truncated"):
        load_graphs("ENZYMES", tmp_path, cache=tmp_path / "cache")


def test_slices_and_tensors_must_agree(
    data_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("graphtheory.lab.datasets.files.verify_counts", lambda info, found: None)
    shutil.copytree(data_root / "TUDataset", tmp_path / "TUDataset")
    path = tmp_path / "TUDataset/ENZYMES/raw/ENZYMES_graph_labels.txt"
    path.write_text("\n".join(path.read_text().splitlines()[:-5]) + "\n")
    with pytest.raises(DamagedFileError, match="y has 595 entries, the graphs need 600"):
        load_graphs("ENZYMES", tmp_path, cache=tmp_path / "cache")


def test_bad_arguments_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="name: Cora is one graph"):
        load_graphs("Cora", tmp_path)
    with pytest.raises(
        ValueError, match="split: ENZYMES has random-80-10-10, folds-10; got 'public'"
    ):
        load_graphs("ENZYMES", tmp_path, split="public")
    with pytest.raises(FileNotFoundError, match="MUTAG: 3 of 3 raw files are missing"):
        load_graphs("mutag", tmp_path)


def test_folds_test_every_graph_once(data_root: Path) -> None:
    sets = [load_graphs("ENZYMES", data_root, split="folds-10", seed=seed) for seed in range(10)]
    tested = torch.cat([one.test_index for one in sets])
    assert tested.sort().values.tolist() == list(range(600))
    assert torch.equal(sets[9].val_index, sets[0].test_index)
    assert sets[3].y[sets[3].test_index].bincount().tolist() == [10] * 6
    assert len(sets[3].train_index) == 480
