import shutil
from pathlib import Path

import pytest
import torch
from torch_geometric.data import Batch, Data
from torch_geometric.datasets import TUDataset
from torch_geometric.loader import DataLoader
from torch_geometric.transforms import AddRandomWalkPE, VirtualNode

from graphtheory.data.transforms import AddDistances
from graphtheory.graph import cliques, neighborhood_from
from graphtheory.lab.datasets import graphs
from graphtheory.lab.datasets.files import DamagedFileError
from graphtheory.lab.datasets.graph_sets import precomputed, with_transforms
from graphtheory.lab.datasets.graphs import load_graphs
from graphtheory.lab.datasets.own_graphs import graph_set
from graphtheory.structure import shortest_path_distance


def test_enzymes_has_published_counts_and_splits_by_seed(data_root: Path, untouched: None) -> None:
    dataset = load_graphs("enzymes", data_root)
    assert len(dataset) == 600 and dataset.num_classes == 6 and dataset.num_features == 21
    assert sum(graph.num_nodes for graph in dataset) == 19_580  # mean 32.63
    assert sum(graph.num_edges for graph in dataset) == 74_564  # mean 62.14, both directions
    found = (dataset.name, dataset.split, dataset.metric)
    assert found == ("ENZYMES", "random-80-10-10", "accuracy")
    parts = (dataset.train_index, dataset.val_index, dataset.test_index)
    assert [len(part) for part in parts] == [480, 60, 60]
    assert dataset.y[dataset.test_index].bincount().tolist() == [10] * 6
    batch = next(iter(DataLoader(dataset[dataset.val_index], batch_size=60)))
    assert batch.num_graphs == 60 and int(batch.edge_index.max()) < batch.num_nodes
    first, again, other = (load_graphs("ENZYMES", data_root, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(first.test_index, again.test_index)
    assert not torch.equal(first.test_index, other.test_index)
    sets = [load_graphs("ENZYMES", data_root, split="folds-10", seed=seed) for seed in range(10)]
    tested = torch.cat([one.test_index for one in sets])
    assert tested.sort().values.tolist() == list(range(600))
    assert torch.equal(sets[9].val_index, sets[0].test_index)
    assert sets[3].y[sets[3].test_index].bincount().tolist() == [10] * 6
    assert len(sets[3].train_index) == 480


def test_equal_to_the_class_of_pyg(data_root: Path, tmp_path: Path) -> None:
    shutil.copytree(data_root / "TUDataset", tmp_path / "TUDataset")
    theirs = TUDataset(str(tmp_path / "TUDataset"), "ENZYMES", use_node_attr=True)
    ours = graphs.load_graphs("ENZYMES", data_root)
    for index in (0, 299, 599):
        for part in ("x", "edge_index", "y"):
            assert torch.equal(ours[index][part], theirs[index][part])


def test_truncated_files_are_refused(
    data_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(data_root / "TUDataset", tmp_path / "TUDataset")
    for part in ("A", "graph_indicator", "graph_labels", "node_labels", "node_attributes"):
        path = tmp_path / f"TUDataset/ENZYMES/raw/ENZYMES_{part}.txt"
        whole = path.read_text()
        path.write_text("\n".join(whole.splitlines()[: whole.count("\n") // 2]) + "\n")
        with pytest.raises(DamagedFileError, match=r"ENZYMES.*truncated"):
            load_graphs("ENZYMES", tmp_path)
        path.write_text(whole)
    monkeypatch.setattr("graphtheory.lab.datasets.files.verify_counts", lambda info, found: None)
    path = tmp_path / "TUDataset/ENZYMES/raw/ENZYMES_graph_labels.txt"
    path.write_text("\n".join(path.read_text().splitlines()[:-5]) + "\n")
    with pytest.raises(DamagedFileError, match=r"graph_labels.txt: 595 lines, expected 600"):
        load_graphs("ENZYMES", tmp_path)


def test_bad_arguments_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="name: Cora is one graph"):
        load_graphs("Cora", tmp_path)
    told = "split: ENZYMES has random-80-10-10, folds-10; got 'public'"
    with pytest.raises(ValueError, match=told):
        load_graphs("ENZYMES", tmp_path, split="public")
    with pytest.raises(FileNotFoundError, match="MUTAG: 3 of 3 raw files are missing"):
        load_graphs("mutag", tmp_path)


def ring(nodes: int) -> Data:
    at = torch.arange(nodes)
    index = torch.stack([at, (at + 1) % nodes])
    x = torch.arange(nodes).float()[:, None]
    return Data(x=x, edge_index=index, y=torch.tensor([nodes % 2]))


@pytest.fixture
def rings():
    return graph_set([ring(n) for n in range(3, 13)], split=([0, 1, 2], [3, 4, 5], [6, 7, 8, 9]))


def test_distances_follow_the_edges_of_cliques(rings) -> None:
    made = with_transforms(rings, [AddDistances(cutoff=4)])
    batch = Batch.from_data_list([made[i] for i in (4, 0, 7)])
    everyone = cliques(torch.tensor([7, 3, 10]))
    whole = shortest_path_distance(neighborhood_from(batch), cutoff=4)
    assert batch.distance.dtype == torch.uint8
    assert torch.equal(batch.distance, whole[everyone.targets(), everyone.indices])
    assert not torch.equal(batch.distance, whole[everyone.indices, everyone.targets()])


def test_transforms_may_change_the_graph_and_share_what_they_do_not(rings) -> None:
    made = with_transforms(rings, [AddDistances(), AddRandomWalkPE(3, attr_name="walk")])
    assert "distance" not in rings[0] and made[9].walk.shape == (12, 3)
    assert made._data.x is rings._data.x and made.facts is rings.facts
    assert torch.equal(made.val_index, rings.val_index)
    assert with_transforms(rings, []) is rings

    def doubled(graph: Data) -> Data:
        graph.x.mul_(2)
        return graph

    before = rings._data.x.clone()
    twice = with_transforms(rings, [doubled])
    assert torch.equal(rings._data.x, before) and torch.equal(twice[0].x, 2 * rings[0].x)
    made = with_transforms(rings, [VirtualNode(), AddDistances()])
    assert made[2].num_nodes == 6 and made[2].distance.view(6, 6)[:, 5].tolist() == [1] * 5 + [0]
    assert rings[2].num_nodes == 5
    seen = []

    def count(graph: Data) -> Data:
        seen.append(graph.num_nodes)
        graph.size_twice = torch.tensor([2 * graph.num_nodes])
        return graph

    made = with_transforms(rings, [count])
    assert [int(graph.size_twice) for graph in made] == [2 * n for n in range(3, 13)]
    assert seen == list(range(3, 13))


def test_what_cannot_be_stored_is_refused(rings) -> None:
    def odd(graph: Data) -> Data:
        if graph.num_nodes % 2:
            graph.odd = graph.x
        return graph

    with pytest.raises(ValueError, match="odd is stored on some graphs and not on others"):
        with_transforms(rings, [odd])
    with pytest.raises(ValueError, match="graphs: 3 indexed graphs, expected the whole set"):
        with_transforms(rings[rings.train_index], [AddDistances()])


def test_laplacian_encodings_are_a_function_of_the_graph() -> None:
    graphs = [ring(120) for _ in range(3)]  # as many nodes as PyG has scipy iterate for
    for label, one in enumerate(graphs):
        one.edge_index = torch.cat([one.edge_index, one.edge_index.flip(0)], 1)
        one.y = torch.tensor([label])
    made, found = graph_set(graphs, split=([0], [1], [2])), []
    for seed in (0, 1):
        torch.manual_seed(seed)
        found.append(precomputed(made, laplacian=3)[1].laplacian_eigenvector_pe)
        assert torch.rand(1) == torch.rand(1, generator=torch.Generator().manual_seed(seed))
    assert torch.equal(*found) and found[0].abs().sum() > 0
