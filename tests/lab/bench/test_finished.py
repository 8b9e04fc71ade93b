import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from graphtheory.lab.bench import benchmark as module
from graphtheory.lab.bench.benchmark import Benchmark, FinishedRuns, Run, named_task
from graphtheory.lab.bench.finished import Finished

SETTINGS = {"dataset": "karate", "epochs": 3, "model": "gt", "seed": 0}
RUN = Run("gt", 0, 0.5, 0.25, 10, 0.1, 1.0, 1, [{"epoch": 1, "val": 0.25}], {"bias": [[1.0]]})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "new/runs.jsonl"


@pytest.fixture
def record(path: Path) -> FinishedRuns:
    return FinishedRuns(path)


@pytest.fixture
def benchmark(record: FinishedRuns, monkeypatch: pytest.MonkeyPatch) -> Benchmark:
    """Two models on two seeds whose training is replaced by counting."""

    def trained(self: Benchmark, model: str, seed: int) -> Run:
        return replace(RUN, model=model, seed=seed)

    monkeypatch.setattr(Benchmark, "_trained", trained)
    return Benchmark(named_task("karate"), ("gt", "mlp"), 2, epochs=3, record=record)


def test_a_run_comes_back_under_its_own_settings(record: FinishedRuns, path: Path) -> None:
    record.add(SETTINGS, RUN)
    for again in (record, FinishedRuns(path)):
        assert again.find(SETTINGS) == RUN and list(again) == [RUN] and len(again) == 1
        assert again.find(SETTINGS | {"seed": 1}) is None
        assert again.find(SETTINGS | {"model": "mlp"}) is None
    with pytest.raises(ValueError, match="gt, seed 0 under other settings: epochs 3 there, 4 here"):
        record.find(SETTINGS | {"epochs": 4})


def test_without_names_all_settings_name_a_run_and_a_digest_guards_it(tmp_path: Path) -> None:
    finished: Finished[Any] = Finished(tmp_path / "rows.jsonl")
    finished.add({"width": 4, "shape": (1, 2)}, [{"pair": (1, 2), 1: "one"}])
    for again in (finished, Finished(finished.path)):  # the same before and after a resume
        assert again.find({"shape": [1, 2], "width": 4}) == [{"pair": [1, 2], "1": "one"}]
        assert again.find({"shape": (1, 2), "width": 8}) is None
    path = tmp_path / "changed.jsonl"
    Finished(path).add({"width": 4}, [{"error": 0.25}])  # a changed digit is seen
    text = path.read_text()
    path.write_text(text.replace("0.25", "0.35"))
    with pytest.raises(ValueError, match=r"line 1 of .* does not match its own digest"):
        Finished(path)
    path.write_text('{"settings": {"width": 4}, "rows": [{"error": 0.5}]}\n')  # of older versions
    assert Finished(path).find({"width": 4}) == [{"error": 0.5}]


@pytest.mark.parametrize("lost", [1, 20, 1000])
def test_a_line_without_its_end_is_dropped(record: FinishedRuns, path: Path, lost: int) -> None:
    record.add(SETTINGS, RUN)
    record.add(SETTINGS | {"seed": 1}, replace(RUN, seed=1))
    whole = path.read_bytes()
    half = len(whole) // 2
    path.write_bytes(whole[: max(half, len(whole) - lost)])
    again = FinishedRuns(path)
    assert again.find(SETTINGS) == RUN
    assert again.find(SETTINGS | {"seed": 1}) is None
    again.add(SETTINGS | {"seed": 1}, replace(RUN, seed=1))
    assert path.read_bytes() == whole


def test_each_run_is_on_the_disk_before_the_next(benchmark: Benchmark, path: Path) -> None:
    seen: list[int] = []

    def count(run: Run) -> None:
        seen.append(len(path.read_text().splitlines()))

    rows = benchmark.run(finished=count)
    assert seen == [1, 2, 3, 4]
    assert [json.loads(n)["run"] for n in path.read_text().splitlines()] == [
        asdict(row) for row in rows
    ]


def test_what_is_known_is_not_run_again(benchmark: Benchmark) -> None:
    first = benchmark.run()
    told: list[Run] = []
    assert benchmark.count_known() == 4
    more = replace(benchmark, seeds=3).run(finished=told.append)
    assert [(r.model, r.seed) for r in more][:4] == [(r.model, r.seed) for r in first]
    assert [(r.model, r.seed) for r in told] == [("gt", 2), ("mlp", 2)]
    with pytest.raises(ValueError, match="other settings"):
        replace(benchmark, epochs=4).count_known()
    settings = benchmark.settings("gt")  # plain values
    assert json.dumps(settings)
    assert (settings["dataset"], settings["epochs"], settings["model"]) == ("karate", 3, "gt")


def test_memory_goes_back_where_the_system_takes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    class Library:
        def malloc_trim(self, kept: int) -> None:
            asked.append(kept)

    monkeypatch.setattr(module.ctypes, "CDLL", lambda name: Library())
    module._give_memory_back()
    monkeypatch.setattr(module.ctypes, "CDLL", lambda name: object())  # musl, macOS
    module._give_memory_back()
    assert asked == [0]
