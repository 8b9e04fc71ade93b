from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric import typing as pyg_typing
from torch_geometric.utils import to_undirected

from graphtheory.lab.bench.benchmark import Benchmark
from graphtheory.lab.bench.node_config import NodeRunConfig
from graphtheory.lab.bench.node_task import NodeBenchTask
from graphtheory.lab.cli.main import main
from graphtheory.lab.datasets import files, graphs
from graphtheory.lab.datasets.graph_readers import import_ogb
from graphtheory.lab.train import SampledLayers
from tests.lab.datasets.ogbn_folder import EDGES, NODES, write_ogbn

HAS_SAMPLING = pyg_typing.WITH_TORCH_SPARSE or pyg_typing.WITH_PYG_LIB
MODELS = ("gt", "gcn", "sampled-gcn")


@pytest.fixture(autouse=True)
def small_sets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folders of 30 nodes, read as if the real counts did not matter."""
    monkeypatch.setattr(files, "verify_counts", lambda *_: None)
    monkeypatch.setenv("GRAPHTHEORY_CACHE", str(tmp_path / "cache"))
    for name in ("arxiv", "products", "proteins"):
        write_ogbn(tmp_path / "data", name)
    return tmp_path / "data"


@pytest.mark.parametrize("name", ["ogbn-arxiv", "ogbn-products", "ogbn-proteins"])
def test_every_network_trains_and_is_scored_by_ogb(name: str, small_sets: Path) -> None:
    sampled = name != "ogbn-arxiv"
    if sampled and not HAS_SAMPLING:
        pytest.skip("needs torch-sparse or pyg-lib: install pyg-graphtheory[scatter]")
    problem = NodeBenchTask(name, "published", small_sets)
    options = {"hidden": 8, "layers": 2} | ({"batch_size": 8} if sampled else {})
    runs = Benchmark(problem, MODELS, 1, options=options, epochs=1).run()
    assert [run.model for run in runs] == list(MODELS)
    for model in MODELS:
        trial = Benchmark(problem, MODELS, 1, options=options).config(model)[0]
        task, batches = problem.prepare(trial, 0)
        steps = list(batches.train_dataloader())
        assert len(steps) == (3 if sampled else 1)  # 18 labeled nodes
        assert sum(batch.count for batch in steps) == 18
        assert isinstance(batches, SampledLayers) == (model == "sampled-gcn")
        whole = batches.evaluation_batch()
        out = task.eval()(whole)[whole.test_mask].detach()
        y = whole.y[whole.test_mask]
        if y.dim() == 1:
            given = {"y_true": y[:, None], "y_pred": out.argmax(1, keepdim=True)}
        else:
            given = {"y_true": y, "y_pred": out}
        (expected,) = import_ogb("ogb.nodeproppred").Evaluator(name).eval(given).values()
        assert task.evaluate(whole).test == pytest.approx(expected)


def test_arxiv_is_trained_on_both_ways_unless_told_otherwise(small_sets: Path) -> None:
    problem = NodeBenchTask("ogbn-arxiv", "published", small_sets)
    published = graphs.load("ogbn-arxiv", small_sets).edge_index
    assert published.size(1) == EDGES
    both = problem.data(0, **NodeRunConfig("gcn").inputs).edge_index
    assert torch.equal(both, to_undirected(published, num_nodes=NODES))
    directed = problem.data(0, **NodeRunConfig("gcn", undirected=False).inputs).edge_index
    assert torch.equal(directed, published)
    bench = Benchmark(problem, ("gcn",), options={"undirected": "false"})
    assert bench.config("gcn")[0].undirected is False
    assert NodeRunConfig.from_dict(bench.config("gcn")[0].as_dict()) == bench.config("gcn")[0]


def test_the_command_is_quiet_but_for_its_own_lines(
    small_sets: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code = main([
        "train", "--dataset", "ogbn-proteins", "--model", "sampled-gcn", "--epochs", "2",
        "--root", str(small_sets), "--out", str(tmp_path / "run"),
        "--set", "sampler=ladies,share=0.5,batch_size=9,hidden=8",
    ])  # fmt: skip
    out, err = capfd.readouterr()
    assert code == 0 and "batch_size=9" in out and "test " in out
    told = [line for line in err.replace("\r", "\n").splitlines() if line.strip()]
    assert all(line.startswith("epoch") for line in told), told


@pytest.mark.parametrize(
    "words", [("train", "--epochs", "2", "--model"), ("bench", "--seeds", "1", "--models"),
              ("tune", "--budget", "1", "--models")],
)  # fmt: skip
def test_labels_that_no_score_is_defined_for_are_told_in_a_line(
    small_sets: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    write_ogbn(small_sets, "proteins", **{"node-label": np.zeros((NODES, 112), int)})
    where = ("--root", str(small_sets), "--out", str(tmp_path / "run"))
    command = [*words, "sampled-gcn", "--dataset", "ogbn-proteins", *where]
    code = main(command)
    assert code == 2
    assert capfd.readouterr().err.splitlines()[-1] == (
        "graphtheory: metric='rocauc': none of 112 labels has both classes among 6 "
        "scored rows; expected at least one"
    )
