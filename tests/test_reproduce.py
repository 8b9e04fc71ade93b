"""`graphtheory reproduce`: every study from the command line to its files."""

import csv
import json
from pathlib import Path

import pytest

from graphtheory.cli import main


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


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["fig-3-88"], "did you mean 'fig-3-8'"),
        (["encoding", "--dataset", "karate"], "expected Cora, minesweeper"),
        (["fig-3-8", "--dataset", "nowhere"], "nowhere"),
        (["fig-3-8", "--seeds", "0"], "expected 1 or more"),
    ],
)
def test_what_cannot_be_run_is_refused_in_one_line(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["reproduce", *words, "--out", str(tmp_path)]) == 2
    error = capsys.readouterr().err.strip()
    assert message in error and "\n" not in error
