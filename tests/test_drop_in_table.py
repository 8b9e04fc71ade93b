"""The counts of docs/drop_in.md are those of the committed rows."""

import csv
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
LINE = re.compile(r"^\| `(test_\w+\.py)` \| (\d+) \| (\d+) \| (\d+)", re.MULTILINE)


def test_counts_of_pygs_tests() -> None:
    page = (ROOT / "docs" / "drop_in.md").read_text(encoding="utf-8")
    said = {name: tuple(map(int, counts)) for name, *counts in LINE.findall(page)}
    with (ROOT / "benchmarks" / "results" / "pyg-tests.csv").open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if ": " not in row["name"]]
    found = {}
    for row in rows:
        about = dict(part.split("=") for part in row["parameters"].split("; "))
        counts = about["tests"], about["with_layers_of_pyg"], float(row["value"])
        found[row["name"]] = tuple(map(int, counts))
    assert len(found) == 15
    assert said == found
