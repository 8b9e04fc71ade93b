"""PyG's own test files, those of the layers that `accelerate` swaps or all others, with ours in place.

    git clone --depth 1 --branch 2.8.0.post1 https://github.com/pyg-team/pytorch_geometric
    python benchmarks/pyg_tests.py --tests pytorch_geometric/test
    python benchmarks/pyg_tests.py --tests pytorch_geometric/test --others

Each file runs twice, with PyG's layers as they are and swapped when they are made (`_pyg_swap.py`),
with everything that PyG tests where FULL_TEST is set, TorchScript too; that of other files is
left out. Skipped tests do not count.
"""  # noqa: E501

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any
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

# where other files use layers: all of these, and what lies below
OTHERS = ("nn/*.py", "nn/conv/*.py", "nn/models", "explain", "utils", "profile", "contrib")


def other_files(tests: Path) -> list[Path]:
    """Files that use layers, but those of the swapped ones."""
    own = {f"test_{name}.py" for name in FILES}
    found = (path for pattern in OTHERS for path in sorted(tests.glob(pattern)))
    files = (
        f for path in found for f in ([path] if path.is_file() else sorted(path.rglob("*.py")))
    )
    return [f for f in files if f.name.startswith("test_") and f.name not in own]


def outcomes(
    files: list[Path], *, swapped: bool, full: bool = True
) -> dict[tuple[str, str], str | None]:
    """By file and test, why it failed, or None; without those that were skipped."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [
            sys.executable, "-m", "pytest", *map(str, files), "-q", "-p", "no:cacheprovider",
            f"--junitxml={report}", f"--rootdir={files[0].parent}", "-c", os.devnull,
            "-p", "_pyg_swap", "--import-mode=importlib",
        ]  # fmt: skip
        path = os.pathsep.join([str(HERE), str(HERE.parent)])
        env = os.environ | {"PYTHONPATH": path} | ({"FULL_TEST": "1"} if full else {})
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
    return rows + failures(theirs, ours)


def failures(theirs: dict[Any, Any], ours: dict[Any, Any]) -> list[Row]:
    """A row for each test that fails with our layers alone."""
    return [
        Row.of(f"{name}.py: {test}", 0, "passed", reason=why)
        for (name, test), why in ours.items()
        if why is not None and theirs.get((name, test)) is None
    ]


def rows_of_others(files: list[Path]) -> list[Row]:
    """How many tests of all files together pass with ours, and each that fails with them alone."""
    theirs, ours = (outcomes(files, swapped=swapped, full=False) for swapped in (False, True))
    passed, of = (sum(why is None for why in found.values()) for found in (ours, theirs))
    row = Row.of("other files", passed, "passed", tests=len(theirs), with_layers_of_pyg=of)
    return [row, *failures(theirs, ours)]


def main(
    tests: Path, only: tuple[str, ...] = FILES, others: bool = False, out: Path | None = OUT
) -> None:
    """Run PyG's tests of swapped layers with theirs and with ours.

    Args:
        tests: The folder `test` of a clone of PyG, of about the installed version.
        only: Files to run, without "test_" and ".py".
        others: Run the other files that use layers in their place.
        out: CSV file to put the rows in, after the conformance tests; None writes nothing.
    """
    if others:
        rows = rows_of_others(other_files(tests))
    else:
        rows = rows_of([tests / "nn" / "conv" / f"test_{name}.py" for name in only])
    show(rows)
    if out is not None:
        save(rows, out)


if __name__ == "__main__":
    tyro.cli(main)
