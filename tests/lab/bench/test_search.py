import json
from collections.abc import Callable
from dataclasses import replace
from itertools import chain
from pathlib import Path
from statistics import mean
from typing import Any

import pytest

from graphtheory.lab.bench import node_task
from graphtheory.lab.bench.config import RunResult
from graphtheory.lab.bench.node_config import NodeRunConfig, load, train_nodes
from graphtheory.lab.bench.search import Search, SearchLog, SearchResult, best
from graphtheory.lab.bench.task import Space
from tests.lab.bench.conftest import Listen

pytestmark = pytest.mark.usefixtures("small_space")
MODELS = ("gt", "mlp")
RESULTS = Path(__file__).parents[3] / "benchmarks/results"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "made when needed" / "search.jsonl"


@pytest.fixture
def runs(listen: Listen) -> list[tuple[NodeRunConfig, int]]:
    """Every training that a search asks for."""
    return listen()


def judged(model: str, val: float, **options: Any) -> SearchResult:
    return SearchResult("karate", NodeRunConfig.of(model, **options), val, 10, 1.0, 1, 60, 20)


def test_every_candidate_is_judged_by_its_mean_validation_score(small_space: Space) -> None:
    told: list[tuple[str, int, int]] = []
    found = Search("Karate", MODELS, budget=2).run(lambda *args: told.append(args))
    assert told == [("gt", 0, 4), ("gt", 1, 4), ("mlp", 2, 4), ("mlp", 3, 4)]
    candidates = (small_space.candidates(model, 2) for model in MODELS)
    assert [j.config for j in found] == list(chain.from_iterable(candidates))
    splits = [load("karate", None, None, seed) for seed in range(2)]
    for j in found:
        outcomes = [train_nodes(j.config, split, seed=seed, epochs=3, patience=3)
                    for seed, split in enumerate(splits)]  # fmt: skip
        assert j.val == mean(o.fit.val for o in outcomes)
        assert j.parameters == outcomes[0].parameters
        assert j.seconds > 0


def test_nothing_runs_twice(log: Path, runs: list[tuple[NodeRunConfig, int]]) -> None:
    first = Search("karate", MODELS, budget=2, log=log).run()
    assert len(runs) == 2 * 2 * 2  # models, candidates, splits
    more = Search("karate", MODELS, budget=4, log=log).run()
    assert len(runs) == len(set(runs)) == 2 * 4 * 2
    assert [more[0], more[1], more[4], more[5]] == first
    assert Search("Karate", MODELS, budget=4, log=log).run() == more
    assert len(runs) == 2 * 4 * 2
    assert sorted(map(str, list(SearchLog(log)))) == sorted(map(str, more))


