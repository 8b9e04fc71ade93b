"""What `pip install` adds on top of torch: packages, size, and time beside PyG's. This wheel and its peers.

    make dist && python benchmarks/install.py --out benchmarks/results/install.csv

Each in an environment that has torch alone, without pip's cache. Every round installs PyG too, and times are multiples of
that: seconds would be those of a network. "Processor time" is without downloads, and a busy machine hardly changes it. A
peer that cannot be installed or imported beside this torch is named, with the error's last line. Ends with 2 where torch
cannot be installed.
"""  # noqa: E501

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import tyro
from _rows import ROOT, save, show

from graphtheory.lab.bench.rows import Row

PIP = ("-m", "pip", "--disable-pip-version-check")
INSTALL = (*PIP, "install", "--no-cache-dir", "--constraint", str(ROOT / "constraints.txt"))
PYG = "PyG"
DISTRIBUTIONS = {PYG: "torch-geometric", "DGL": "dgl"}  # of the others it is the name
MODULES = {PYG: "torch_geometric", "DGL": "dgl"}


@dataclass(frozen=True)
class Added:
    """What one installation added to an environment."""

    seconds: float
    processor_seconds: float
    megabytes: float
    packages: int
    version: str  # of the one that was asked for; "" where none was installed
    fault: str  # the last line of an error; "" where it can be imported


def environment(folder: Path) -> None:
    """Make one with torch alone.

    Raises:
        SystemExit: torch cannot be installed.
    """
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    if run(folder, *INSTALL, "torch").returncode:
        print("torch cannot be installed here", file=sys.stderr)
        raise SystemExit(2)


def measure(template: Path, name: str, what: str) -> Added:
    """Install into a copy of an environment, and import."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "env"
        shutil.copytree(template, folder, symlinks=True, copy_function=os.link)
        size_before, packages_before = size(folder), packages(folder)
        start, busy = time.perf_counter(), children_seconds()
        made = run(folder, *INSTALL, what)
        taken = time.perf_counter() - start, children_seconds() - busy
        if made.returncode == 0:
            made = run(folder, "-c", f"import {MODULES.get(name, name)}")
        fault = made.stderr.strip().splitlines()[-1] if made.returncode else ""
        now = packages(folder)
        version = now.get(DISTRIBUTIONS.get(name, name), "")
        grown = size(folder) - size_before
        return Added(*taken, grown, len(now) - len(packages_before), version, fault)


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The environment's own Python, which sees no other packages."""
    path = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [str(folder / "bin" / "python"), *arguments]
    return subprocess.run(command, text=True, capture_output=True, check=False, cwd="/", env=path)


def packages(folder: Path) -> dict[str, str]:
    """Name -> version of what is installed."""
    listed = run(folder, *PIP, "list", "--format", "freeze").stdout.splitlines()
    return dict(line.split("==", 1) for line in listed if "==" in line)


def children_seconds() -> float:
    """Processor time of child processes that have ended."""
    times = os.times()
    return times.children_user + times.children_system


def size(folder: Path) -> float:
    """MB (10^6 bytes) of its files."""
    files = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return sum(path.stat().st_size for path in files) / 1e6


def over(every: list[Added], base: list[Added], of: str) -> list[float]:
    """Round by round, as a multiple."""
    return [getattr(a, of) / getattr(b, of) for a, b in zip(every, base, strict=True)]


def main(repeats: int = 3, out: Path | None = None) -> None:
    """Measure in turns, print and write.

    Args:
        repeats: Rounds.
        out: File of rows.
    """
    wheels = sorted((ROOT / "dist").glob("*.whl"))
    if not wheels:
        print("dist: no wheel, expected one made by `make dist`", file=sys.stderr)
        raise SystemExit(2)
    asked = {PYG: "", "graphtheory": str(wheels[-1]), "transformers": "", "timm": "", "DGL": ""}
    found: dict[str, list[Added]] = {name: [] for name in asked}
    with tempfile.TemporaryDirectory() as folder:
        environment(Path(folder))
        for _ in range(repeats):
            for name, what in asked.items():
                added = measure(Path(folder), name, what or DISTRIBUTIONS.get(name, name))
                found[name].append(added)
                print(f"{name} {added.version}: {added.fault or 'can be imported'}", flush=True)
    rows = [Row.of("size of the wheel", wheels[-1].stat().st_size / 1e6, "MB")]
    for name, every in found.items():
        about = {"package": name, "version": every[-1].version}
        for what, unit, values in (
            ("packages added to torch", "1", [added.packages for added in every]),
            ("size added to torch", "MB", [added.megabytes for added in every]),
            ("time of pip install over PyG's", "1", over(every, found[PYG], "seconds")),
            (
                "processor time of pip install over PyG's",
                "1",
                over(every, found[PYG], "processor_seconds"),
            ),
            ("can be imported", "1", [not added.fault for added in every]),
        ):
            rows.append(Row.of(what, values, unit, **about))
    show(rows)
    if out is not None:
        save(rows, out, tested=True)  # no kernel takes part


if __name__ == "__main__":
    tyro.cli(main)
