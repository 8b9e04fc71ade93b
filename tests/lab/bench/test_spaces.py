import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from graphtheory.lab.bench import task
from graphtheory.lab.bench.config import axes_of, replaced
from graphtheory.lab.bench.graph_task import GraphRunConfig, TreesRunConfig
from graphtheory.lab.bench.node_config import GraphFacts, NodeRunConfig, node_default, tuned_config
from graphtheory.lab.bench.node_task import NodeBenchTask
from graphtheory.lab.bench.recipes import RECIPES
from graphtheory.lab.bench.search import SearchResult, config_from
from graphtheory.lab.datasets import graphs
from graphtheory.lab.datasets.catalogue import describe
from graphtheory.lab.zoo import graph_models as graph_zoo
from graphtheory.lab.zoo import node_models as zoo

FACTS = {
    "few labels": GraphFacts(2708, 10_556, 20.0, 0.05, 1433),
    "small": GraphFacts(183, 280, 17.6, 0.48, 1703),
    "middle": GraphFacts(7650, 238_162, 574.0, 0.6, 745),
    "large": GraphFacts(18_660, 1_581_554, 4_600.0, 0.5, 4735),
    "few columns": GraphFacts(10_000, 78_804, 2_500.0, 0.5, 7),
    "few columns, large": GraphFacts(11_758, 1_038_000, 2_940.0, 0.5, 10),
    "few columns, small": GraphFacts(183, 280, 17.6, 0.48, 63),
    "few columns, tiny": GraphFacts(34, 156, 5.0, 0.6, 34),
}


def default(facts: str, model: str = "gt") -> NodeRunConfig:
    return node_default(FACTS[facts], model)[0]


@cache
def can_be_built(model: str, network: zoo.NetworkConfig) -> bool:
    """Tried once for the many configurations that share a network."""
    zoo.build(model, network, num_features=5, num_classes=3)
    zoo.pattern_of(model, network)
    return True


@pytest.mark.parametrize("facts", FACTS)
def test_networks_share_defaults_that_lie_in_a_space_whose_choices_can_be_built(facts: str) -> None:
    trials = {model: default(facts, model) for model in zoo.NAMES}
    assert len({replace(trial.network, root_weight=True) for trial in trials.values()}) == 1
    assert len({(t.optimizer, t.degree, t.row_scale, t.sampling) for t in trials.values()}) == 1
    for model, config in trials.items():
        axes = axes_of("node", config)
        assert axes == axes_of("node", NodeRunConfig(model)), model  # whatever the graph
        for name, axis in axes.items():
            changed = [replaced(config, options) for options in axis.values()]
            assert len({repr(one) for one in changed}) == len(axis) > 1, (model, name)
            assert config in changed, (model, name)
            assert all(can_be_built(model, one.network) for one in changed)


TUNED_GNN = [name for name in RECIPES if name.startswith("tunedgnn/") and "/ogbn-" not in name]


@pytest.mark.parametrize("name", TUNED_GNN)
def test_a_published_recipe_is_a_candidate(name: str) -> None:
    recipe = RECIPES[name]
    fixed = ("bias", "self_loops")  # of a layer, which no search chooses
    of = {option: value for option, value in recipe.options.items() if option not in fixed}
    wanted, reached = NodeRunConfig.of(recipe.model, **of), NodeRunConfig(recipe.model)
    for axis in axes_of("node", wanted).values():
        agree = [choice for choice in axis.values() if replaced(wanted, choice) == wanted]
        reached = replaced(reached, max(agree, key=len))
    assert reached == replace(wanted, network=replace(wanted.network, heads=reached.network.heads))
    assert reached.network.heads in (1, 4) and len(TUNED_GNN) == 42


def test_networks_have_the_axes_that_they_read() -> None:
    axes = {model: dict(axes_of("node", NodeRunConfig(model))) for model in zoo.NAMES}
    common = set(axes["mlp"])
    assert common == set(axes["gcn"]) == set(axes["gcn-res"]) == set(axes["sage"])
    attending = {"heads", "attention_dropout"}
    assert set(axes["gat"]) - common == attending == set(axes["gat-res"]) - common
    assert set(axes["gt-plain"]) - set(axes["gat"]) == {"root_weight", "neighbors"}
    assert axes["gt"].pop("bias_lr")  # which without encoding means nothing
    assert axes["gt"] == axes["gt-plain"]
    assert set(axes["sampled-gcn"]) - common == {"sampler", "share"}
    assert "stack" not in axes["sampled-gcn"] and "stack" not in axes["sgformer"]
    mlp, gt = (axes_of("graph", GraphRunConfig(model)) for model in ("mlp", "gt"))
    assert set(gt) - set(mlp) >= {"walk", "virtual_node", "heads", "num_buckets"}


