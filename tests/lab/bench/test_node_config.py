import json
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch_geometric import typing
from torch_geometric.data import Data

from graphtheory.lab.bench import node_config
from graphtheory.lab.bench.benchmark import Benchmark, named_task
from graphtheory.lab.bench.config import ignores, with_options
from graphtheory.lab.bench.node_config import NodeRunConfig, Sampling, load, prepare, train_nodes
from graphtheory.lab.bench.node_task import NodeBenchTask
from graphtheory.lab.bench.task import RunResult
from graphtheory.lab.report.benchmark import options
from graphtheory.lab.train import AdamOptions, FullGraph, SampledGraph, SampledLayers
from graphtheory.lab.zoo import node_models as zoo
from graphtheory.lab.zoo.node_models import NetworkConfig
from graphtheory.models import SampledGCN
from graphtheory.patterns import AddSelf, Compose, SymmetricNormalize

FULL = NodeRunConfig(
    "gt",
    NetworkConfig(hidden=8, heads=2, neighbors="2:5", dropout=0.3, ffn=True),
    AdamOptions(lr=0.02, bias_lr=0.1),
    degree=True,
)


def graph(x: torch.Tensor) -> Data:
    return Data(x=x, edge_index=torch.tensor([[0, 1, 2, 3], [1, 1, 1, 0]]))


def trained(trial: NodeRunConfig, seed: int = 0, epochs: int = 4) -> RunResult:
    data = load("karate", None, None, seed, **trial.inputs)
    return train_nodes(trial, data, seed=seed, epochs=epochs, patience=epochs)


def test_features_are_scaled_and_a_degree_is_a_standardised_column() -> None:
    x = prepare(graph(torch.tensor([[3.0, 1.0], [0.0, 0.0], [0.2, 0.3], [0.0, 4.0]]))).x
    torch.testing.assert_close(x, torch.tensor([[0.75, 0.25], [0, 0], [0.2, 0.3], [0, 1]]))
    signed = torch.tensor([[3.0, -1.0], [5.0, 0.0], [0.2, 0.3], [0.0, 4.0]])
    assert torch.equal(prepare(graph(signed)).x, signed)
    other = torch.tensor([[3.0, 1.0], [0.5, 0.0], [0.0, 0.0], [1.0, 1.0]])
    assert prepare(graph(other)).x.tolist() == [[0.75, 0.25], [0.5, 0], [0, 0], [0.5, 0.5]]
    assert torch.equal(prepare(graph(other), row_scale=False).x, other)
    unscaled = NodeRunConfig("mlp", row_scale=False)
    assert NodeRunConfig.from_dict(unscaled.as_dict()).inputs["row_scale"] is False
    x = prepare(graph(torch.ones(4, 2)), degree=True).x
    log = torch.tensor([1.0, 3.0, 0.0, 0.0]).log1p()  # edges that arrive
    torch.testing.assert_close(x[:, 2], (log - log.mean()) / log.std())
    assert x[:, :2].unique().tolist() == [0.5]
    ring = Data(x=torch.ones(3, 2), edge_index=torch.tensor([[0, 1, 2], [1, 2, 0]]))
    assert prepare(ring, degree=True).x[:, 2].tolist() == [0, 0, 0]


@pytest.mark.parametrize("given_sparse", [False, True])
def test_mostly_empty_wide_features_become_sparse(given_sparse: bool) -> None:
    x = torch.zeros(4, 300)
    x[0, :2] = 1.0
    prepared = prepare(graph(x.to_sparse_csr() if given_sparse else x)).x
    assert prepared.layout == torch.sparse_csr
    assert torch.equal(prepared.to_dense(), x / 2)
    assert prepare(graph(torch.ones(4, 300))).x.layout == torch.strided
    assert prepare(graph(x[:, :200])).x.layout == torch.strided
    data = graph(torch.full((4, 2), 4.0))
    prepare(data, degree=True)
    assert data.x.unique().tolist() == [4.0] and data.x.size(1) == 2


@pytest.mark.parametrize("model", ["gt", "gat", "gcn", "mlp"])
def test_everything_random_follows_from_the_seed(model: str) -> None:
    trial = NodeRunConfig.of(model, hidden=8, heads=2, neighbors="all:5", attention_dropout=0.2)
    outcomes = []
    for noise in (1, 2):
        torch.manual_seed(noise)
        outcomes.append(trained(trial))
        expected = torch.random.get_rng_state()
        torch.manual_seed(noise)
        assert torch.equal(torch.random.get_rng_state(), expected), "the caller's state is changed"
    first, again = (list(o.model.parameters()) for o in outcomes)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    other = list(trained(trial, seed=1).model.parameters())
    assert not all(torch.equal(a, b) for a, b in zip(first, other, strict=True))


