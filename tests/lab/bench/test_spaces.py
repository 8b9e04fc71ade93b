import json
from collections.abc import Mapping
from dataclasses import replace
from math import prod
from pathlib import Path

import pytest

from graphtheory.lab.bench import task
from graphtheory.lab.bench.graph_task import GraphRunConfig
from graphtheory.lab.bench.node_config import (
    DEFAULT,
    GraphFacts,
    NodeRunConfig,
    node_space,
    tuned_config,
)
from graphtheory.lab.bench.node_task import NodeBenchTask
from graphtheory.lab.bench.search import SearchResult, config_from
from graphtheory.lab.bench.task import Space
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
}
SPACES = {name: node_space(facts) for name, facts in FACTS.items()}
every_space = pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
every_model = pytest.mark.parametrize("model", zoo.NAMES)


def flat(trial: NodeRunConfig) -> dict[str, object]:
    values = trial.as_dict()
    groups = values["network"] | values["optimizer"] | values["sampling"]
    return groups | {name: values[name] for name in ("degree", "row_scale")}


def holds(value: object, name: str, trial: NodeRunConfig) -> bool:
    """Whether a trial has one value of an axis, or all options that it stands for."""
    options = value if isinstance(value, Mapping) else {name: value}
    return all(flat(trial)[option] == given for option, given in options.items())


@every_model
@every_space
def test_candidates_lie_in_the_space_can_be_built_and_come_again(space: Space, model: str) -> None:
    axes = space.shared | space.extra.get(model, {})
    eight = space.candidates(model, 8)
    assert eight == space.candidates(model, 8) and eight[:4] == space.candidates(model, 4)
    assert len(set(eight)) == len(eight) == 8 < prod(len(values) for values in axes.values())
    first, *drawn = eight
    assert space.first is not None
    assert first == NodeRunConfig.of(model, **{**space.first, **space.first_of.get(model, {})})
    for trial in drawn:
        assert trial.model == model
        for name, values in axes.items():
            assert any(holds(value, name, trial) for value in values), name
    for trial in eight:
        zoo.build(model, trial.network, num_features=5, num_classes=3)
        zoo.pattern_of(model, trial.network)
    if model != "sampled-gcn":  # the network on samples alone narrows a common axis
        assert not set(space.extra.get(model, {})) & set(space.shared)


@every_space
def test_candidates_draw_every_value_as_often(space: Space) -> None:
    _, *drawn = space.candidates("gt", 61)
    for name, values in (space.shared | space.extra["gt"]).items():
        counts = [sum(holds(value, name, trial) for trial in drawn) for value in values]
        assert max(counts) - min(counts) <= 1, (name, counts)
    encoded, plain = dict(space.extra["gt"]), space.extra["gt-plain"]
    assert encoded.pop("bias_lr")  # which without encoding means nothing
    assert encoded == plain
    assert space.extra["gt-gcn"] == space.extra["gt"]
    networks = {trial.network for trial in space.candidates("gt-plain", 4)}
    assert all(trial.network in networks for trial in space.candidates("gt", 4))
    trials = [space.default(model) for model in zoo.NAMES]
    assert len({replace(trial.network, root_weight=True) for trial in trials}) == 1
    assert len({(t.optimizer, t.degree, t.row_scale, t.sampling) for t in trials}) == 1


def test_default_options_follow_from_the_graph() -> None:
    assert [name for name, facts in FACTS.items() if facts.few_labels] == ["few labels"]
    few, many = (SPACES[name].candidates("gt", 1)[0] for name in ("few labels", "middle"))
    assert few.network.dropout > many.network.dropout and many.network.residual
    assert many.network.root_weight and not few.network.root_weight
    assert SPACES["few labels"].candidates("gcn-res", 1)[0].network.root_weight  # it is that term
    names = ("few columns", "few columns, large", "middle")
    few, large, many = (SPACES[name].default("gt").network for name in names)
    assert (few.layers, large.layers, many.layers) == (4, 3, 2)  # the space of large has no four
    assert few.input_dropout == large.input_dropout == 0 and many.input_dropout is None
    assert few.dropout == large.dropout < many.dropout
    assert FACTS["few columns, small"].has_few_features
    assert not replace(FACTS["few columns, small"], features=64).has_few_features
    decay = {n: space.default("gt").optimizer.weight_decay for n, space in SPACES.items()}
    assert decay["small"] == decay["few columns, small"] > decay["few labels"] > decay["middle"]
    assert decay["middle"] == decay["large"] == decay["few columns"]


