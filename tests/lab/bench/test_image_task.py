from pathlib import Path

import pytest

from graphtheory.lab.bench.benchmark import Benchmark, FinishedRuns
from graphtheory.lab.bench.image_task import ImageBenchTask
from graphtheory.lab.bench.rows import Environment
from graphtheory.lab.report.benchmark import ImageReport

pytest.importorskip("kornia")


def make(folder: Path, epochs: int = 1) -> Benchmark:
    record = FinishedRuns(folder / "runs.jsonl")
    task = ImageBenchTask("digits")
    return Benchmark(task, ("cnn", "vit"), 1, epochs=epochs, record=record)


def test_finished_runs_are_taken_and_others_added(tmp_path: Path) -> None:
    first = make(tmp_path)
    runs = first.run()
    assert [(run.model, run.seed) for run in runs] == [("cnn", 0), ("vit", 0)]
    assert all(0 < run.extra["gmacs"] < 1 for run in runs)
    assert (tmp_path / "vit-0/last.ckpt").exists()
    again = make(tmp_path)
    assert again.count_known() == 2 and again.run() == runs
    with pytest.raises(ValueError, match="holds model cnn, seed 0 under other settings: recipe"):
        make(tmp_path, epochs=2).count_known()
    here = Environment("none", {}, "")
    report = ImageReport(again, runs, "standard", "accuracy", "the command", here)
    table = report.tables()[0]
    assert table.title == "digits (embedded)" and len(table.rows) == 2
    assert "1 epoch" in table.note and "1 seed," in table.note
    assert {row.name for row in report.rows()} >= {"multiply-accumulates of an image"}
    html = report.page().html()
    assert "the command" in html and html.count("<img") == 4
