"""Options set by hand: read, applied to the models that read them, told, and kept in the record."""

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch
from torch_geometric.data import Batch, Data

import graphtheory
from graphtheory.graph import Neighborhood
from graphtheory.lab.bench import config
from graphtheory.lab.bench.benchmark import Benchmark, FinishedRuns
from graphtheory.lab.bench.config import checked_options, read_options, with_options
from graphtheory.lab.bench.graph_task import GraphRunConfig, OwnGraphs, TreesRunConfig, network_of
from graphtheory.lab.bench.node_config import NodeRunConfig
from graphtheory.lab.datasets.graph_sets import precomputed
from graphtheory.lab.train import AdamOptions
from graphtheory.lab.zoo import graph_models as graph_zoo
from graphtheory.lab.zoo import node_models as zoo

OTHER: dict[str, Any] = {
    "hidden": 16, "layers": 3, "heads": 2, "dropout": 0.4, "attention_dropout": 0.4,
    "norm": "layer", "readout": "sum", "neighbors": "2", "local": None, "num_buckets": 3,
    "value_encoding": True, "paths": 2, "resistance": True, "degree": True, "walk": 3,
    "laplacian": 2, "virtual_node": True,
}  # fmt: skip
# Of the stacks of published recipes alone, whose test is tests/lab/zoo/test_graph_recipes.py.
OF_STACKS = {
    "stack", "activation", "residual", "ffn", "head_width", "head_layers", "walk_width",
    "edge_features",
}  # fmt: skip
OF_NODES: dict[str, Any] = {
    "hidden": 16, "layers": 3, "heads": 2, "dropout": 0.1, "input_dropout": 0.1,
    "attention_dropout": 0.4, "residual": True, "ffn": True, "project": True, "batch_norm": True,
    "layer_norm": True, "activation": "relu", "root_weight": False, "frozen_query": True,
    "num_buckets": 3, "neighbors": "2", "output": "linear", "linear_residual": True, "bias": False,
    "self_loops": True, "gate": True,
}  # fmt: skip

BASE = {
    "ffn": {"residual": True}, "linear_residual": {"output": "linear"},
    "gate": {"output": "linear"},
}  # fmt: skip


def molecules(count: int = 12) -> OwnGraphs:
    graphs = []
    for i in range(count):
        here = torch.arange(5 + i % 3)
        path = torch.stack([here[:-1], here[1:]])
        edges = torch.cat([path, path.flip(0)], 1)
        features = torch.arange(2.0 * edges.size(1)).view(-1, 2).sin()
        x = torch.stack([here.float().sin(), torch.full((len(here),), 0.1 * i)], 1)
        graphs.append(Data(x=x, edge_index=edges, edge_attr=features, y=torch.tensor([i % 2])))
    return OwnGraphs(graphs, split=(list(range(6)), list(range(6, 9)), list(range(9, count))))


@pytest.mark.parametrize("model", graph_zoo.COMPARED)
def test_ignored_options_change_nothing_and_all_others_do(model: str) -> None:
    assert set(OTHER) | OF_STACKS == {f.name for f in fields(graph_zoo.GraphConfig)}
    facts = molecules().graphs(0)
    small = GraphRunConfig(model, graph_zoo.GraphConfig(hidden=8, layers=2, heads=4))

    needs = {"distance": 1, "walk": 3, "laplacian": 2, "paths": 2, "resistance": 1}
    batch = Batch.from_data_list(list(precomputed(facts, **needs)))

    def seen(options: dict[str, Any]) -> tuple[Any, torch.Tensor]:
        trial = GraphRunConfig(model, graph_zoo.GraphConfig(**vars(small.network) | options))
        torch.manual_seed(0)
        network = network_of(trial, facts)
        torch.manual_seed(1)
        return [(n, p.shape) for n, p in network.named_parameters()], network(batch.clone())

    shapes, out = seen({})
    for name, value in OTHER.items():
        others, changed = seen({name: value})
        same = shapes == others and torch.equal(out, changed)
        assert same == config.ignores(small, name, value), name
    groups = AdamOptions(bias_lr=0.5).build(network_of(small, facts)).param_groups
    assert (len(groups) == 1) == config.ignores(small, "bias_lr")


@pytest.mark.parametrize("model", zoo.NAMES)
def test_the_same_of_networks_for_nodes(model: str) -> None:
    assert set(OF_NODES) == {f.name for f in fields(zoo.NetworkConfig)}
    here = torch.arange(12)
    edges = torch.stack([here, (here + 1) % 12])
    graph = Neighborhood.from_edge_index(torch.cat([edges, edges.flip(0)], 1), 12)
    x = torch.randn(12, 3, generator=torch.Generator().manual_seed(0))
    small: dict[str, Any] = {"hidden": 8, "layers": 2, "heads": 4}

    def seen(options: dict[str, Any]) -> tuple[Any, torch.Tensor]:
        config = zoo.NetworkConfig(**small | options)
        torch.manual_seed(0)
        network = zoo.build(model, config, num_features=3, num_classes=2)
        torch.manual_seed(1)
        out = network(x, zoo.pattern_of(model, config)(graph))
        return [(n, p.shape, p.requires_grad) for n, p in network.named_parameters()], out

    for name, value in OF_NODES.items():
        base: dict[str, Any] = BASE.get(name, {})
        (shapes, out), (others, changed) = seen(base), seen(base | {name: value})
        same = shapes == others and torch.equal(out, changed)
        assert same == config.ignores(NodeRunConfig(model), name, value), name


