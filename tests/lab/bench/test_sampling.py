import json
from dataclasses import replace
from typing import Any

import pytest
import torch

from graphtheory.lab.bench.benchmark import Benchmark
from graphtheory.lab.bench.config import ignores, with_options
from graphtheory.lab.bench.node_config import (
    SAMPLERS,
    NodeRunConfig,
    Sampling,
    load,
    task_of,
    train_nodes,
)
from graphtheory.lab.bench.node_task import NodeBenchTask
from graphtheory.lab.bench.spaces import GraphFacts
from graphtheory.lab.report.benchmark import options
from graphtheory.lab.train import FullGraph, SampledGraph, SampledLayers
from graphtheory.lab.zoo import node_models as zoo
from graphtheory.models import SampledGCN
from graphtheory.patterns import AddSelf, Compose, SymmetricNormalize

WHOLE = Compose(AddSelf(), SymmetricNormalize())
TRIAL = NodeRunConfig.of("sampled-gcn", hidden=8, layers=3, dropout=0.0, share=0.4)


def batches(trial: NodeRunConfig = TRIAL, dataset: str = "karate") -> SampledLayers:
    found = task_of(trial, load(dataset, None, None, 0), 0)[1]
    assert isinstance(found, SampledLayers)
    return found


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_every_sampler_draws_its_share_afresh_around_the_whole_graph(sampler: str) -> None:
    trial = NodeRunConfig.of("sampled-gcn", layers=2, sampler=sampler, share=0.3)
    data, found = load("karate", None, None, 0), batches(trial)
    adjacency = WHOLE(found.graph)
    pattern = trial.sampling.pattern(found.graph.degree())
    star = pattern.expected(adjacency)
    assert star is not None
    torch.testing.assert_close(star.to_dense(), adjacency.to_dense())
    draws = [pattern(adjacency, generator=torch.Generator().manual_seed(s)) for s in range(200)]
    if sampler == "graphsage":
        wanted = max(1, round(0.3 * data.num_edges / 34))
        assert {int(draw.degree().max()) for draw in draws} == {wanted}
    else:
        sizes = [len(draw.indices.unique()) for draw in draws]
        assert max(sizes) <= 12 and sum(sizes) / len(sizes) > 6  # 0.3 * 34, a few without edges
    first, second = found.train_batch(0), found.train_batch(1)
    assert len(first.layers or ()) == 2 and first.mask.all()
    assert first.x.shape != second.x.shape or not torch.equal(first.x, second.x)
    whole = found.evaluation_batch()
    assert whole.layers is None
    torch.testing.assert_close(whole.neighborhood.to_dense(), adjacency.to_dense())


def test_degree_groups_are_those_of_the_graph_without_empty_ones() -> None:
    pattern: Any = Sampling(share=0.5).pattern(torch.tensor([1, 1, 100, 100, 1]))
    assert pattern.assignment.tolist() == [0, 0, 1, 1, 0]


def test_the_network_is_that_of_the_chapter() -> None:
    task, _ = task_of(TRIAL, load("karate", None, None, 0), 0)
    assert isinstance(task.model, SampledGCN) and task.model.num_layers == 3
    assert {name: tuple(p.shape) for name, p in task.model.named_parameters()} == {
        "W": (34, 8), "V": (8, 8), "B1": (8,), "B2": (8,), "C": (8, 2),
    }  # fmt: skip


@pytest.mark.parametrize("model", zoo.NAMES)
def test_networks_read_what_concerns_them(model: str) -> None:
    if model not in zoo.SAMPLED:
        pytest.importorskip("torch_sparse", reason="PyG's sampler needs torch-sparse")
    data, small = load("karate", None, None, 0), {"hidden": 8, "heads": 2, "layers": 2}

    def first(**options: Any) -> tuple[type, list[int]]:
        found = task_of(NodeRunConfig.of(model, **small, **options), data, 0)[1]
        batch = next(iter(found.train_dataloader()))
        return type(found), batch.neighborhood.indices.tolist()

    plain, batched = first(), first(batch_size=3)
    sampled = model in zoo.SAMPLED
    assert plain[0] is (SampledLayers if sampled else FullGraph)
    assert batched[0] is (SampledLayers if sampled else SampledGraph) and batched != plain
    other = NodeRunConfig.of(model)
    for name, value in (("sampler", "uniform"), ("share", 0.9)):
        assert (plain == first(**{name: value})) == ignores(other, name), name
    assert (batched == first(batch_size=3, fanout=1)) == ignores(other, "fanout")
    assert not ignores(other, "batch_size")


