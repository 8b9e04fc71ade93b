"""Figures 3.8 and 3.9 and the tables of appendix B from the command line to their files."""

import csv
import json
from pathlib import Path

import pytest

from graphtheory.lab.cli import main


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
    ("words", "numbers"),
    [
        ("table-b-1", ("82.05", "88.02", "90.78")),  # printed, printed, found
        ("table-b-5 --quick", ("95.68", "86.41", "95.49")),
        ("table-b-6", ("26659", "found")),
        ("table-b-8 --dataset Actor", ("1520.00", "667.00", "found")),
        ("fig-b-5 --quick", ("decreasing", "falls in 2 of 2 steps")),
    ],
)
def test_a_table_prints_what_is_found_beside_what_is_printed(
    words: str,
    numbers: tuple[str, ...],
    data_root: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = ["reproduce", *words.split(), "--root", str(data_root), "--out", str(tmp_path)]
    assert main(given) == 0
    printed = capsys.readouterr().out
    assert all(number in printed for number in numbers)
    assert list(tmp_path.glob("*.csv"))
