"""PyG's own test files of the layers that `accelerate` swaps, with ours in place.

    git clone --depth 1 --branch 2.8.0.post1 https://github.com/pyg-team/pytorch_geometric
    python benchmarks/pyg_tests.py --tests pytorch_geometric/test

Each file runs twice, with PyG's layers as they are and swapped when they are made (`_pyg_swap.py`),
with everything that PyG tests where FULL_TEST is set, TorchScript too. Skipped tests do not count.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree

import tyro
from _rows import save, show

from graphtheory.lab.bench.rows import Row

HERE = Path(__file__).parent
OUT = HERE / "results" / "pyg-tests.csv"
FILES = (
    "appnp", "cheb_conv", "gat_conv", "gatv2_conv", "gcn_conv", "gin_conv", "gps_conv",
    "graph_conv", "han_conv", "hgt_conv", "pna_conv", "rgcn_conv", "sage_conv", "sg_conv",
    "transformer_conv",
)  # fmt: skip


def outcomes(files: list[Path], *, swapped: bool) -> dict[tuple[str, str], str | None]:
    """By file and test, why it failed, or None; without those that were skipped."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [
            sys.executable, "-m", "pytest", *map(str, files), "-q", "-p", "no:cacheprovider",
            f"--junitxml={report}", f"--rootdir={files[0].parent}", "-c", os.devnull,
            "-p", "_pyg_swap",
        ]  # fmt: skip
        path = os.pathsep.join([str(HERE), str(HERE.parent)])
        env = os.environ | {"FULL_TEST": "1", "PYTHONPATH": path}
        env |= {"PYG_SWAP": "1"} if swapped else {}
        subprocess.run(command, env=env, check=False, capture_output=True)
        cases = list(ElementTree.parse(report).iter("testcase"))
    return {
        (case.get("classname", "").rpartition(".")[2], case.get("name", "")): _failure(case)
        for case in cases
        if case.find("skipped") is None
    }


def _failure(case: ElementTree.Element) -> str | None:
    for kind in ("failure", "error"):
        found = case.find(kind)
        if found is not None:
            why = (found.get("message") or kind).splitlines()[0]
            lines = [
                line[1:].strip() for line in (found.text or "").splitlines() if line[:1] == ">"
            ]
            return f"{lines[-1]}: {why}"[:200] if lines else why[:200]
    return None


def rows_of(files: list[Path]) -> list[Row]:
    """How many tests of each file pass with ours, and each that fails with them alone."""
    theirs, ours = (outcomes(files, swapped=swapped) for swapped in (False, True))
    rows = []
    for file in files:
        passed, of = (
            sum(name == file.stem and why is None for (name, _), why in found.items())
            for found in (ours, theirs)
        )
        tests = sum(name == file.stem for name, _ in theirs)
        rows.append(Row.of(file.name, passed, "passed", tests=tests, with_layers_of_pyg=of))
    for (name, test), why in ours.items():
        if why is not None and theirs.get((name, test)) is None:
            rows.append(Row.of(f"{name}.py: {test}", 0, "passed", reason=why))
    return rows


def main(tests: Path, only: tuple[str, ...] = FILES, out: Path | None = OUT) -> None:
    """Run PyG's tests of swapped layers with theirs and with ours.

    Args:
        tests: The folder `test` of a clone of PyG, of about the installed version.
        only: Files to run, without "test_" and ".py".
        out: CSV file to put the rows in, after the conformance tests; None writes nothing.
    """
    rows = rows_of([tests / "nn" / "conv" / f"test_{name}.py" for name in only])
    show(rows)
    if out is not None:
        save(rows, out)


if __name__ == "__main__":
    tyro.cli(main)