def test_a_stopped_search_goes_on(log: Path, runs: list[tuple[NodeRunConfig, int]]) -> None:
    def stop_in_the_third(model: str, done: int, total: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    task = Search("karate", MODELS, budget=2, log=log)
    with pytest.raises(KeyboardInterrupt):
        task.run(stop_in_the_third)
    log.write_text(log.read_text() + '{"dataset": "kar')  # cut short, and tried again
    assert len(list(SearchLog(log))) == 2
    resumed = task.run()
    assert len(runs) == 8 and len(list(SearchLog(log))) == 4
    fresh = Search("karate", MODELS, budget=2).run()
    clocks = [[replace(j, seconds=0.0) for j in of] for of in (resumed, fresh)]
    assert clocks[0] == clocks[1]


def test_lines_of_another_data_set_split_or_length_do_not_count(
    log: Path, runs: list[tuple[NodeRunConfig, int]], small_space: Space,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(node_task.NodeBenchTask, "facts", node_task.NodeBenchTask("karate").facts)
    monkeypatch.setattr(node_task.NodeBenchTask, "scales_rows", False)
    task = Search("karate", ("mlp",), budget=1, log=log)
    task.run()
    (line,) = list(SearchLog(log))
    log.write_text(json.dumps(replace(line, dataset="cora").as_dict()) + "\n")
    task.run()
    assert len(runs) == 4
    log.write_text(json.dumps(replace(line, split="random-20").as_dict()) + "\n")
    task.run()
    assert len(runs) == 6
    other = node_task.NodeBenchTask("karate", "random-20")
    assert Search(other, ("mlp",), 1, log=log).run()[0].val == line.val
    assert len(runs) == 6
    longer = replace(small_space, epochs=4)
    monkeypatch.setattr(node_task, "node_space", lambda *_: longer)
    assert task.run()[0].epochs == 4 != line.epochs
    assert len(list(SearchLog(log))) == 3 and len(runs) == 8


DAMAGES: dict[str, Callable[[str], str]] = {
    "cut": lambda line: line[: len(line) // 2], "empty": lambda line: "",
    "null": lambda line: "null", "list": lambda line: "[1, 2]", "object": lambda line: "{}",
    "lr": lambda line: line.replace('"lr"', '"step"'),
    "val": lambda line: line.replace('"val"', '"score"'),
    "hidden": lambda line: line.replace('"hidden"', '"width"'),
    "no trial": lambda line: line.replace('"trial": {', '"trial": 3, "was": {'),
    "binary": lambda line: "\x00\xff",
}  # fmt: skip


def test_a_broken_line_is_named(log: Path) -> None:
    Search("karate", ("mlp",), budget=2, log=log).run()
    first, second = log.read_text().splitlines()
    for damage, of in DAMAGES.items():
        log.write_text(f"{first}\n{of(second)}\n", encoding="latin-1")
        with pytest.raises(ValueError, match=r"line 2 of .*search\.jsonl is no finished run"):
            pytest.fail(f"{damage} is read as {list(SearchLog(log))}")


def test_no_log_no_file_and_no_unknown_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Search("karate", ("mlp",), budget=1).run()
    assert list(tmp_path.iterdir()) == []
    assert list(SearchLog(None)) == list(SearchLog(tmp_path / "none")) == []
    with pytest.raises(ValueError, match="model: got 'sag', expected one of gt"):
        Search("karate", ("sag",), budget=1).run()


@pytest.mark.parametrize("file", sorted(RESULTS.glob("search-*.jsonl")), ids=lambda p: p.stem)
def test_committed_logs_are_read(file: Path) -> None:
    log = SearchLog(file)
    assert len(list(log)) == len(log) > 0
    errors = "molesol" in file.stem  # the others hold rates
    assert all(0 <= candidate.val <= (4 if errors else 1) for candidate in log)


def test_the_best_comes_first_on_a_tie_and_results_go_through_a_line_of_text() -> None:
    low, first, second = (judged("gt", v, hidden=h) for v, h in ((0.5, 8), (0.7, 16), (0.7, 32)))
    other = judged("mlp", 0.1)
    assert best([low, first, second, other]) == {"gt": first, "mlp": other}
    assert best([second, first, low])["gt"] == second
    assert best([]) == {}
    line = judged("gt", 0.1 + 0.2, lr=0.003, bias_lr=0.05, neighbors="2:60")
    for judged_on in (line, replace(line, split="public")):
        text = json.dumps(SearchLog().line({}, judged_on))
        assert SearchLog().read(json.loads(text))[1] == judged_on


def test_test_scores_neither_choose_nor_stand_in_the_log(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores = iter([(0.5, 0.9), (0.5, 0.9), (0.8, 0.123456), (0.8, 0.123456)])  # val, test

    trained = node_task.NodeBenchTask.run

    def scored(*args: Any, **options: Any) -> RunResult:
        outcome = trained(*args, **options)
        val, test = next(scores)
        return replace(outcome, fit=replace(outcome.fit, val=val, test=test))

    monkeypatch.setattr(node_task.NodeBenchTask, "run", scored)
    found = Search("karate", ("mlp",), budget=2, log=log).run()
    assert best(found)["mlp"] == found[1]
    assert "test" not in log.read_text() and "123456" not in log.read_text()
    known = {"dataset", "trial", "val", "parameters", "seconds", "split", "seeds", "epochs"}
    for line in log.read_text().splitlines():
        assert set(json.loads(line)) == known | {"patience", "sha256"}