@pytest.mark.parametrize("model", graph_zoo.NAMES)
def test_the_defaults_of_sets_lie_in_their_space(model: str) -> None:
    config = GraphRunConfig(model)
    for name, axis in axes_of("graph", config).items():
        changed = [replaced(config, options) for options in axis.values()]
        assert config in changed and len(set(map(repr, changed))) == len(axis) > 1, name
    trees = axes_of("fingerprints", TreesRunConfig())
    assert len(trees) == 5 and "fingerprint" in trees


def test_default_options_follow_from_the_graph() -> None:
    assert [name for name, facts in FACTS.items() if facts.few_labels] == ["few labels"]
    few, many = default("few labels"), default("middle")
    assert few.network.dropout > many.network.dropout and many.network.residual
    assert many.network.root_weight and not few.network.root_weight
    assert default("few labels", "gcn-res").network.root_weight  # it is that term
    names = ("few columns", "few columns, large", "few columns, tiny", "middle")
    few, large, tiny, many = (default(name).network for name in names)
    assert (few.layers, large.layers, tiny.layers, many.layers) == (4, 3, 3, 2)
    assert few.input_dropout == large.input_dropout == 0 and many.input_dropout is None
    assert few.dropout == large.dropout < many.dropout
    assert FACTS["few columns, small"].has_few_features
    assert not replace(FACTS["few columns, small"], features=64).has_few_features
    decay = {name: default(name).optimizer.weight_decay for name in FACTS}
    assert decay["small"] == decay["few columns, small"] > decay["few labels"] > decay["middle"]
    assert decay["middle"] == decay["large"] == decay["few columns"]
    lengths = {name: node_default(facts, "gt")[1:] for name, facts in FACTS.items()}
    assert lengths["middle"] == (200, 50) and lengths["large"] == (150, 50)


def test_defaults_depend_on_no_name_and_no_hidden_label(monkeypatch: pytest.MonkeyPatch) -> None:
    facts, data = NodeBenchTask("karate").facts, NodeBenchTask("karate").data(0)
    assert (facts.nodes, facts.edges) == (34, 156)
    assert facts.labels_per_class == float(data.train_mask.sum()) / int(data.num_classes)
    before = GraphFacts.of(data)
    data.y[~data.train_mask] = 0
    assert GraphFacts.of(data) == before and before.features == data.x.size(1)
    for name, facts in FACTS.items():
        monkeypatch.setattr(NodeBenchTask, "facts", facts)
        monkeypatch.setattr(NodeBenchTask, "scales_rows", False)
        tasks = [NodeBenchTask(name) for name in ("Cora", "Actor", "digits")]
        assert [task.default("gt") for task in tasks] == [node_default(facts, "gt")] * 3
        dense = "neighbors" not in tasks[0].axes(default(name))  # two hops would be most pairs
        assert dense == (name in ("middle", "large", "few columns", "few columns, large"))


ALL = json.loads(task.TUNED.read_text()) if task.TUNED.exists() else {}
NODE_SETS = {name.lower() for name in graphs.names("node")}
KEPT = {dataset: of for dataset, of in ALL.items() if dataset in NODE_SETS}


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's file in a cache folder of its own, none at first, and no file of the package."""
    monkeypatch.setattr(task, "TUNED", tmp_path / "shipped.json")
    monkeypatch.setenv("GRAPHTHEORY_CACHE", str(tmp_path / "cache"))
    return task.user_file()


def chosen(model: str, val: float = 0.5, dataset: str = "karate", lr: float = 0.02) -> SearchResult:
    return SearchResult(dataset, NodeRunConfig.of(model, lr=lr), val, 12, 1.0, 1, 60, 20)


@pytest.mark.parametrize(("dataset", "model"), [(d, m) for d in ALL for m in ALL[d]])
def test_what_is_kept_can_be_built(dataset: str, model: str) -> None:
    kept = task.kept_options(dataset, model)
    assert kept is not None
    trial, epochs, patience = config_from(kept[0]), *kept[1:]
    assert trial.model == model and 0 < patience < epochs
    if dataset in NODE_SETS:
        assert isinstance(trial, NodeRunConfig)
        assert tuned_config(dataset, model) == (trial, epochs, patience)
        zoo.build(model, trial.network, num_features=5, num_classes=3)
        zoo.pattern_of(model, trial.network)
        assert 0 < KEPT[dataset][model]["val"] <= 1
        return
    assert describe(dataset).task == "graph"
    if isinstance(trial, GraphRunConfig):
        assert model in graph_zoo.NAMES
        sizes: dict[str, Any] = {"node_in": (4, 3), "edge_in": (5,), "num_outputs": 1}
        graph_zoo.build(model, trial.network, **sizes, level="graph")


