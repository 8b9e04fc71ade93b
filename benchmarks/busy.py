"""A layer's step on one thread and on more, on an idle machine and beside busy processes.

    python benchmarks/busy.py --out benchmarks/results/cpu-busy.csv

Forward and backward of `TransformerConv` with features of edges, ours and PyG's. Threads of OpenMP
that wait for each other stay awake for milliseconds, and on a busy machine keep the core from the
one that they wait for; `ops/backends/cpu/openmp.py` has them sleep there. "awake" is ours without
that, and so is PyG's. The script starts the busy processes itself, as many as threads; a round runs
every form, so that all meet the same weather: half a second untimed, in which it is noticed whether
the machine is busy, then half a second timed, at least one step each.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
import tyro
from _rows import ratios, save, show
from edge_features import Layer, assert_close, step_of

from graphtheory.lab.bench.rows import Row
from graphtheory.ops.backends.cpu.openmp import Rest, rest

SIZES = {"large": (20_000, 400_000), "small": (2_000, 20_000)}  # nodes and edges
HALF = 0.5  # seconds
SHAPE = (32, 4, 32, 16)  # channels, heads, features of a head and of an edge
FORMS: dict[str, tuple[Layer, bool]] = {  # layer, and whether waiting threads may sleep
    "graphtheory": ("TransformerConv", True),
    "graphtheory, awake": ("TransformerConv", False),
    "PyG": ("PyG", False),
}


@contextmanager
def awake() -> Iterator[None]:
    """Threads that wait are left as the OpenMP library has them."""
    look = Rest.look
    rest._hold(0)
    Rest.look = lambda self: None  # type: ignore[method-assign]
    try:
        yield
    finally:
        Rest.look = look  # type: ignore[method-assign]


@contextmanager
def busy(processes: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """So many processes compute beside this one."""
    command = [sys.executable, "-c", "while True: pass"]
    started = [subprocess.Popen(command) for _ in range(processes)]
    try:
        yield started
    finally:
        for process in started:
            process.kill()
            process.wait()


def on(threads: int, may_sleep: bool, step: Callable[[], object]) -> Callable[[], object]:
    """A step on so many threads."""

    def run() -> object:
        torch.set_num_threads(threads)
        if may_sleep:
            return step()
        with awake():
            return step()

    return run


def steady(step: Callable[[], object]) -> float:
    """Seconds of a step in a row of them."""
    for _ in range(2):  # the first row is not timed
        start, count = time.perf_counter(), 0
        while count == 0 or time.perf_counter() < start + HALF:
            step()
            count += 1
    return (time.perf_counter() - start) / count


def measure(size: str, threads: int, processes: int, repeats: int) -> list[Row]:
    """Seconds of each form on one thread and on all, and what more threads make of them."""
    nodes, edges = SIZES[size]
    steps = {name: step_of(layer, nodes, edges, *SHAPE) for name, (layer, _) in FORMS.items()}
    assert_close("TransformerConv", steps["graphtheory"](), steps["PyG"]())
    works = {
        f"{name}, {count} threads": on(count, FORMS[name][1], step)
        for name, step in steps.items()
        for count in (1, threads)
    }
    about = {"nodes": nodes, "edges": edges, "busy processes": processes}
    with busy(processes):
        rounds = [{name: steady(work) for name, work in works.items()} for _ in range(repeats)]
    times = {name: [found[name] for found in rounds] for name in works}
    rows = [Row.of(f"step, {name}", taken, "s", **about) for name, taken in times.items()]
    for name in FORMS:
        more = ratios(times[f"{name}, {threads} threads"], times[f"{name}, 1 threads"])
        rows.append(Row.of(f"{threads} threads over 1, {name}", more, "1", **about))
    for other in list(FORMS)[1:]:
        faster = ratios(
            times[f"{other}, {threads} threads"], times[f"graphtheory, {threads} threads"]
        )
        rows.append(Row.of(f"{other} over graphtheory, {threads} threads", faster, "1", **about))
    return rows


def main(
    threads: int = 2, processes: int | None = None, repeats: int = 9, out: Path | None = None
) -> None:
    """Time steps on an idle machine and on a busy one.

    Args:
        threads: Beside one thread.
        processes: Busy ones; default as many as `threads`.
        repeats: Rounds.
        out: CSV file to put the rows in, after the conformance tests.
    """
    rows = []
    for size in SIZES:
        for beside in (0, threads if processes is None else processes):
            rows += measure(size, threads, beside, repeats)
            show(rows[-11:])
    if out is not None:
        save(rows, out)


if __name__ == "__main__":
    tyro.cli(main)
