from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import torch
from torch_geometric.data import Data

import graphtheory
from graphtheory.lab.bench.diagnose import MOMENTS, Diagnosis, load_graph, undetermined
from graphtheory.lab.bench.node_task import OwnNodes, helpful_hops, hop_rows
from graphtheory.lab.bench.rows import Row
from graphtheory.lab.datasets import graphs
from graphtheory.lab.report import reading
from tests.lab.bench.conftest import decided_at

# A path 0 - 1 - 2 - 3 whose ends carry the features of the two classes; node 3 has class 0, and
# edges are stored in one direction only.
PATH = Data(
    x=torch.eye(3)[[0, 0, 1, 0]],
    y=torch.tensor([0, 0, 1, 0]),
    edge_index=torch.tensor([[0, 1, 2], [1, 2, 3]]),
)


def value(rows: list[Row], name: str, **parameters: Any) -> float:
    (row,) = (r for r in rows if r.name == name and parameters.items() <= r.parameters.items())
    return row.value


def test_numbers_of_a_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "load", lambda *args, **options: PATH)
    rows = Diagnosis("karate", max_distance=3).run()
    assert [value(rows, name) for name in ("nodes", "edges", "classes", "features")] == [4, 3, 2, 3]
    where = {"moment": "uncentered", "region": "ring"}
    assert [value(rows, "discriminative share", moment="uncentered", group=c) for c in (1, 2)] == [
        100, 100,
    ]  # fmt: skip
    # Own class minus the other: node 0 has 1, node 1 has 1 - 1, node 2 has 0 - 2, node 3 has -1.
    assert value(rows, "margin", **where, distance=1) == pytest.approx((1 + 0 - 2 - 1) / 4)
    # Divided by 1, 2, 2, 1 neighbors; pooled: the sums.
    assert value(rows, "normalized margin", **where, distance=1) == pytest.approx(-1 / 4)
    assert value(rows, "pooled margin", **where, distance=1) == pytest.approx(-2 / 6)
    assert value(rows, "reach", **where, distance=3) == 50
    # At distance 3 nodes 0 and 3 see each other.
    assert value(rows, "margin", **where, distance=3) == pytest.approx(2 / 4)
    assert value(rows, "core distance by margin", **where) == 3
    assert value(rows, "positive margin", **where, distance=3, nodes="all") == 50
    assert value(rows, "positive margin", **where, distance=3, nodes="hearing") == 100
    # With itself: 2, 2 - 1, 1 - 2, 1 - 1.
    ball = where | {"region": "ball"}
    assert value(rows, "margin", **ball, distance=1) == pytest.approx((2 + 1 - 1 + 0) / 4)
    # Directed distances follow the edges.
    rows = Diagnosis("karate", max_distance=2, directed=True).run()
    where = {"moment": "uncentered", "region": "ring"}
    assert value(rows, "reach", **where, distance=1) == 75  # nothing reaches node 0
    # Node 1 hears 0, node 2 hears 1, node 3 hears 2.
    assert value(rows, "margin", **where, distance=1) == pytest.approx((1 - 1 - 1) / 4)
    assert value(rows, "edges") == 3
    rows = Diagnosis("karate", max_distance=1, moments=("covariance",)).run()
    assert {r.parameters["moment"] for r in rows if "moment" in r.parameters} == {"covariance"}
    assert [value(rows, "class size", group=c) for c in (1, 2)] == [3, 1]
    assert value(rows, "balance mean") == 2
    assert value(rows, "balance largest_gap") == 1
    assert value(rows, "balance bound") == 20


def test_unlabeled_nodes_count_nowhere_and_shape_no_class(monkeypatch: pytest.MonkeyPatch) -> None:
    half = PATH.clone()
    half.y = torch.tensor([0, -1, 1, 0])
    monkeypatch.setattr(graphs, "load", lambda *args, **options: half)
    rows = Diagnosis("karate", max_distance=3).run()
    where = {"moment": "uncentered", "region": "ring"}
    assert value(rows, "reach", **where, distance=3) == pytest.approx(200 / 3)
    # Node 2 hears 3 of the other class, node 3 hears 2 of the other.
    assert value(rows, "margin", **where, distance=1) == pytest.approx(-2 / 3)
    crowd = PATH.clone()
    crowd.x = torch.cat([PATH.x, torch.eye(3)[[2] * 9]])
    crowd.y = torch.cat([PATH.y, torch.full((9,), -1)])
    monkeypatch.setattr(graphs, "load", lambda *args, **options: crowd)
    rows = Diagnosis("karate", max_distance=1).run()
    assert value(rows, "discriminative share", moment="uncentered", group=1) == 100


def test_the_synthetic_graph_depends_on_its_seed() -> None:
    first, same, other = (load_graph("core-neighborhood", None, seed) for seed in (0, 0, 1))
    assert first[1].equal(same[1]) and first[2].edge_index().equal(same[2].edge_index())
    assert not first[1].equal(other[1])


