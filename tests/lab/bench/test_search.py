import json
import re
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from statistics import mean
from typing import Any

import optuna
import pytest
import torch

from graphtheory.lab.bench import search as module
from graphtheory.lab.bench.benchmark import Benchmark
from graphtheory.lab.bench.config import Budget
from graphtheory.lab.bench.graph_task import GraphRunConfig, TreesRunConfig
from graphtheory.lab.bench.node_config import NodeRunConfig, load, train_nodes
from graphtheory.lab.bench.node_task import NodeBenchTask, OwnNodes
from graphtheory.lab.bench.own_model import OwnRunConfig
from graphtheory.lab.bench.search import SearchResult, best, read_log, search
from graphtheory.lab.bench.task import RunResult
from graphtheory.lab.datasets import graphs
from graphtheory.lab.train.fit import FitResult
from graphtheory.lab.zoo import node_models as zoo
from tests.conftest import case
from tests.lab.bench.conftest import Listen

small = pytest.mark.usefixtures("small_space")
MODELS = ("gt", "mlp")
Runs = list[tuple[NodeRunConfig, int]]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "made when needed" / "search.log"


@pytest.fixture
def runs(listen: Listen) -> Runs:
    """Every training that a search asks for."""
    return listen()


def timeless(found: list[SearchResult]) -> list[SearchResult]:
    return [replace(one, seconds=0.0) for one in found]


def judged(model: str, val: float, seeds: int = 1, **options: Any) -> SearchResult:
    config = NodeRunConfig.of(model, **options)
    return SearchResult("karate", config, val, 10, 1.0, seeds, 60, 20)


@small
def test_candidates_begin_with_the_defaults_and_are_judged_on_validation(runs: Runs) -> None:
    told: list[tuple[str, int, int | None]] = []
    task = NodeBenchTask("karate")
    found = search(task, MODELS, 4, progress=lambda *args: told.append(args))
    assert [one.config.model for one in found] == ["gt"] * 4 + ["mlp"] * 4
    assert [found[i].config for i in (0, 4)] == [task.default(model)[0] for model in MODELS]
    assert len({repr(one.config) for one in found}) == 8
    assert [(text[:2], done, total) for text, done, total in told[:4]] == [
        ("gt", done, 8) for done in range(4)
    ]
    assert told[1][0].startswith("gt, best ")
    assert [text.partition(", ")[2].partition(", ")[2] for text, *_ in told[4:10]] == [
        f"finalists on split {split}" for split in (1, 1, 1, 2, 2, 2)
    ]
    assert sorted(one.seeds for one in found[:4]) == [1, 3, 3, 3]
    assert len(runs) == 2 * (4 + 3 * 2)
    splits = [load("karate", None, None, seed) for seed in range(3)]
    for one in found:
        outcomes = [train_nodes(one.config, split, seed=seed, epochs=3, patience=3)
                    for seed, split in enumerate(splits[: one.seeds])]  # fmt: skip
        assert one.val == mean(outcome.fit.val for outcome in outcomes)
        assert one.parameters == outcomes[0].parameters and one.seconds > 0


@small
def test_a_finished_candidate_is_not_trained_again(log: Path, runs: Runs) -> None:
    first = search("karate", MODELS, 2, log=log)
    assert len(runs) == 2 * 2 * 3  # models, candidates, splits
    assert search("karate", MODELS, 2, log=log) == first == read_log(log)
    assert len(runs) == 2 * 2 * 3
    more = search("karate", MODELS, 4, log=log)
    assert len(runs) == len(set(runs))
    assert [one.config for one in more[:2]] == [one.config for one in first[:2]]
    assert search("karate", MODELS, 4, log=log) == more == read_log(log)
    assert [path.name for path in log.parent.iterdir()] == ["search.log"]


