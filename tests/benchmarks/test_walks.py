"""How many of our Python functions and files a call of a layer passes, after the first."""

import csv
from pathlib import Path

from tests.benchmarks.conftest import run

# As counted with Python 3.11 and torch 2.13. Fewer are better; more need a reason.
MOST = {
    "SPDTransformerConv, known edges, forward": (67, 16),
    "SPDTransformerConv, known edges, backward": (61, 10),
    "SPDTransformerConv, new edges, forward": (119, 24),
    "two layers of GAT, accelerated, forward": (120, 18),
    "two layers of GAT, accelerated, backward": (88, 9),
}


def test_a_call_passes_no_more_functions_and_files(tmp_path: Path) -> None:
    out = tmp_path / "walks.csv"
    told = run("walks", "--no-commands", "--out", str(out))
    assert told.returncode == 0, told.stderr
    with out.open() as file:
        found = {(r["name"], r["parameters"]): float(r["value"]) for r in csv.DictReader(file)}
    for name, most in MOST.items():
        for what, limit in zip(("calls", "files"), most, strict=True):
            assert found[f"{what} of Python functions", f"walk={name}"] <= limit, (name, what)