def test_only_pubmed_goes_without_features(data_root: Path) -> None:
    with pytest.raises(ValueError, match="did you mean 'karate'"):
        Diagnosis("karte").run()
    with pytest.raises(FileNotFoundError, match="raw files are missing"):
        Diagnosis("CiteSeer", data_root).run()


def test_cora_under_both_definitions(data_root: Path) -> None:
    rows = Diagnosis("Cora", data_root).run()
    shares = {tuple(r.parameters.values())[1:]: r.value for r in rows
              if r.name == "discriminative share"}  # fmt: skip
    assert shares["uncentered", 1] == pytest.approx(82.05, abs=0.01)
    assert max(share for (moment, _), share in shares.items() if moment == "covariance") < 60
    where = {"moment": "uncentered", "region": "ring"}
    assert value(rows, "core distance by normalized margin", **where) == 1


@pytest.mark.parametrize(
    ("hops", "begins", "kept"),
    [(1, "Neighbors help a linear", "1"), (2, "Distance matters here: a linear", "2")],
)
def test_a_graph_tells_which_distance_decides_its_labels(hops: int, begins: str, kept: str) -> None:
    data = decided_at(hops)
    task = OwnNodes(data, "mine")
    found = Diagnosis(own=task, max_distance=3).hops()
    assert helpful_hops(found) == hops and reading(found).startswith(begins)
    before, after = (value(found, "linear accuracy", distance=z) for z in (hops - 1, hops))
    assert before < 0.75 and after > 0.9
    for model in ("gt", "gt-plain", "gcn"):  # what only a graph transformer reads stays elsewhere
        far = kept if model != "gcn" else "1"
        assert task.config(model)[0].network.neighbors == far
        axes = task.axes(task.default(model)[0])
        assert far in axes["neighbors"] if model != "gcn" else "neighbors" not in axes
    said = "gt attends to two hops here, because a linear classifier predicts better with features "
    said += "of the second hop."
    assert task.remark(("gt", "gcn")) == (said if hops > 1 else "")
    epochs = 60 if hops == 2 else 5  # the same run is the same after any number
    short: dict[str, Any] = {"seeds": 2, "epochs": epochs, "progress": False}
    by_default, near = (
        fmean(run.test for run in graphtheory.bench(data, ("gt",), options=given, **short).runs)
        for given in ({}, {"neighbors": "1"})
    )
    assert by_default > near + 0.05 if hops == 2 else by_default == near


def test_classifier_and_margins_read_the_same_edges() -> None:
    data = decided_at(2)
    sources, targets = data.edge_index
    data.edge_index = data.edge_index[:, sources < targets]
    way = "one-way edges, read both ways"
    both, directed = (
        [*one.run(), *one.hops()]
        for one in (Diagnosis(own=OwnNodes(data), directed=d) for d in (False, True))
    )
    assert value(both, way) == data.num_edges and way not in {row.name for row in directed}
    assert value(both, "linear accuracy", distance=2) > 0.9
    assert value(directed, "linear accuracy", distance=2) < 0.9
    assert "up to 2 hops away, and " in reading(both)
    assert "`--models gt,gt-plain,gcn,mlp --set neighbors=2,undirected=true`" in reading(both)
    assert "undirected" not in reading(directed)
    found = graphtheory.bench(
        data, ("gt", "mlp"), options={"neighbors": 2, "undirected": True}, seeds=1, epochs=60,
        progress=False,
    )  # fmt: skip
    assert found.runs[0].test > found.runs[1].test + 0.1


def test_test_labels_and_few_labels_say_nothing_of_distance() -> None:
    data = OwnNodes(decided_at(2)).data(0)
    before = hop_rows(data, "mine")
    data.y[data.test_mask] = 1 - data.y[data.test_mask]
    assert hop_rows(data, "mine") == before
    data.train_mask[20:] = data.val_mask[20:] = False
    data.y[:20] = torch.arange(20) % 9
    assert hop_rows(data, "mine") == [] and reading([]) == ""


def test_features_without_unique_directions_name_no_distance() -> None:
    draw = torch.Generator().manual_seed(0)
    y = torch.arange(300) % 2
    dense = torch.randn(300, 20, generator=draw)
    repeated = torch.eye(6)[torch.arange(300) // 2 % 6]  # six values, as many nodes of each
    for x, found in ((torch.eye(300), 2), (repeated, 2), (dense, 0), (dense[:, :3], 0)):
        assert [undetermined(x, y, moment) for moment in MOMENTS] == [found, found]
    rows = Diagnosis("karate", max_distance=3).run()
    assert "no unique main directions" in reading(rows) and "peaks" not in reading(rows)
    assert value(rows, "classes without unique directions", moment="covariance") == 2
