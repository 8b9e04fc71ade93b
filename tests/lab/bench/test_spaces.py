from collections.abc import Mapping
from dataclasses import replace
from math import prod

import pytest

from graphtheory.lab.bench.graph_task import graph_space
from graphtheory.lab.bench.node_config import NodeRunConfig
from graphtheory.lab.bench.node_task import NodeBenchTask
from graphtheory.lab.bench.spaces import GraphFacts, Space, node_space
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
    return (
        values["network"]
        | values["optimizer"]
        | values["sampling"]
        | {name: values[name] for name in ("degree", "row_scale")}
    )


def holds(value: object, name: str, trial: NodeRunConfig) -> bool:
    """Whether a trial has one value of an axis, or all options that it stands for."""
    options = value if isinstance(value, Mapping) else {name: value}
    return all(flat(trial)[option] == given for option, given in options.items())


@every_model
@every_space
def test_candidates_are_the_same_again_distinct_and_a_prefix(space: Space, model: str) -> None:
    four, eight = space.candidates(model, 4), space.candidates(model, 8)
    assert eight == space.candidates(model, 8)
    assert eight[:4] == four
    assert len(set(eight)) == len(eight)
    choices = prod(len(v) for v in (space.shared | space.extra.get(model, {})).values())
    assert len(eight) == 8 < choices


@every_model
@every_space
def test_candidates_lie_in_the_space_and_can_be_built(space: Space, model: str) -> None:
    axes = space.shared | space.extra.get(model, {})
    first, *drawn = space.candidates(model, 8)
    assert space.first is not None
    assert first == NodeRunConfig.of(model, **{**space.first, **space.first_of.get(model, {})})
    for trial in drawn:
        assert trial.model == model
        for name, values in axes.items():
            assert any(holds(value, name, trial) for value in values), name
    for trial in (first, *drawn):
        zoo.build(model, trial.network, num_features=5, num_classes=3)
        zoo.pattern_of(model, trial.network)


@every_space
def test_only_the_network_on_samples_narrows_a_common_axis(space: Space) -> None:
    for model in set(zoo.NAMES) - {"sampled-gcn"}:
        assert not set(space.extra.get(model, {})) & set(space.shared), model


@every_space
def test_plain_transformer_has_the_choices_of_the_encoded_one(space: Space) -> None:
    encoded, plain = dict(space.extra["gt"]), space.extra["gt-plain"]
    assert encoded.pop("bias_lr")  # which without encoding means nothing
    assert encoded == plain
    assert space.extra["gt-gcn"] == space.extra["gt"]


@every_space
def test_every_value_is_drawn_as_often(space: Space) -> None:
    _, *drawn = space.candidates("gt", 61)
    for name, values in (space.shared | space.extra["gt"]).items():
        counts = [sum(holds(value, name, trial) for trial in drawn) for value in values]
        assert max(counts) - min(counts) <= 1, (name, counts)


def test_the_first_draws_of_a_set_of_graphs_have_both_norms() -> None:
    trials = graph_space(1000, 30_000).candidates("gt", 3)
    assert {trial.network.norm for trial in trials[1:]} == {"batch", "layer"}


def test_a_space_follows_from_the_graph_and_from_no_name(monkeypatch: pytest.MonkeyPatch) -> None:
    for facts in FACTS.values():
        monkeypatch.setattr(NodeBenchTask, "facts", facts)
        monkeypatch.setattr(NodeBenchTask, "scales_rows", False)
        spaces = [NodeBenchTask(name).space("gt") for name in ("Cora", "Actor", "digits")]
        assert spaces == [node_space(facts)] * 3
    assert SPACES["middle"].extra["gt"]["neighbors"] == ("1",)  # two hops would be most pairs
    assert SPACES["small"].extra["gt"]["neighbors"] == ("1", "2")
    assert max(SPACES["large"].shared["hidden"]) < max(SPACES["small"].shared["hidden"])


def test_default_options_follow_from_how_many_nodes_are_labeled() -> None:
    assert [name for name, facts in FACTS.items() if facts.few_labels] == ["few labels"]
    few, many = (SPACES[name].candidates("gt", 1)[0] for name in ("few labels", "middle"))
    assert few.network.dropout > many.network.dropout and many.network.residual
    assert many.network.root_weight and not few.network.root_weight
    assert SPACES["few labels"].candidates("gcn-res", 1)[0].network.root_weight  # it is that term


def default(name: str, model: str = "gt") -> NodeRunConfig:
    (trial,) = SPACES[name].candidates(model, 1)
    return trial


def test_default_options_follow_from_columns_of_features() -> None:
    few, large, many = (default(n).network for n in ("few columns", "few columns, large", "middle"))
    assert (few.layers, large.layers, many.layers) == (4, 3, 2)  # the space of large has no four
    assert few.input_dropout == large.input_dropout == 0 and many.input_dropout is None
    assert few.dropout == large.dropout < many.dropout
    assert FACTS["few columns, small"].has_few_features
    assert not replace(FACTS["few columns, small"], features=64).has_few_features


def test_default_weight_decay_follows_from_labels_of_a_class() -> None:
    decay = {name: default(name).optimizer.weight_decay for name in FACTS}
    assert decay["small"] == decay["few columns, small"] > decay["few labels"] > decay["middle"]
    assert decay["middle"] == decay["large"] == decay["few columns"]


@pytest.mark.parametrize("name", FACTS)
def test_default_options_are_the_same_for_every_network(name: str) -> None:
    trials = [default(name, model) for model in zoo.NAMES]
    assert len({replace(trial.network, root_weight=True) for trial in trials}) == 1
    assert len({(t.optimizer, t.degree, t.row_scale, t.sampling) for t in trials}) == 1


def test_facts_read_no_label_of_validation_or_test() -> None:
    data = NodeBenchTask("karate").data(0)
    before = GraphFacts.of(data)
    data.y[~data.train_mask] = 0
    assert GraphFacts.of(data) == before and before.features == data.x.size(1)


def test_facts_of_a_graph() -> None:
    facts = NodeBenchTask("karate").facts
    assert (facts.nodes, facts.edges) == (34, 156)
    data = NodeBenchTask("karate").data(0)
    assert facts.labels_per_class == float(data.train_mask.sum()) / int(data.num_classes)
    assert facts.two_hops == 156**2 / 34


def test_unknown_option() -> None:
    with pytest.raises(ValueError, match=r"options: unknown 'depth', expected some of .*layers"):
        NodeRunConfig.of("gt", depth=3)
    with pytest.raises(ValueError, match="lr: got -1"):
        NodeRunConfig.of("gt", lr=-1)


@every_space
def test_transformers_share_their_candidates_but_for_the_encoding(space: Space) -> None:
    encoded, plain = (space.candidates(model, 4) for model in ("gt", "gt-plain"))
    networks = {trial.network for trial in plain}
    assert all(trial.network in networks for trial in encoded)