def test_options_take_the_place_of_those_of_models_that_read_them() -> None:
    trials = [GraphRunConfig("gt"), GraphRunConfig("gcn"), TreesRunConfig()]
    words = "walk=16,readout=token,paths=5,value_encoding=true,local=none,lr=1e-3,bits=64"
    found = checked_options(trials, read_options(words.split(",")))
    gt, gcn, trees = (with_options(trial, found) for trial in trials)
    assert gt.network == graph_zoo.GraphConfig(
        walk=16, readout="token", paths=5, value_encoding=True, local=None
    )
    assert gt.optimizer == AdamOptions(1e-3, 0.0) and gt.nodes_per_batch == 1024
    assert gcn.network == graph_zoo.GraphConfig(walk=16) and trees == TreesRunConfig(bits=64)
    assert checked_options(trials[:1], {"walk": 16, "lr": 1, "local": None}) == {
        "walk": 16, "lr": 1.0, "local": None,
    }  # fmt: skip
    node = with_options(NodeRunConfig("gat"), {"degree": True, "hidden": 32, "num_buckets": 3})
    assert node.degree and node.network == zoo.NetworkConfig(hidden=32)
    assert {"walk", "lr", "nodes_per_batch"} <= config.known_options(GraphRunConfig("gt")).keys()


@pytest.mark.parametrize(("given", "expected"), [
    ({"depth": 3}, "options: unknown 'depth', expected some of activation, attention_dropout,"),
    ({"walk": "many"}, "walk: got 'many', expected a whole number"),
    ({"walk": True}, "walk: got True, expected a whole number"),
    ({"walk": -1}, "walk: got -1, expected 0 or more"),
    ({"layers": "0"}, "layers: got 0, expected 1 or more"),
    ({"degree": "yes"}, "degree: got 'yes', expected true or false"),
    ({"lr": "fast"}, "lr: got 'fast', expected a number"),
    ({"lr": None}, "lr: got None, expected a number"),
    ({"bias_lr": "fast"}, "bias_lr: got 'fast', expected a number, or none"),
    ({"lr": "-1"}, "lr: got -1.0, expected a step size above 0"),
    ({"readout": "best"}, "readout: got 'best', expected one of mean, sum, max"),
    ({"heads": "7"}, "heads: got 7, expected a divisor of hidden=64"),
])  # fmt: skip
def test_options_that_cannot_be_used(given: dict[str, Any], expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        graphtheory.bench(molecules(), ("gt", "gcn"), options=given, progress=False)


def test_options_without_effect_or_name_are_refused() -> None:
    for kind in (NodeRunConfig, GraphRunConfig):
        with pytest.raises(ValueError, match=r"options: unknown 'depth', expected some.*layers"):
            kind.of("gt", depth=3)
    with pytest.raises(ValueError, match="lr: got -1"):
        NodeRunConfig.of("gt", lr=-1)
    assert with_options(NodeRunConfig("gcn"), {"ffn": True, "residual": True}).network.ffn
    for given, wanted in (({"ffn": True}, "true"), ({"project": True, "residual": True}, "false")):
        with pytest.raises(ValueError, match=f"got true, expected residual={wanted} beside it"):
            with_options(NodeRunConfig("gcn"), given)
    for words in (["walk"], ["walk="], ["=3"]):
        with pytest.raises(ValueError, match="expected NAME=VALUE such as walk=16"):
            read_options(words)
    with pytest.raises(ValueError, match="walk is set twice, to 1 and to 2"):
        read_options(["walk=1", "walk=2"])
    nodes = [Data(**g.to_dict() | {"y": torch.arange(len(g.x)) % 2}) for g in molecules().own]
    with pytest.raises(ValueError, match="readout: got 'sum', expected none or 'token'"):
        graphtheory.bench(nodes, ("gt",), options={"readout": "sum"})
    with pytest.raises(ValueError, match="budget: got 2, expected 0 beside options"):
        graphtheory.bench(molecules(), ("gt",), options={"walk": 2}, budget=2)


def test_tables_and_records_say_what_was_set_by_hand(tmp_path: Path) -> None:
    options = {"walk": 4, "readout": "token", "paths": 2}
    short: dict[str, Any] = {"seeds": 1, "epochs": 1, "progress": False, "out": tmp_path}
    found = graphtheory.bench(molecules(), ("gt", "gcn"), options=options, **short)
    told = "walk=4, readout=token, paths=2 (gcn ignores readout=token, paths)"
    assert f"Set by hand: {told}. All other hyperparameters are defaults (one" in str(found)
    kept = json.loads((tmp_path / "results.json").read_text())["settings"]
    assert kept["set_by_hand"] == told and kept["models"]["gt"]["network"]["paths"] == 2
    assert kept["models"]["gcn"]["network"]["paths"] == 0
    assert kept["models"]["gt"]["options"] == (
        "set by hand: walk=4, readout=token, paths=2; others defaults, not tuned"
    )
    assert {(row.parameters["model"], row.parameters["set by hand"]) for row in found.rows()} == {
        ("gt", "walk=4, readout=token, paths=2"), ("gcn", "walk=4"),
    }  # fmt: skip
    unread = graphtheory.bench(molecules(), ("gcn",), options={"paths": 2}, **short | {"out": None})
    assert "Set by hand: paths=2 (gcn ignores paths)." in str(unread)
    assert unread.chosen_by("gcn") == "defaults, not tuned"
    assert all("set by hand" not in row.parameters for row in unread.rows())
    assert "walk=4, readout=token, paths=2" in (tmp_path / "results.csv").read_text()
    record = FinishedRuns(tmp_path / "runs.jsonl")
    same = Benchmark(molecules(), ("gt", "gcn"), 1, 1, record=record, options=options)
    assert same.count_known() == 2
    with pytest.raises(ValueError, match="holds model gt, seed 0 under other settings: network"):
        Benchmark(molecules(), ("gt", "gcn"), 1, 1, record=record).count_known()
