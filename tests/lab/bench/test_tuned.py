import json
from pathlib import Path

import pytest

from graphtheory.lab.bench import tuned
from graphtheory.lab.bench.node_config import NodeRunConfig
from graphtheory.lab.bench.search import SearchResult, config_from
from graphtheory.lab.bench.spaces import DEFAULT
from graphtheory.lab.datasets import graphs
from graphtheory.lab.datasets.catalogue import describe
from graphtheory.lab.zoo import graph_models as graph_zoo
from graphtheory.lab.zoo import node_models as zoo

SPACES = dict.fromkeys(zoo.NAMES, DEFAULT)
ALL = json.loads(tuned.FILE.read_text()) if tuned.FILE.exists() else {}
NODE_SETS = {name.lower() for name in graphs.names("node")}
KEPT = {dataset: of for dataset, of in ALL.items() if dataset in NODE_SETS}
OF_GRAPHS = {dataset: of for dataset, of in ALL.items() if dataset not in NODE_SETS}


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's file in a cache folder of its own, none at first, and no file of the package."""
    monkeypatch.setattr(tuned, "FILE", tmp_path / "shipped.json")
    monkeypatch.setenv("GRAPHTHEORY_CACHE", str(tmp_path / "cache"))
    return tuned.user_file()


def chosen(model: str, val: float = 0.5, dataset: str = "karate", lr: float = 0.02) -> SearchResult:
    return SearchResult(dataset, NodeRunConfig.of(model, lr=lr), val, 12, 1.0, 1, 60, 20)


@pytest.mark.parametrize(("dataset", "model"), [(d, m) for d in KEPT for m in KEPT[d]])
def test_what_is_kept_can_be_built(dataset: str, model: str) -> None:
    trial, epochs, patience = tuned.tuned_config(dataset, model)
    assert trial.model == model and tuned.kept_options(dataset, model)
    assert 0 < patience < epochs
    zoo.build(model, trial.network, num_features=5, num_classes=3)
    zoo.pattern_of(model, trial.network)
    assert 0 < KEPT[dataset][model]["val"] <= 1


@pytest.mark.parametrize(("dataset", "model"), [(d, m) for d in OF_GRAPHS for m in OF_GRAPHS[d]])
def test_what_is_kept_of_sets_of_graphs_can_be_built(dataset: str, model: str) -> None:
    assert describe(dataset).task == "graph"
    values, epochs, patience = tuned.kept_options(dataset, model)
    trial = config_from(values)
    assert trial.model == model and 0 < patience < epochs
    if model in graph_zoo.NAMES:
        graph_zoo.build(
            model, trial.network, node_in=(4, 3), edge_in=(5,), num_outputs=1, level="graph"
        )


def test_every_way_to_write_a_name_finds_its_options() -> None:
    wanted = tuned.tuned_config("chameleon-filtered", "gt")
    assert tuned.tuned_config("Chameleon_Filtered", "gt") == wanted
    assert tuned.kept_options("CHAMELEON_filtered", "gt")


@pytest.mark.parametrize("dataset", KEPT)
def test_networks_that_are_compared_were_searched_together(dataset: str) -> None:
    assert {model.removesuffix("-res") for model in KEPT[dataset]} >= set(zoo.COMPARED)


def test_kept_and_read_again(file: Path) -> None:
    tuned.keep({"gt": chosen("gt"), "mlp": chosen("mlp")}, SPACES, file)
    wanted = NodeRunConfig.of("gt", lr=0.02), DEFAULT.epochs, DEFAULT.patience
    assert tuned.tuned_config("Karate", "gt") == wanted
    assert tuned.kept_options("KARATE", "mlp") and tuned.kept_options("karate", "gcn") is None


def test_other_entries_stay(file: Path) -> None:
    tuned.keep({"gt": chosen("gt"), "mlp": chosen("mlp")}, SPACES, file)
    tuned.keep({"gt": chosen("gt", lr=0.5)}, SPACES, file)
    tuned.keep({"gt": chosen("gt", dataset="actor")}, SPACES, file)
    assert tuned.tuned_config("karate", "gt")[0].optimizer.lr == 0.5
    assert tuned.tuned_config("karate", "mlp")[0].optimizer.lr == 0.02
    assert list(json.loads(file.read_text())) == ["actor", "karate"]  # in order, for short diffs


def test_the_users_file_is_read_before_the_shipped_one(file: Path) -> None:
    for where, lr in ((tuned.FILE, 0.1), (file, 0.2)):
        tuned.keep({"gt": chosen("gt", lr=lr)}, SPACES, where)
    tuned.keep({"mlp": chosen("mlp", lr=0.3)}, SPACES, tuned.FILE)
    assert file.parent.name == "cache" and list(json.loads(file.read_text())["karate"]) == ["gt"]
    assert tuned.tuned_config("karate", "gt")[0].optimizer.lr == 0.2
    assert tuned.tuned_config("karate", "mlp")[0].optimizer.lr == 0.3
    file.write_text("{")
    with pytest.raises(ValueError, match=r"tuned\.json is not a file of tuned options"):
        tuned.kept_options("karate", "gt")


def test_without_a_search_there_are_plain_options(file: Path) -> None:
    for model in zoo.NAMES:
        trial, epochs, patience = tuned.tuned_config("a graph of your own", model)
        assert trial.model == model
        assert (epochs, patience) == (DEFAULT.epochs, DEFAULT.patience)
        zoo.build(model, trial.network, num_features=5, num_classes=3)
        same = tuned.tuned_config("a graph of your own", "gt")[0]
        assert (trial.network, trial.optimizer) == (same.network, same.optimizer)  # one stack
    assert tuned.kept_options("karate", "gt") is None


def test_unknown_model(file: Path) -> None:
    with pytest.raises(ValueError, match="model: got 'sag', expected one of gt"):
        tuned.tuned_config("cora", "sag")