def test_a_space_follows_from_the_graph_and_not_from_its_name_or_its_hidden_labels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    facts, data = NodeBenchTask("karate").facts, NodeBenchTask("karate").data(0)
    assert (facts.nodes, facts.edges) == (34, 156)
    assert facts.labels_per_class == float(data.train_mask.sum()) / int(data.num_classes)
    before = GraphFacts.of(data)
    data.y[~data.train_mask] = 0
    assert GraphFacts.of(data) == before and before.features == data.x.size(1)
    for facts in FACTS.values():
        monkeypatch.setattr(NodeBenchTask, "facts", facts)
        monkeypatch.setattr(NodeBenchTask, "scales_rows", False)
        spaces = [NodeBenchTask(name).space("gt") for name in ("Cora", "Actor", "digits")]
        assert spaces == [node_space(facts)] * 3
    assert SPACES["middle"].extra["gt"]["neighbors"] == ("1",)  # two hops would be most pairs
    assert SPACES["small"].extra["gt"]["neighbors"] == ("1", "2")
    assert max(SPACES["large"].shared["hidden"]) < max(SPACES["small"].shared["hidden"])


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
        graph_zoo.build(
            model, trial.network, node_in=(4, 3), edge_in=(5,), num_outputs=1, level="graph"
        )


@pytest.mark.parametrize("dataset", KEPT)
def test_networks_that_are_compared_were_searched_together(dataset: str) -> None:
    assert {model.removesuffix("-res") for model in KEPT[dataset]} >= set(zoo.COMPARED)
    assert tuned_config(dataset.upper().replace("-", "_"), "gt") == tuned_config(dataset, "gt")
    assert task.kept_options(dataset.upper(), "gt")


def test_kept_and_read_again_beside_other_entries(file: Path) -> None:
    every = dict.fromkeys(zoo.NAMES, DEFAULT)
    task.keep({"gt": chosen("gt"), "mlp": chosen("mlp")}, every, file)
    wanted = NodeRunConfig.of("gt", lr=0.02), DEFAULT.epochs, DEFAULT.patience
    assert tuned_config("Karate", "gt") == wanted
    assert task.kept_options("KARATE", "mlp") and task.kept_options("karate", "gcn") is None
    task.keep({"gt": chosen("gt", lr=0.5)}, every, file)
    task.keep({"gt": chosen("gt", dataset="actor")}, every, file)
    assert tuned_config("karate", "gt")[0].optimizer.lr == 0.5
    assert tuned_config("karate", "mlp")[0].optimizer.lr == 0.02
    assert list(json.loads(file.read_text())) == ["actor", "karate"]  # in order, for short diffs


def test_the_users_file_is_read_before_the_shipped_one(file: Path) -> None:
    for where, lr in ((task.TUNED, 0.1), (file, 0.2)):
        task.keep({"gt": chosen("gt", lr=lr)}, dict.fromkeys(zoo.NAMES, DEFAULT), where)
    task.keep({"mlp": chosen("mlp", lr=0.3)}, dict.fromkeys(zoo.NAMES, DEFAULT), task.TUNED)
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
        assert (epochs, patience) == (DEFAULT.epochs, DEFAULT.patience)
        zoo.build(model, trial.network, num_features=5, num_classes=3)
        same = tuned_config("a graph of your own", "gt")[0]
        assert (trial.network, trial.optimizer) == (same.network, same.optimizer)  # one stack
    assert task.kept_options("karate", "gt") is None
    with pytest.raises(ValueError, match="model: got 'sag', expected one of gt"):
        tuned_config("cora", "sag")


@pytest.mark.parametrize(("nodes", "most"), [(34, 60_000), (100, 60_000), (101, 20_000_000)])
def test_the_size_of_candidates_follows_the_graph(nodes: int, most: int) -> None:
    space, found = node_space(replace(FACTS["small"], nodes=nodes)), []
    for model in ("gt", "gt-plain", "gat", "gcn", "mlp"):
        for trial in space.candidates(model, 16):
            network = zoo.build(model, trial.network, num_features=34, num_classes=4)
            found.append(sum(p.numel() for p in network.parameters()))
    assert most / 10 < max(found) < most
