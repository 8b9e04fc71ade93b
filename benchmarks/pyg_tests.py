"""PyG's own test files, those of the layers that `accelerate` swaps or all others, with ours in place.

    git clone --depth 1 --branch 2.8.0.post1 https://github.com/pyg-team/pytorch_geometric
    python benchmarks/pyg_tests.py --tests pytorch_geometric/test
    python benchmarks/pyg_tests.py --tests pytorch_geometric/test --others

A row is a file of the former, and a folder of the latter; each test that fails with ours alone has
a row of its own. All run twice, with PyG's layers as they are and swapped when they are made
(`_pyg_swap.py`), the former with everything that PyG tests where FULL_TEST is set, TorchScript too.
Skipped tests do not count.
"""  # noqa: E501

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from functools import partial
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

# where other files use layers, with the folders below
OTHERS = (
    ".", "contrib", "explain", "llm", "loader", "nn", "profile", "transforms", "utils",
    "visualization",
)  # fmt: skip


def named_files(tests: Path, others: bool) -> dict[Path, str]:
    """Files, and what their row is called: one each of those of layers, one a folder of others."""
    own = [tests / "nn" / "conv" / f"test_{name}.py" for name in FILES]
    if not others:
        return {file: file.name for file in own}
    below = {file: file.parent.relative_to(tests) for file in sorted(tests.rglob("test_*.py"))}
    return {
        file: f"folder {folder}" for file, folder in below.items()
        if str(folder).split("/")[0] in OTHERS and file not in own
    }  # fmt: skip


def outcomes(
    tests: Path, files: Iterable[Path], *, swapped: bool, full: bool
) -> dict[tuple[Path, str], str | None]:
    """By file and test, why it failed, or None; without those that were skipped."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [
            sys.executable, "-m", "pytest", *map(str, files), "-q", "-p", "no:cacheprovider",
            f"--junitxml={report}", f"--rootdir={tests}", "-c", os.devnull,
            "-p", "_pyg_swap", "--import-mode=importlib", "--continue-on-collection-errors",
        ]  # fmt: skip
        path = os.pathsep.join([str(HERE), str(HERE.parent)])
        env = os.environ | {"PYTHONPATH": path} | ({"FULL_TEST": "1"} if full else {})
        env |= {"PYG_SWAP": "1"} if swapped else {}
        ran = subprocess.run(
            command, env=env, cwd=folder, check=False, capture_output=True, text=True
        )
        if ran.returncode not in (0, 1):  # some failed; else pytest itself ended, before all ran
            whose = "our" if swapped else "PyG's"
            said = "\n".join((ran.stdout + ran.stderr).splitlines()[-20:])
            sys.exit(f"pytest with {whose} layers ended with {ran.returncode}:\n{said}")
        cases = [c for c in ElementTree.parse(report).iter("testcase") if c.find("skipped") is None]
    return {(_file_of(case, tests), case.get("name", "")): _failure(case) for case in cases}


def _file_of(case: ElementTree.Element, tests: Path) -> Path:
    """The file of a test, or the one that could not be imported."""
    where = case.get("classname") or case.get("name", "")
    path = tests.joinpath(*where.split(".")).with_suffix(".py")
    return path if path.exists() else path.parent.with_suffix(".py")  # of a class


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


def rows_of(tests: Path, files: dict[Path, str], full: bool) -> list[Row]:
    """How many tests of each name pass with ours, and each that fails with them alone."""
    theirs, ours = (outcomes(tests, files, swapped=swapped, full=full) for swapped in (False, True))
    rows = []
    for name in dict.fromkeys(files[file] for file, _ in (*theirs, *ours)):
        passed, of = (
            sum(files[file] == name and why is None for (file, _), why in found.items())
            for found in (ours, theirs)
        )
        count = sum(files[file] == name for file, _ in theirs)
        rows.append(Row.of(name, passed, "passed", tests=count, with_layers_of_pyg=of))
    return rows + [
        Row.of(f"{file.relative_to(tests)}::{test}", 0, "passed", of=files[file], reason=why)
        for (file, test), why in ours.items()
        if why is not None and theirs.get((file, test)) is None
    ]


def main(
    tests: Path,
    only: tuple[str, ...] = (),
    others: bool = False,
    tested: bool = False,
    out: Path | None = OUT,
) -> None:
    """Run PyG's tests with their layers and with ours.

    Args:
        tests: The folder `test` of a clone of PyG, of about the installed version.
        only: Names of rows, such as "test_gat_conv.py", or "folder explain" with `others`.
        others: Run the other files that use layers in place of those of layers.
        tested: The conformance tests have passed on this machine, and are not run first.
        out: CSV file to put the rows in, after the conformance tests; None writes nothing.
    """
    tests = tests.resolve()
    files = {f: name for f, name in named_files(tests, others).items() if not only or name in only}
    rows = rows_of(tests, files, full=not others)
    show(rows)
    if out is not None:
        save(rows, out, tested=tested, stale=partial(_is_of, set(files.values())))


def _is_of(names: set[str], line: dict[str, str]) -> bool:
    """Whether a line of the file is of a row of these names, or of a test that counts for one."""
    of = line["parameters"].partition(";")[0].removeprefix("of=")
    return line["name"] in names or of in names


if __name__ == "__main__":
    tyro.cli(main)
