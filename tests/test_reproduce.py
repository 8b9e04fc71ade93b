"""`graphtheory reproduce`: every study from the command line to its files."""

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from graphtheory.cli import main
from graphtheory.experiments import label_study, topology_study


@pytest.mark.parametrize(
    ("figure", "columns"),
    [("fig-3-8", ("distance-z model", "W_Q frozen")), ("fig-3-9", ("labels", "gt - gcn"))],
)
def test_a_study_prints_its_rows_and_draws(
    figure: str, columns: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["reproduce", figure, "--dataset", "karate", "--quick", "--out", str(tmp_path)]
    assert main(words) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert all(column in printed for column in columns)
    found = json.loads((tmp_path / f"{figure}-karate.json").read_text())
    assert found["verdict"] in printed
    with (tmp_path / f"{figure}-karate.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert rows and all("dataset=karate" in row["parameters"] for row in rows)
    assert (tmp_path / f"{figure}-karate.png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.parametrize("figure", ["fig-5-2", "fig-5-3"])
def test_a_synthetic_study_prints_its_rows_and_draws(
    figure: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    study = topology_study.STUDIES[figure]
    small = replace(study, tasks=study.tasks[::2], widths=(8, 12)[: len(study.widths)], passes=0.1)
    monkeypatch.setitem(topology_study.STUDIES, figure, small)
    assert main(["reproduce", figure, "--quick", "--seed", "3", "--out", str(tmp_path)]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    found = json.loads((tmp_path / f"{figure}.json").read_text())
    assert found["verdict"] in printed and found["rows"][0]["seed"] == 3
    assert (tmp_path / f"{figure}.png").read_bytes()[:4] == b"\x89PNG"
    assert (tmp_path / f"{figure}.csv").exists()


def test_an_interrupted_study_goes_on_and_a_new_one_sets_its_runs_aside(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["reproduce", "fig-3-9", "--dataset", "karate", "--quick", "--out", str(tmp_path)]
    kept = tmp_path / "fig-3-9-karate.jsonl"
    train = label_study.run_trial

    def until_the_third(*args: Any, **options: Any) -> Any:
        if kept.exists() and len(kept.read_text().splitlines()) == 2:
            raise KeyboardInterrupt
        return train(*args, **options)

    monkeypatch.setattr(label_study, "run_trial", until_the_third)
    assert main(words) == 130
    assert "Finished runs are in" in capsys.readouterr().out
    monkeypatch.undo()
    assert main([*words, "--resume"]) == 0
    assert "run 3/" in (told := capsys.readouterr().err) and "run 2/" not in told
    assert len(kept.read_text().splitlines()) == 12
    monkeypatch.setattr(label_study, "run_trial", until_the_third)
    assert main(words) == 130
    assert "Earlier runs are now in" in capsys.readouterr().out
    assert len((tmp_path / "fig-3-9-karate.1.jsonl").read_text().splitlines()) == 12


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["fig-3-88"], "did you mean 'fig-3-8'"),
        (["encoding", "--dataset", "karate"], "expected Cora, minesweeper"),
        (["fig-3-8", "--dataset", "nowhere"], "nowhere"),
        (["fig-3-8", "--seeds", "0"], "expected 1 or more"),
        (["fig-3-8", "--seed", "1"], "takes splits from 0 on"),
        (["fig-5-1", "--dataset", "Cora"], "fig-5-1 draws its graphs"),
    ],
)
def test_what_cannot_be_run_is_refused_in_one_line(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["reproduce", *words, "--out", str(tmp_path)]) == 2
    error = capsys.readouterr().err.strip()
    assert message in error and "\n" not in error