def test_large_graphs_are_trained_on_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = GraphFacts(
        nodes=2_000_000, edges=60_000_000, labels_per_class=4000, labeled=0.08, features=100
    )
    monkeypatch.setattr(NodeBenchTask, "scales_rows", False)
    monkeypatch.setattr(NodeBenchTask, "facts", facts)
    trial = NodeRunConfig.of("gt")
    assert trial.fitting(10_000_000) is trial
    assert trial.fitting(10_000_001).sampling == Sampling(batch_size=1024)
    chosen = NodeRunConfig.of("gt", batch_size=7)
    assert chosen.fitting(10**9) is chosen
    for name, size in (("ogbn-products", 1024), ("ogbn-proteins", 1024), ("ogbn-arxiv", None)):
        for model in ("gt", "sampled-gcn"):
            assert NodeBenchTask(name).config(model)[0].sampling.batch_size == size
            candidates = NodeBenchTask(name).space(model).candidates(model, 3)
            assert {trial.sampling.batch_size for trial in candidates} == {size}
    with pytest.raises(ValueError, match="fanout: got 5, expected a batch_size beside it"):
        with_options(trial, {"fanout": 5})
    assert with_options(trial, {"fanout": 5, "batch_size": 9}).sampling.fanout == 5


def test_it_learns_from_samples_in_steps_and_again_the_same() -> None:
    trial = NodeRunConfig.of(
        "sampled-gcn", hidden=16, dropout=0.0, sampler="fastgcn", share=0.5, batch_size=8
    )
    data = load("karate", None, None, 0)
    assert len(batches(trial).train_dataloader()) == 3  # 20 labeled nodes
    first, again = (train_nodes(trial, data, seed=0, epochs=30, patience=30).fit for _ in range(2))
    assert first.history[-1]["train_loss"] == again.history[-1]["train_loss"]
    assert first.test is not None and first.test >= 0.7
    other = train_nodes(trial, data, seed=1, epochs=1, patience=1).fit
    assert other.history[0]["train_loss"] != first.history[0]["train_loss"]


def test_options_go_through_a_line_of_text_and_the_command() -> None:
    trial = replace(TRIAL, sampling=Sampling("ladies", 0.2, 64))
    assert NodeRunConfig.from_dict(json.loads(json.dumps(trial.as_dict()))) == trial
    older = {name: value for name, value in trial.as_dict().items() if name != "sampling"}
    assert NodeRunConfig.from_dict(older).sampling == Sampling()
    words = {"sampler": "fastgcn", "share": "0.25", "batch_size": "none", "heads": "2"}
    bench = Benchmark("karate", ("sampled-gcn", "gcn"), options=words)
    assert bench.config("sampled-gcn")[0].sampling == Sampling("fastgcn", 0.25)
    assert bench.config("gcn")[0].sampling == Sampling()
    assert (
        "sampler=fastgcn" in bench.set_in("sampled-gcn")
        and bench.set_in("gcn") == "batch_size=none"
    )
    told = options(bench.config("sampled-gcn")[0])
    assert "sampler=fastgcn, share=0.25" in told and "residual" not in told
    assert "sampler" not in options(bench.config("gcn")[0])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"sampler": "sage"}, "sampler: got 'sage', expected one of degree-groups, fastgcn"),
        ({"share": 0.0}, "share: got 0.0, expected a share of the nodes, in"),
        ({"share": 1.5}, "share: got 1.5"),
        ({"batch_size": 0}, "batch_size: got 0, expected 1 or more"),
        ({"batch_size": 4, "fanout": 0}, "fanout: got 0, expected 1 or more"),
    ],
)
def test_what_cannot_be_drawn_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Sampling(**given)
    with pytest.raises(ValueError, match=message.split(",")[0]):
        Benchmark("karate", ("sampled-gcn",), options=given).config("sampled-gcn")
