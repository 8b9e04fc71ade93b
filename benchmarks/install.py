"""Time and size of `pip install` on top of torch: this package's wheel, and PyG alone.

    make dist && python benchmarks/install.py --out benchmarks/results/install.csv

Each in an empty environment that has torch alone, without pip's cache. Downloads count, so the time is that of a network as much as
of a package. Ends with 2 where torch cannot be installed.
"""  # noqa: E501

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import tyro
from _rows import ROOT, save, show

from graphtheory.bench.rows import Row

PIP = ("-m", "pip", "install", "--quiet", "--no-cache-dir", "--disable-pip-version-check")
CONSTRAINTS = ("--constraint", str(ROOT / "constraints.txt"))


def measure(what: str) -> tuple[float, float]:
    """Seconds, and MB (10^6 bytes) that an environment with torch grows by."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        python = Path(folder) / "bin" / "python"
        if subprocess.run([python, *PIP, *CONSTRAINTS, "torch"], check=False).returncode:
            print("torch cannot be installed here", file=sys.stderr)
            raise SystemExit(2)
        before = size(Path(folder))
        start = time.perf_counter()
        subprocess.run([python, *PIP, *CONSTRAINTS, what], check=True)
        return time.perf_counter() - start, size(Path(folder)) - before


def size(folder: Path) -> float:
    """MB (10^6 bytes) of its files."""
    files = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return sum(path.stat().st_size for path in files) / 1e6


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
    asked = {"PyG": "torch-geometric", "graphtheory": str(wheels[-1])}
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in asked}
    for _ in range(repeats):
        for name, what in asked.items():
            found[name].append(measure(what))
    rows = [Row.of("size of the wheel", wheels[-1].stat().st_size / 1e6, "MB")]
    for name, pairs in found.items():
        times, sizes = zip(*pairs, strict=True)
        rows.append(Row.of(f"pip install on top of torch, {name}", times, "s"))
        rows.append(Row.of(f"size on top of torch, {name}", sizes, "MB"))
    show(rows)
    if out is not None:
        save(rows, out, tested=True)  # no kernel takes part


if __name__ == "__main__":
    tyro.cli(main)