def test_options_reach_the_network_and_the_optimizer_and_parameters_learn() -> None:
    slow = trained(NodeRunConfig.of("mlp", hidden=8, lr=1e-9))
    fast = trained(NodeRunConfig.of("mlp", hidden=8, lr=0.1))
    losses = [[row["val_loss"] for row in o.fit.history] for o in (slow, fast)]
    assert losses[0][0] == pytest.approx(losses[0][-1], abs=1e-6)
    assert abs(losses[1][0] - losses[1][-1]) > 1e-3
    assert trained(FULL).batches.train_batch(0).x.size(1) == 35  # one-hot members and the degree
    free = trained(NodeRunConfig.of("gt", hidden=8, heads=2, layers=1), epochs=1)
    held = NodeRunConfig.of("gt", hidden=8, heads=2, layers=1, frozen_query=True)
    frozen = trained(held, epochs=1)
    query = 34 * 4 + 4  # one output layer: 34 features, 2 heads of 2 classes
    assert free.parameters - frozen.parameters == query
    assert free.parameters == sum(p.numel() for p in free.model.parameters())


WHOLE = Compose(AddSelf(), SymmetricNormalize())
TRIAL = NodeRunConfig.of("sampled-gcn", hidden=8, layers=3, dropout=0.0, share=0.4)


def batches(trial: NodeRunConfig = TRIAL, dataset: str = "karate") -> SampledLayers:
    found = node_config.task_of(trial, load(dataset, None, None, 0), 0)[1]
    assert isinstance(found, SampledLayers)
    return found


@pytest.mark.parametrize("sampler", node_config.SAMPLERS)
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


def test_the_network_is_that_of_the_chapter_and_degree_groups_are_not_empty() -> None:
    pattern: Any = Sampling(share=0.5).pattern(torch.tensor([1, 1, 100, 100, 1]))
    assert pattern.assignment.tolist() == [0, 0, 1, 1, 0]
    task, _ = node_config.task_of(TRIAL, load("karate", None, None, 0), 0)
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
        found = node_config.task_of(NodeRunConfig.of(model, **small, **options), data, 0)[1]
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
    facts = node_config.GraphFacts(2_000_000, 60_000_000, 4000, 0.08, 100)
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
    with pytest.raises(ValueError, match="fanout: got 5, expected a batch_size beside it"):
        with_options(trial, {"fanout": 5})
    assert with_options(trial, {"fanout": 5, "batch_size": 9}).sampling.fanout == 5


@pytest.mark.parametrize("model", zoo.NAMES)
def test_large_graphs_are_evaluated_in_rows(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if not (typing.WITH_PYG_LIB or typing.WITH_TORCH_SPARSE):
        pytest.skip("PyG samples neighbors with torch-sparse or pyg-lib")
    data, config = load("karate", None, None, 0), NodeRunConfig.of(model, hidden=8, batch_size=8)
    found = []
    for edges, rows in ((data.num_edges, None), (data.num_edges - 1, 5)):
        monkeypatch.setattr(node_config, "_EDGES_AT_ONCE", edges)
        monkeypatch.setattr(node_config, "_EVALUATED", 5)
        expected = None if model == "sgformer" else rows
        assert node_config.task_of(config, data, 0)[1].evaluation_batch().at_once == expected
        found.append(train_nodes(config, data, seed=0, epochs=2, patience=2).fit.history)
    for row, same in zip(*found, strict=True):
        assert row | {"seconds": 0} == pytest.approx(same | {"seconds": 0}, rel=1e-4)


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
    for one in (trial, FULL, NodeRunConfig("mlp"), NodeRunConfig.of("gat", lr=0.1, heads=8)):
        assert NodeRunConfig.from_dict(json.loads(json.dumps(one.as_dict()))) == one
    older = {name: value for name, value in trial.as_dict().items() if name != "sampling"}
    assert NodeRunConfig.from_dict(older).sampling == Sampling()
    words = {"sampler": "fastgcn", "share": "0.25", "batch_size": "none", "heads": "2"}
    bench = Benchmark(named_task("karate"), ("sampled-gcn", "gcn"), options=words)
    assert bench.config("sampled-gcn")[0].sampling == Sampling("fastgcn", 0.25)
    assert bench.config("gcn")[0].sampling == Sampling()
    assert "sampler=fastgcn" in bench.set_in("sampled-gcn")
    assert bench.set_in("gcn") == "batch_size=none"
    told = options(bench.config("sampled-gcn")[0])
    assert "sampler=fastgcn, share=0.25" in told and "residual" not in told
    assert "sampler" not in options(bench.config("gcn")[0])


@pytest.mark.parametrize(("given", "message"), [
    ({"sampler": "sage"}, "sampler: got 'sage', expected one of degree-groups, fastgcn"),
    ({"share": 0.0}, "share: got 0.0, expected a share of the nodes, in"),
    ({"share": 1.5}, "share: got 1.5"),
    ({"batch_size": 0}, "batch_size: got 0, expected 1 or more"),
    ({"batch_size": 4, "fanout": 0}, "fanout: got 0, expected 1 or more"),
])  # fmt: skip
def test_what_cannot_be_drawn_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Sampling(**given)
    with pytest.raises(ValueError, match=message.split(",")[0]):
        Benchmark(named_task("karate"), ("sampled-gcn",), options=given).config("sampled-gcn")
