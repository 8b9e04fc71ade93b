import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from graphtheory.bench import record as module
from graphtheory.bench.node_benchmark import Benchmark, Run
from graphtheory.bench.record import Record, RecordedBenchmark

SETTINGS = {"dataset": "karate", "epochs": 3}
RUN = Run("gt", 0, 0.5, 0.25, 10, 0.1, 1.0, 1, [{"epoch": 1, "val": 0.25}], {"bias": [[1.0]]})


@pytest.fixture
def record(tmp_path: Path) -> Record:
    return Record(tmp_path / "new/runs.jsonl")


@pytest.fixture
def benchmark(record: Record, monkeypatch: pytest.MonkeyPatch) -> RecordedBenchmark:
    """Two models on two seeds whose training is replaced by counting."""

    def trained(self: Benchmark, model: str, seed: int) -> Run:
        return replace(RUN, model=model, seed=seed)

    monkeypatch.setattr(Benchmark, "_one", trained)
    return RecordedBenchmark("karate", ("gt", "mlp"), 2, epochs=3, record=record)


def test_a_run_comes_back_as_it_was(record: Record) -> None:
    record.add(SETTINGS, RUN)
    for again in (record, Record(record.path)):
        assert again.find(SETTINGS, "gt", 0) == RUN
        assert again.find(SETTINGS, "gt", 1) is None
        assert again.find(SETTINGS, "mlp", 0) is None


def test_other_settings_are_refused(record: Record) -> None:
    record.add(SETTINGS, RUN)
    with pytest.raises(ValueError, match="epochs 3 there, 4 here"):
        record.find(SETTINGS | {"epochs": 4}, "gt", 0)


@pytest.mark.parametrize("lost", [1, 20, 1000])
def test_a_line_without_its_end_is_dropped(record: Record, lost: int) -> None:
    record.add(SETTINGS, RUN)
    record.add(SETTINGS, replace(RUN, seed=1))
    whole = record.path.read_bytes()
    half = len(whole) // 2
    record.path.write_bytes(whole[: max(half, len(whole) - lost)])
    again = Record(record.path)
    assert again.find(SETTINGS, "gt", 0) == RUN
    assert again.find(SETTINGS, "gt", 1) is None
    again.add(SETTINGS, replace(RUN, seed=1))
    assert record.path.read_bytes() == whole


@pytest.mark.parametrize("content", ["[1]\n", "no JSON\n", '{"run": {}}\n', "1\n"])
def test_another_file_is_refused_by_name(tmp_path: Path, content: str) -> None:
    path = tmp_path / "runs.jsonl"
    path.write_text(content)
    with pytest.raises(
        ValueError, match=r"line 1 of .*runs\.jsonl is no JSON object of run, settings"
    ):
        Record(path)


def test_each_run_is_on_the_disk_before_the_next(benchmark: RecordedBenchmark) -> None:
    seen: list[int] = []

    def count(run: Run) -> None:
        seen.append(len(benchmark.record.path.read_text().splitlines()))

    rows = replace(benchmark, finished=count).run()
    assert seen == [1, 2, 3, 4]
    assert [json.loads(n)["run"] for n in benchmark.record.path.read_text().splitlines()] == [
        asdict(row) for row in rows
    ]


def test_what_is_known_is_not_run_again(benchmark: RecordedBenchmark) -> None:
    first = benchmark.run()
    told: list[Run] = []
    assert benchmark.check() == 4
    more = replace(benchmark, seeds=3, finished=told.append)
    assert [(r.model, r.seed) for r in more.run()][:4] == [(r.model, r.seed) for r in first]
    assert [(r.model, r.seed) for r in told] == [("gt", 2), ("mlp", 2)]
    with pytest.raises(ValueError, match="other settings"):
        replace(benchmark, epochs=4).check()


def test_settings_are_plain_values(benchmark: RecordedBenchmark) -> None:
    settings = benchmark.settings("gt")
    assert json.loads(json.dumps(settings)) == settings
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