@small
def test_a_killed_search_goes_on_as_if_it_had_not_been(
    tmp_path: Path, runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, train = search("karate", ("mlp",), 6), NodeBenchTask.run
    trainings = last = len(runs)

    def dies(*given: Any, progress: Any, **options: Any) -> RunResult:
        def heard(row: Any) -> None:
            if len(runs) == last:
                raise RuntimeError("killed")  # within a training, whose epochs are lost
            return progress and progress(row)

        return train(*given, progress=heard, **options)

    for killed in range(1, 12, 3):
        log, before = tmp_path / f"{killed}.log", len(runs)
        last = before + killed
        with monkeypatch.context() as patch, pytest.raises(RuntimeError, match="killed"):
            patch.setattr(NodeBenchTask, "run", dies)
            search("karate", ("mlp",), 6, log=log)
        log.write_text(log.read_text() + '{"op_code": 8')  # cut short
        with case(f"killed in training {killed}"):
            assert timeless(search("karate", ("mlp",), 6, log=log)) == timeless(whole)
            assert len(runs) == before + trainings + 1


@small
def test_candidates_under_other_settings_do_not_count(log: Path, runs: Runs) -> None:
    search("karate", ("mlp",), 1, log=log)
    search("karate", ("mlp",), 1, log=log, epochs=2)
    other = NodeBenchTask("karate")
    other.split_seed = 1
    search(other, ("mlp",), 1, log=log)
    assert len(runs) == 3
    assert [one.epochs for one in read_log(log)] == [3, 2, 3]
    search(other, ("mlp",), 1, log=log)
    assert len(runs) == 3


@small
def test_epochs_and_patience_are_those_asked_for(log: Path) -> None:
    assert NodeBenchTask("karate").default("mlp")[1:] == (3, 3)
    (one,) = search("karate", ("mlp",), 1, epochs=9, patience=5)
    assert (one.epochs, one.patience) == (9, 5)
    bench = Benchmark(NodeBenchTask("karate"), ("mlp",), 1, epochs=9, patience=5)
    told = nullcontext(lambda *_: None)
    chosen, (tried,) = module.choose(bench, Budget.of(1), log, told)
    assert tried.as_dict() | {"seconds": 0} == one.as_dict() | {"seconds": 0}
    assert chosen.config("mlp") == (tried.config, 9, 5)


DAMAGES: dict[str, Callable[[str], str]] = {
    "cut": lambda line: line[: len(line) // 2], "empty": lambda line: "",
    "null": lambda line: "null", "list": lambda line: "[1, 2]", "object": lambda line: "{}",
    "digit": lambda line: re.sub(r'"val":[\d.]+', '"val":0.1', line),
    "no digest": lambda line: line.replace('"sha256"', '"sha"'),
    "binary": lambda line: "\x00\xff",
}  # fmt: skip


@small
def test_a_broken_line_is_named(log: Path) -> None:
    search("karate", ("mlp",), 2, log=log)
    lines = log.read_text().splitlines()
    place = next(i for i, line in enumerate(lines) if '"runs"' in line)
    for damage, of in DAMAGES.items():
        broken = [*lines[:place], of(lines[place]), *lines[place + 1 :]]
        log.write_text("\n".join(broken) + "\n", encoding="latin-1")
        for reading in (read_log, lambda path: search("karate", ("mlp",), 2, log=path)):
            with pytest.raises(ValueError, match=rf"line {place + 1} of .*search\.log is no line"):
                pytest.fail(f"{damage} is read as {reading(log)}")


def test_a_log_of_an_earlier_version_is_refused(log: Path) -> None:
    assert read_log(log) == [] and not log.parent.exists()
    log.parent.mkdir()
    log.with_suffix(".jsonl").write_text("")
    for path in (log, log.with_suffix(".jsonl")):
        with pytest.raises(ValueError, match=r"search\.jsonl is the log .* rename or delete it"):
            read_log(path)
    with pytest.raises(ValueError, match=r"search\.jsonl is the log"):
        search("karate", ("mlp",), 1, log=log)


@small
def test_no_log_no_file_no_line_of_optuna_and_no_unknown_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    before = optuna.logging.get_verbosity()
    search("karate", ("mlp",), 1)
    assert list(tmp_path.iterdir()) == [] and capsys.readouterr().err == ""
    assert optuna.logging.get_verbosity() == before
    with pytest.raises(ValueError, match="model: got 'sag', expected one of gt"):
        search("karate", ("mlp", "sag"), 1)


def scripted(
    monkeypatch: pytest.MonkeyPatch, scores: Callable[[NodeRunConfig, int], float],
    seconds: Callable[[NodeRunConfig], float] = lambda config: 0.0, epochs: int = 3,
) -> list[tuple[NodeRunConfig, int, int]]:  # fmt: skip
    """Trainings of that many epochs with given scores and seconds an epoch -> what was trained."""
    heard: list[tuple[NodeRunConfig, int, int]] = []

    def run(
        task: Any, config: NodeRunConfig, *, seed: int, progress: Any = False, **_: Any
    ) -> RunResult:
        val = scores(config, seed)
        rows = [{"epoch": e + 1, "val": val, "seconds": seconds(config)} for e in range(epochs)]
        heard.append((config, seed, 0))
        for row in rows if progress else ():
            heard[-1] = (config, seed, int(row["epoch"]))
            progress(row)
        fit = FitResult(None, val, 1, epochs, seconds(config), 0.0, rows)
        return RunResult(fit, None, None, 7)

    monkeypatch.setattr(NodeBenchTask, "run", run)
    return heard


@small
def test_finalists_are_judged_by_the_mean_over_splits(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = {8: (0.9, 0.1, 0.1), 4: (0.8, 0.7, 0.6)}
    scripted(monkeypatch, lambda config, seed: scores[config.network.hidden][seed])
    found = search("karate", ("mlp",), 8)
    assert {one.config.network.hidden for one in found} == {4, 8}
    finalists = [one for one in found if one.seeds == 3]
    assert len(finalists) == 3 and finalists[0].config.network.hidden == 8
    assert best(found)["mlp"].seeds == 3


@small
def test_a_diverged_candidate_is_the_worst(monkeypatch: pytest.MonkeyPatch, log: Path) -> None:
    def score(config: NodeRunConfig, seed: int) -> float:
        if config.optimizer.lr == 0.1:
            raise FloatingPointError("epoch 1: train_loss nan")
        return 0.5

    scripted(monkeypatch, score)
    found = search("karate", ("mlp",), 6, log=log)
    lost = [one for one in found if one.config.optimizer.lr == 0.1]
    assert lost and all(one.val == 0 and not one.parameters for one in lost)
    assert best(found)["mlp"].config.optimizer.lr == 0.01
    assert read_log(log) == found


@small
def test_poor_candidates_are_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    heard = scripted(monkeypatch, lambda config, _: 0.9 if config.network.hidden == 4 else 0.1)
    found = search("karate", ("gt",), 12)
    stopped = [one for one in found if one.stopped]
    assert stopped and {one.stopped for one in stopped} == {module.POOR}
    assert all(one.config.network.hidden == 8 and one.val == 0.1 for one in stopped)
    configs = {repr(one.config) for one in stopped}
    assert {last for config, _, last in heard if repr(config) in configs} == {1}
    assert best(found)["gt"].config.network.hidden == 4


@small
def test_slow_candidates_are_stopped_unless_they_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = {8: 0.101, 4: 0.01}
    heard = scripted(monkeypatch, lambda *_: 0.5, lambda config: seconds[config.network.hidden])
    found = search("karate", ("mlp",), 8)
    wide = [one for one in found if one.config.network.hidden == 8]
    assert wide and {one.stopped for one in wide} == {module.SLOW}
    assert not any(one.stopped for one in found if one not in wide)
    assert {last for config, _, last in heard if config.network.hidden == 8} == {3}
    times = cycle([24.0, 24.0, 6.0, 0.0])  # three epochs, which may take 20 s each, and their mean
    scripted(monkeypatch, lambda *_: 0.5, lambda _: next(times))
    assert search("karate", ("mlp",), "60s")[0].stopped == ""


def test_a_length_of_time_is_shared(monkeypatch: pytest.MonkeyPatch, small_space: None) -> None:
    def seconds(config: NodeRunConfig) -> float:
        return 1.3 if config.network.hidden == 8 else 1.2

    clock = [0.0]
    heard = scripted(monkeypatch, lambda *_: 0.5, seconds)
    run = NodeBenchTask.run

    def timed(task: Any, config: NodeRunConfig, **how: Any) -> RunResult:
        try:
            return run(task, config, **how)
        finally:
            clock[0] += heard[-1][2] * seconds(config) if heard[-1][2] else 3 * seconds(config)

    monkeypatch.setattr(NodeBenchTask, "run", timed)
    monkeypatch.setattr(module.time, "perf_counter", lambda: clock[0])
    told: list[Any] = []
    found = search("karate", MODELS, "120s", progress=lambda *args: told.append(args))
    assert {total for *_, total in told} == {None}
    for model in MODELS:
        own = [one for one in found if one.config.model == model]
        assert 60 - 4 * 3.9 < sum(one.seconds for one in own) <= 60
        assert sum(one.seeds == 3 for one in own) == 3
    spent = clock[0]
    assert search("karate", ("mlp",), "15s")[0].stopped == "" and clock[0] - spent <= 15
    short = search("karate", ("mlp",), "14.5s")
    assert {one.stopped for one in short if one.config.network.hidden == 8} <= {module.SLOW}
    assert {one.stopped for one in search("karate", ("mlp",), "3s")} == {module.SLOW}
    assert best(search("karate", ("mlp",), "3s")) == {}


def test_small_graphs_get_small_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    scripted(monkeypatch, lambda *_: 0.5)
    tasks = [NodeBenchTask("karate"), NodeBenchTask("digits")]
    sizes = []
    for task in tasks:
        found = search(task, ("gt", "gcn"), 12)
        assert len({repr(one.config) for one in found}) == 24
        data = task.data(0, **found[0].config.inputs)
        size = {"num_features": data.x.size(1), "num_classes": int(data.num_classes)}
        with torch.random.fork_rng():
            models = [zoo.build(one.config.model, one.config.network, **size) for one in found]
        sizes.append(max(sum(p.numel() for p in model.parameters()) for model in models))
    assert 10_000 < sizes[0] < 60_000 < sizes[1]


def test_no_more_candidates_than_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    scripted(monkeypatch, lambda *_: 0.5)
    two = {"hidden": {16: {"hidden": 16}, 64: {"hidden": 64}}}
    monkeypatch.setattr(NodeBenchTask, "axes", lambda self, config: two)
    assert [one.config.network.hidden for one in search("karate", ("mlp",), 9)] == [64, 16]


@small
def test_test_labels_choose_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def choice(shuffled: bool) -> tuple[NodeRunConfig, list[SearchResult]]:
        data = graphs.load("karate")
        if shuffled:
            data.y[data.test_mask] = data.y[data.test_mask].flip(0).roll(1)
        found = search(OwnNodes(data), ("gcn",), 5)
        return best(found)["gcn"].config, [replace(o, dataset="", seconds=0.0) for o in found]

    assert choice(False) == choice(True)


def test_the_best_is_the_earlier_one_on_a_tie_and_of_those_judged_most_often() -> None:
    low, first, second = (judged("gt", v, hidden=h) for v, h in ((0.5, 8), (0.7, 16), (0.7, 32)))
    other, twice = judged("mlp", 0.1), judged("gt", 0.6, seeds=3)
    assert best([low, first, second, other]) == {"gt": first, "mlp": other}
    assert best([second, first, low])["gt"] == second
    assert best([low, twice, first])["gt"] == twice
    assert best([replace(first, stopped=module.SLOW), low])["gt"] == low
    assert best([]) == best([replace(first, stopped=module.POOR)]) == {}
    line = json.loads(json.dumps(first.as_dict()))
    assert module.config_from(line["trial"]) == first.config and line["val"] == 0.7


@pytest.mark.parametrize(
    "config",
    [NodeRunConfig.of("gt", lr=0.1), GraphRunConfig("gt"), TreesRunConfig(), OwnRunConfig("me")],
)
def test_every_kind_of_configuration_is_read(config: Any) -> None:
    assert module.config_from(json.loads(json.dumps(config.as_dict()))) == config


def test_budgets_are_numbers_or_lengths_of_time() -> None:
    assert Budget.of(4).candidates == Budget.of("4").candidates == 4
    seconds = [Budget.of(text).seconds for text in ("90s", "30m", "1.5h")]
    assert seconds == [90, 1800, 5400] and Budget.of("30m").candidates is None
    assert [str(Budget.of(text)) for text in ("16", "30m")] == ["16", "a search of 30m"]
    for wrong in ("0", "-1", "0s", "x", "", "3d", "1.5", "2 h", "h"):
        with pytest.raises(ValueError, match=f"budget: got {wrong}, expected 1 or more candidates"):
            Budget.of(wrong)
    with pytest.raises(
        ValueError, match=r"2 or more candidates \(the first are the defaults\), or"
    ):
        Budget.of(1, least=2)
    with pytest.raises(TypeError, match=r"budget: got 1\.5, expected a whole number"):
        Budget.of(1.5)