def test_the_defaults_that_kept_options_leave_out() -> None:
    nodes, sets = NodeRunConfig("gt").as_dict(), GraphRunConfig("gt").as_dict()
    both = {"heads": 4, "hidden": 64, "attention_dropout": 0.0, "num_buckets": 20}
    one_graph = {
        "layers": 2, "dropout": 0.5, "input_dropout": None, "activation": None, "neighbors": "1",
        "root_weight": True, **dict.fromkeys(
            ("batch_norm", "layer_norm", "ffn", "frozen_query", "project", "residual"), False
        ),
    }  # fmt: skip
    several = {
        "layers": 4, "dropout": 0.1, "local": "gine", "neighbors": "all", "norm": "batch",
        "readout": "mean", **dict.fromkeys(("laplacian", "paths", "walk"), 0),
        **dict.fromkeys(("degree", "resistance", "value_encoding", "virtual_node"), False),
    }  # fmt: skip
    assert nodes["network"].items() >= (both | one_graph).items()
    assert sets["network"].items() >= (both | several).items()
    adam = {"average": None, "bias_lr": None, "decoupled": False}
    assert nodes["optimizer"].items() >= (adam | {"lr": 0.01, "weight_decay": 0.0005}).items()
    assert sets["optimizer"].items() >= (adam | {"lr": 0.001, "weight_decay": 0.0}).items()
    assert (nodes["degree"], nodes["row_scale"], sets["nodes_per_batch"]) == (False, True, 1024)


@pytest.mark.parametrize("dataset", KEPT)
def test_networks_that_are_compared_were_searched_together(dataset: str) -> None:
    assert {model.removesuffix("-res") for model in KEPT[dataset]} >= set(zoo.COMPARED)
    assert tuned_config(dataset.upper().replace("-", "_"), "gt") == tuned_config(dataset, "gt")
    assert task.kept_options(dataset.upper(), "gt")


def test_kept_and_read_again_beside_other_entries(file: Path) -> None:
    task.keep({"gt": chosen("gt"), "mlp": chosen("mlp")}, file)
    wanted = NodeRunConfig.of("gt", lr=0.02), 60, 20
    assert tuned_config("Karate", "gt") == wanted
    assert task.kept_options("KARATE", "mlp") and task.kept_options("karate", "gcn") is None
    task.keep({"gt": chosen("gt", lr=0.5)}, file)
    task.keep({"gt": chosen("gt", dataset="actor")}, file)
    assert tuned_config("karate", "gt")[0].optimizer.lr == 0.5
    assert tuned_config("karate", "mlp")[0].optimizer.lr == 0.02
    assert list(json.loads(file.read_text())) == ["actor", "karate"]  # in order, for short diffs


def test_the_users_file_is_read_before_the_shipped_one(file: Path) -> None:
    for where, lr in ((task.TUNED, 0.1), (file, 0.2)):
        task.keep({"gt": chosen("gt", lr=lr)}, where)
    task.keep({"mlp": chosen("mlp", lr=0.3)}, task.TUNED)
    assert file.parent.name == "cache" and list(json.loads(file.read_text())["karate"]) == ["gt"]
    assert tuned_config("karate", "gt")[0].optimizer.lr == 0.2
    assert tuned_config("karate", "mlp")[0].optimizer.lr == 0.3
    file.write_text("{")
    with pytest.raises(ValueError, match=r"tuned\.json is not a file of tuned options"):
        task.kept_options("karate", "gt")


def test_without_a_search_there_are_plain_options(file: Path) -> None:
    for model in zoo.NAMES:
        trial, epochs, patience = tuned_config("a graph of your own", model)
        assert trial.model == model
        assert (epochs, patience) == (200, 50)
        zoo.build(model, trial.network, num_features=5, num_classes=3)
        same = tuned_config("a graph of your own", "gt")[0]
        assert (trial.network, trial.optimizer) == (same.network, same.optimizer)  # one stack
    assert task.kept_options("karate", "gt") is None
    with pytest.raises(ValueError, match="model: got 'sag', expected one of gt"):
        tuned_config("cora", "sag")
