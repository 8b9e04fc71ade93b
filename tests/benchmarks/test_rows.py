"""Rows of the benchmarks: written after green tests only, each name once."""

from __future__ import annotations

import csv
import importlib.util
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from graphtheory.lab.bench.rows import FIELDS, Row
from tests.benchmarks.conftest import BENCHMARKS


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module that the benchmarks share; its tests pass unless a test here says otherwise."""
    spec = importlib.util.spec_from_file_location("_rows", BENCHMARKS / "_rows.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    asked = []
    result = SimpleNamespace(returncode=0)
    fake = SimpleNamespace(run=lambda command, **_: asked.append(command) or result)
    monkeypatch.setattr(module, "subprocess", fake)
    module.asked, module.result = asked, result
    return module


def test_rows_replace_those_of_equal_name_and_parameters(rows: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "results" / "cpu.csv"
    rows.save([Row.of("a", [1.0, 2.0, 4.0], "s", n=1), Row.of("b", 3.0, "s")], path)
    rows.save([Row.of("a", 5.0, "s", n=1), Row.of("b", 6.0, "s", n=2)], path)
    with path.open(newline="") as file:
        lines = list(csv.DictReader(file))
    found = [(line["name"], line["median"]) for line in lines]
    assert found == [("b", "3.0"), ("a", "5.0"), ("b", "6.0")]
    assert list(lines[0]) == list(FIELDS)
    assert all(line["versions"] and line["device"] for line in lines)
    assert len(rows.asked) == 1 and "tests/conformance" in rows.asked[0]


def test_nothing_is_written_when_the_tests_fail(rows: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "cpu.csv"
    path.write_text("as it was")
    rows.result.returncode = 1
    for _ in range(2):
        with pytest.raises(SystemExit, match=r"cpu\.csv not written: the conformance tests fail"):
            rows.save([Row.of("a", 2.0, "s")], path)
    assert path.read_text() == "as it was"


def test_works_take_turns(rows: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    works = {name: lambda name=name: order.append(name) for name in "ab"}
    monkeypatch.setattr(rows, "_SHORT", 0.0)
    times = rows.seconds(works, repeats=3, warmup=1)
    assert order == ["a", "b"] * 4
    assert {name: len(taken) for name, taken in times.items()} == {"a": 3, "b": 3}
    assert rows.ratios([4.0, 9.0], [2.0, 3.0]) == [2, 3]


def test_short_works_are_timed_in_a_row(rows: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(rows, "time", SimpleNamespace(perf_counter=lambda: clock[0]))
    first = [True]

    def short() -> None:  # 10 ms, but 30 ms after another work
        clock[0] += 0.03 if first[0] else 0.01
        first[0] = False

    def long() -> None:
        clock[0] += 1.0
        first[0] = True

    times = rows.seconds({"short": short, "long": long}, repeats=4, warmup=1)
    assert times["short"] == pytest.approx([0.01] * 4)
    assert times["long"] == pytest.approx([1.0] * 4)
