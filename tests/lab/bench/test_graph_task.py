"""Benchmarks and searches on sets of graphs, and on the user's own data."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data, HeteroData

import graphtheory
from graphtheory.lab.bench import graph_task
from graphtheory.lab.bench.benchmark import Benchmark, FinishedRuns, bench_task, named_task
from graphtheory.lab.bench.graph_task import GraphRunConfig, OwnGraphs, TreesRunConfig
from graphtheory.lab.bench.node_task import OwnNodes
from graphtheory.lab.bench.search import best, read_log, search
from graphtheory.lab.bench.task import CONSTANT, constant_score
from graphtheory.lab.datasets.graph_sets import GraphSet, packed
from graphtheory.lab.datasets.own_graphs import graph_set
from graphtheory.lab.datasets.splits import Split
from graphtheory.lab.report import BenchmarkReport
from graphtheory.lab.train.score import SCORES
from graphtheory.lab.zoo import graph_models as graph_zoo
from tests.lab.bench.test_comparison import ring as own_graph
from tests.lab.drawing import one_picture_of_a_kind

SHORT: dict[str, Any] = {"seeds": 1, "epochs": 2, "progress": False}


def ring(nodes: int, y: torch.Tensor, **more: Any) -> Data:
    here = torch.arange(nodes)
    edges = torch.stack([here, (here + 1) % nodes])
    x = torch.cat([torch.ones(nodes, 1), y.float().view(-1)[:1].expand(nodes, 1)], 1)
    return Data(x=x, edge_index=torch.cat([edges, edges.flip(0)], 1), y=y, **more)


def classes(count: int = 30) -> list[Data]:
    return [ring(4 + i % 3, torch.tensor([i % 2])) for i in range(count)]


def values(count: int = 30) -> list[Data]:
    return [ring(4 + i % 3, torch.tensor([[0.1 * i + 0.05]])) for i in range(count)]


def test_a_run_is_the_same_again_and_is_taken_up_from_its_record(tmp_path: Path) -> None:
    record = FinishedRuns(tmp_path / "runs.jsonl")
    first = Benchmark(OwnGraphs(values()), ("gt", "gine"), 2, epochs=2, record=record).run()
    again = Benchmark(OwnGraphs(values()), ("gine", "gt"), 2, epochs=2).run()
    scores = {(run.model, run.seed): (run.test, run.val) for run in first}
    assert scores == {(run.model, run.seed): (run.test, run.val) for run in again}
    assert len({score for score in scores.values()}) == 4
    known = FinishedRuns(tmp_path / "runs.jsonl")
    more = Benchmark(OwnGraphs(values()), ("gt", "gine"), 2, epochs=2, record=known)
    assert more.count_known() == 4
    other = Benchmark(OwnGraphs(values(29)), ("gt",), 1, epochs=2, record=known)
    with pytest.raises(ValueError, match="under other settings"):
        other.count_known()


def test_a_search_chooses_the_lowest_error_and_goes_on(tmp_path: Path) -> None:
    problem, log = OwnGraphs(values()), tmp_path / "search.log"
    judged = search(problem, ("gine", "mlp"), 2, log=log, epochs=2)
    assert best(judged, problem.measure)["gine"].val == min(j.val for j in judged[:2])
    assert search(problem, ("gine", "mlp"), 2, log=log, epochs=2) == judged == read_log(log)
    assert len(judged) == 4 and judged[0].dataset == problem.key
    assert all(isinstance(j.config, GraphRunConfig) for j in judged)


def test_a_large_set_has_fewer_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = OwnGraphs(values())
    assert problem.default("gt")[1:] == (100, 33)
    monkeypatch.setattr(graph_task, "_FULL_LENGTH", 10)
    assert problem.default("gt")[1:] == (30, 10) == problem.default("ecfp")[1:]
    assert problem.default("gt")[0] == GraphRunConfig("gt")


def test_own_nodes_by_mask_or_by_random_split() -> None:
    data = own_graph(20)
    first, second = (OwnNodes(data).data(seed).test_mask for seed in (0, 1))
    assert int(first.sum()) == 4 and not torch.equal(first, second)
    masks = torch.eye(20, dtype=torch.bool)
    data.train_mask, data.val_mask, data.test_mask = masks[:, :2], masks[:, 2:4], masks[:, 4:6]
    given = OwnNodes(data)
    assert given.split == "given"
    assert [int(given.data(s).test_mask.nonzero()) for s in (0, 1, 2)] == [4, 5, 4]
    del data.val_mask
    with pytest.raises(ValueError, match="val_mask is missing, expected all three masks or none"):
        OwnNodes(data)
    data.y = torch.rand(20)
    with pytest.raises(ValueError, match=r"data.y: got torch.float32 \[20\], expected whole"):
        OwnNodes(data)


def test_bench_is_called_as_a_package(tmp_path: Path) -> None:
    found = graphtheory.bench(values(), ("gine", "mlp"), out=tmp_path / "r", **SHORT)
    text = str(found)
    assert text.splitlines()[0] == "graphs, split random-80-10-10"
    assert "RMSE (lower is better)" in text and "mlp - gine" in text
    assert "are defaults (one stack" in text and found._repr_html_().startswith("<pre>")
    assert [run.model for run in found.runs] == ["gine", "mlp"]
    assert found.rows()[0].name == "test rmse"
    written = {file.name for file in (tmp_path / "r").iterdir()}
    assert written == {"runs.jsonl", "results.json", "results.csv"}
    nodes = graphtheory.bench(own_graph(20), ("gt", "mlp"), **SHORT)
    assert "Test accuracy (%)" in str(nodes)
    tuned = graphtheory.bench(classes(), ("mlp",), kind="graph", budget=2, **SHORT)
    assert "not tuned" not in str(tuned)
    assert {row.parameters["options"] for row in tuned.rows()} == {"best of 2 on validation"}


@pytest.mark.parametrize(("data", "options", "expected"), [
    (3, {}, "data: got int, expected a name, a PyG Data or a list"),
    (classes(), {"seeds": 2.5}, "seeds: got 2.5, expected a whole number"),
    (classes(), {"seeds": 0}, "seeds: got 0, expected 1 or more"),
    (classes(), {"models": "gt"}, "models: got 'gt', expected a list of names, such as"),
    (classes(), {"models": ("gat",)}, "models: got 'gat', expected one of gt, gt-plain, gine"),
    (classes(), {"models": ("ecfp",)}, "models: ecfp reads molecules, and graphs has no SMILES"),
    (classes(), {"budget": 1}, "budget: got 1, expected 0 or 2 and more"),
    (classes(), {"options": "lr=0.1"}, "options: got 'lr=0.1', expected a dict"),
    ("Coraa", {}, "data: unknown data set 'Coraa'"),
    (classes(), {"device": "tpu"}, "device: got 'tpu', expected one of cpu"),
    (classes(), {"precision": "8"}, "precision: got '8', expected one of 32-true"),
    (classes(), {"accumulate": 0}, "accumulate: got 0, expected 1 or more"),
    (classes(), {"out": __file__}, "is a file, expected a folder"),
    ([1], {}, "data: got a list of"),
    (HeteroData(), {}, "data: got HeteroData, expected a name, a PyG Data or a list of Data"),
    (classes(), {"kind": "node"}, "kind: got 'node', but a list of 30 graphs"),
    ("karate", {"kind": "regression"}, "kind: got 'regression', but karate"),
    (classes(), {"kind": "links"}, "kind: got 'links', expected node, graph or multiclass"),
    (classes(), {"metric": "rmse"}, "metric: got 'rmse'"),
    (classes(), {"split": 0.8}, "split: got 0.8, expected three fractions or lists of pos"),
    (classes(), {"split": [torch.ones(30).bool()] * 3}, "split: got torch.bool .30., expected"),
    (own_graph(20), {"split": (0.8, 0.1, 0.1)}, "split: got"),
    (own_graph(20), {"kind": "multiclass"},
     "kind: got 'multiclass', expected 'node' for one graph"),
    ("csl", {"kind": "regression"}, "kind: got 'regression', expected 'multiclass', that of"),
    ("csl", {"metric": "mae"}, "metric: got 'mae', expected 'accuracy', that of csl"),
    ("karate", {"metric": "rocauc"}, "metric: got 'rocauc', expected 'accuracy', that of kar"),
    (OwnGraphs(classes()), {"metric": "f1"}, "metric: got 'f1', expected None: a task has"),
    (graph_set(classes())[:20], {}, "data: 20 indexed graphs of graphs, whose split is of the"),
])  # fmt: skip
def test_what_cannot_be_benchmarked_is_refused(data: Any, options: Any, expected: str) -> None:
    with pytest.raises((TypeError, ValueError), match=expected):
        graphtheory.bench(data, **options)


def test_part_of_a_set_has_a_split_of_its_own_and_molecules_their_smiles() -> None:
    graphs = [Data(**one.to_dict(), smiles="C" * (i + 1)) for i, one in enumerate(classes())]
    whole = graph_set(graphs, split=(range(10), range(10, 20), range(20, 30)))
    part = bench_task(whole[torch.arange(29, -1, -1)], split=(0.8, 0.1, 0.1)).graphs(0)
    assert part.smiles == whole.smiles[::-1] and part.split == "random-80-10-10"
    assert bench_task(whole).graphs(0).test_index.tolist() == list(range(20, 30))


@pytest.mark.parametrize("readout", ["mean", "token"])
def test_a_report_shows_where_a_graph_transformer_looks(readout: str, tmp_path: Path) -> None:
    options = {"readout": readout, "num_buckets": 3, "nodes_per_batch": 8, "heads": 2}
    found = graphtheory.bench(values(), ("gt", "gt-plain", "mlp"), options=options, **SHORT)
    gt, plain, mlp = (run.extra for run in found.runs)
    assert np.shape(gt["bias"]) == (4, 3, 2) and "bias" not in plain
    assert "attention_mass" not in mlp
    sizes = torch.tensor([4 + i % 3 for i in OwnGraphs(values()).graphs(0).val_index.tolist()])
    more = int(readout == "token")
    for rows in (gt["attention_mass"], plain["attention_mass"]):
        assert {(row["layer"], row["distance"]) for row in rows} == {
            (layer, z) for layer in range(1, 5) for z in range(int(sizes.max()) // 2 + 1)
        }
        total = sum(row["mass"] for row in rows if row["layer"] == 1)
        assert total < 0.99 if more else total == pytest.approx(1)
        itself = next(row["uniform"] for row in rows if row["distance"] == 0)
        expected = (sizes / (sizes + more)).sum() / (sizes + more).sum()
        assert itself == pytest.approx(float(expected))
    with one_picture_of_a_kind():
        BenchmarkReport(**vars(found)).save(tmp_path)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "What distance is worth" in page and "Attention of gt" in page


def test_what_scores_no_better_than_a_constant_is_found() -> None:
    problem = OwnGraphs(values(), metric="rmse")
    trial = GraphRunConfig.of("mlp", lr=1e-9, hidden=8, heads=1)
    outcome = problem.run(trial, seed=0, epochs=1, patience=1)
    train = torch.cat([g.y for g in (problem.own[i] for i in problem.graphs(0).train_index)])
    test = torch.cat([g.y for g in (problem.own[i] for i in problem.graphs(0).test_index)])
    errors = [float((test - c).square().mean().sqrt()) for c in (train.mean(), train.median())]
    assert outcome.constant == pytest.approx(min(errors))
    worse = float(outcome.constant or 0) + 1
    for test_score, found in ((worse, {CONSTANT: outcome.constant}), (0.0, {})):
        fit = replace(outcome.fit, test=test_score)
        assert problem.analysis(replace(outcome, fit=fit, model=None)) == found
    train, test = torch.tensor([1, 1, -1, -1, -1, 0]), torch.tensor([-1, -1, -1, 1, 1, 1, 0])
    assert constant_score(SCORES["accuracy"], "multiclass", train, test, 2) == 0.75


@pytest.mark.parametrize("name", ["neighbors-match-2", "ring-transfer", "infection", "csl"])
def test_sets_with_labels_of_nodes_or_of_graphs(name: str) -> None:
    problem = named_task(name)
    assert isinstance(problem, graph_task.GraphBenchTask)
    whole = problem.graphs(0)
    few = 2 if name == "infection" else 16  # of 500 nodes each
    kept = torch.cat([whole.train_index[:few], whole.val_index[:few], whole.test_index[:few]])
    graphs = packed([whole.get(int(i)) for i in kept])
    found = GraphSet(graphs, whole.facts, Split(*torch.arange(3 * few).split(few)), whole.split)
    problem._sets = {0: found}
    runs = Benchmark(problem, problem.compared, 1, epochs=1).run()
    assert [run.model for run in runs] == list(graph_zoo.COMPARED)
    assert all(0 <= run.test <= 1 and run.epochs == len(run.history) == 1 for run in runs)
    assert all(run.parameters > 0 for run in runs)
    labels = torch.cat([found[int(i)].y for i in found.test_index])
    assert (found.level == "node") == (len(labels) > len(found.test_index))
    assert (labels < 0).any() == (name in ("neighbors-match-2", "ring-transfer"))


def test_fingerprints_count_substructures() -> None:
    once, twice = graph_task._counts(("CCO", "OCCCO"), "morgan", 2, 512)
    assert once.max() == 1 and twice.max() == 3  # carbons within the chain
    each = graph_task._counts(("CCO", "OCCCO"), "morgan+torsion+paths", 2, 512)
    assert each.shape == (2, 1536) and (each[:, :512] == [once, twice]).all()
    for part in (each[1, 512:1024], each[1, 1024:]):
        assert part.sum() > 0
    assert each[0, 512:1024].sum() == 0  # no path of four atoms
    with pytest.raises(ValueError, match="fingerprint: got 'maccs', expected some of morgan"):
        TreesRunConfig(fingerprint="morgan+maccs")


@pytest.mark.parametrize("kind", ["regression", "multilabel", "multiclass"])
def test_fingerprints_are_paired_by_seed(kind: str) -> None:
    pytest.importorskip("lightgbm")
    names = ["C" * n + end for n in range(1, 9) for end in ("", "O", "N", "Cl", "c1ccccc1")]
    acid = torch.tensor([float(name.endswith("O")) for name in names])
    size = torch.tensor([float(len(name)) for name in names])
    y = {
        "regression": size[:, None], "multiclass": acid.long()[:, None],
        "multilabel": torch.stack([acid, (size > 4).float()], 1),
    }[kind]  # fmt: skip
    if kind == "multilabel":
        y[::7, 1] = float("nan")
    rows = [row if kind == "multiclass" else row[None] for row in y]
    graphs = [ring(4, row, smiles=name) for row, name in zip(rows, names, strict=True)]
    fixed = (list(range(24)), list(range(24, 32)), list(range(32, 40)))
    problem = OwnGraphs(graphs, split=fixed)
    trial = TreesRunConfig(n_estimators=20, min_child_samples=2, fingerprint="morgan+paths")
    first, again = (problem.run(trial, seed=0, epochs=1, patience=1) for _ in range(2))
    assert (first.fit.test, first.fit.val) == (again.fit.test, again.fit.val)
    assert first.fit.epochs == 20 and first.parameters >= 20
    assert first.constant is not None
    assert problem.measure.gain(first.fit.test, first.constant) > 0
    if kind == "regression":
        tried = search(problem, ("ecfp",), 3)
        assert tried[0].config == TreesRunConfig() and len(set(map(repr, tried))) == 3
