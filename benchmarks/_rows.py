"""What benchmarks share: alternating timings, and rows written only after green tests."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import cache
from math import ceil
from pathlib import Path
from typing import Any

from graphtheory.lab.bench.rows import Environment, Row, lines_of, write_lines

ROOT = Path(__file__).parent.parent
_SHORT = 0.05  # seconds


def clock_of(threads: int) -> Callable[[], float]:
    """Processor time for one thread, which other programs on the machine hardly change; else wall.

    Processor time counts every thread of the process, so with more of them it is no duration.
    """
    return time.process_time if threads == 1 else time.perf_counter


def seconds(
    works: dict[str, Callable[[], object]],
    repeats: int,
    warmup: int = 2,
    clock: Callable[[], float] | None = None,
) -> dict[str, list[float]]:
    """Time of each work; a round runs all of them, so they meet the same weather.

    A work that takes less than `_SHORT` runs several times in a row, after once untimed: it is
    timed as in a loop that trains, not in the state that another work left the memory in.
    """
    times: dict[str, list[float]] = {name: [] for name in works}
    now = clock or time.perf_counter
    for _ in range(warmup + repeats):
        for name, work in works.items():
            calls = 1
            if times[name] and times[name][-1] < _SHORT:
                calls = ceil(_SHORT / times[name][-1])
                work()
            start = now()
            for _call in range(calls):
                work()
            times[name].append((now() - start) / calls)
    return {name: taken[warmup:] for name, taken in times.items()}


def ratios(slow: Sequence[float], fast: Sequence[float]) -> list[float]:
    """How many times as long, round by round."""
    return [a / b for a, b in zip(slow, fast, strict=True)]


def beside(ours: str, what: str, found: dict[str, list[float]], **about: Any) -> list[Row]:
    """Seconds of each form of a work, and how many times as long as ours the others take."""
    rows = [Row.of(f"{what}, {name}", taken, "s", **about) for name, taken in found.items()]
    return rows + [
        Row.of(f"{what}, {name} over {ours}", ratios(taken, found[ours]), "1", **about)
        for name, taken in found.items()
        if name != ours
    ]


def show(rows: Sequence[Row]) -> None:
    """Print one line a row."""
    for row in rows:
        spread = f"[{row.q20:.4g}, {row.q80:.4g}]"
        print(f"{row.name:58} {row.median:9.4g} {row.unit:8} {spread:20} {row.parameters}")


@cache
def green() -> bool:
    """Whether the conformance tests pass; they run once a process."""
    command = [sys.executable, "-m", "pytest", "tests/conformance", "-q", "-x"]
    one_thread = os.environ | {"OMP_NUM_THREADS": "1"}  # small work, which threads would slow down
    return subprocess.run(command, cwd=ROOT, env=one_thread, check=False).returncode == 0


def save(
    rows: Sequence[Row],
    path: Path,
    *,
    tested: bool = False,
    stale: Callable[[dict[str, str]], bool] = lambda line: False,
) -> None:
    """Write rows into a CSV file, over those of the same name and parameters; not on red tests.

    Args:
        rows: To write.
        path: The file.
        tested: The conformance tests passed on this machine in another process already.
        stale: Whether a line of the file is left out as well.

    Raises:
        SystemExit: The conformance tests are red; the file stays as it was.
    """
    if not tested and not green():
        sys.exit(f"{path} not written: the conformance tests fail")
    new = lines_of(rows, Environment.here())
    names = {(line["name"], line["parameters"]) for line in new}
    old = []
    if path.exists():
        with path.open(newline="", encoding="utf-8") as file:
            lines = csv.DictReader(file)
            old = [
                line for line in lines
                if (line["name"], line["parameters"]) not in names and not stale(line)
            ]  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    write_lines(path, [*old, *new])
