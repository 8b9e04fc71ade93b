"""Sizes at which the CPU kernels change their way of computing: both ways timed on this processor.

    python benchmarks/thresholds.py
    python benchmarks/thresholds.py --constants FAR --rounds 30

Each constant was set on one processor, and another may want another. For every constant one process
takes one way at all sizes and a second process the other way, with machine code of their own; they
take turns, so that both meet the same weather. A step is attention on a uniform random graph in
float32, forward and backward. The table has how many times as long the way takes that the constant
does not choose: below 1 it would have been faster. `KEPT_WEIGHTS_BELOW` saves memory, for which its
other way may cost some time. The table of `sets.py` is that of `ops/backends/blocks.py`.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from math import ceil
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Literal, NamedTuple

import torch
import tyro
from _graphs import uniform
from _rows import ratios, save, show
from ops import draw
from rich.progress import track

from graphtheory import ops
from graphtheory.lab.bench.rows import Row
from graphtheory.ops.backends.cpu.primitives import EXP

_SHORT = 0.05  # seconds that a process has at least before the other one's turn
_WORTH = 0.9  # of the time that the chosen way takes
_CPU = "graphtheory.ops.backends.cpu"


class Case(NamedTuple):
    """A graph and the shape of its vectors."""

    nodes: int
    degree: int
    heads: int
    head_dim: int

    @property
    def edges(self) -> int:
        """Number of edges of the graph."""
        return self.nodes * self.degree


class Constant(NamedTuple):
    """A size, in the units of `size`, below which `below` is done, and from which on `above` is."""

    module: str
    size: Callable[[Case], int]
    below: str
    above: str
    cases: tuple[Case, ...]


CONSTANTS: dict[str, Constant] = {
    "FAR": Constant(
        f"{_CPU}.attention.rows", lambda c: 4 * c.nodes * c.heads * c.head_dim,
        "rows of nodes read when they are needed", "rows of nodes loaded ahead",
        (
            Case(250, 160, 4, 32), Case(500, 80, 4, 32), Case(1_000, 60, 4, 32),
            Case(1_000, 60, 8, 16), Case(2_000, 30, 4, 32), Case(4_000, 20, 4, 32),
            Case(8_000, 20, 4, 32), Case(10_000, 20, 1, 128), Case(30_000, 20, 1, 64),
            Case(20_000, 5, 4, 32), Case(20_000, 20, 4, 32), Case(20_000, 20, 8, 16),
        ),
    ),
    "WHOLE_ROWS_BELOW": Constant(
        f"{_CPU}.memory", lambda c: c.edges * c.heads * c.head_dim,
        "one loop for all of a row", "three loops",
        (
            Case(1_000, 11, 8, 16), Case(2_000, 10, 8, 16), Case(3_000, 10, 8, 16),
            Case(6_000, 10, 8, 16), Case(6_000, 10, 4, 64), Case(20_000, 20, 8, 16),
        ),
    ),
    "KEPT_WEIGHTS_BELOW": Constant(
        f"{_CPU}.memory", lambda c: 4 * c.edges * c.heads,
        "weights of edges kept", "weights of edges computed again",
        (
            Case(20_000, 5, 8, 16), Case(20_000, 20, 4, 64), Case(50_000, 16, 8, 16),
            Case(100_000, 16, 8, 16), Case(160_000, 16, 8, 16),
        ),
    ),
    "WORTH_A_THREAD": Constant(
        f"{_CPU}.launch", lambda c: c.edges * c.heads * (2 * c.head_dim + EXP),
        "one thread", "all threads",
        (
            Case(32, 8, 8, 16), Case(64, 8, 8, 16), Case(96, 8, 8, 16), Case(192, 8, 8, 16),
            Case(384, 8, 8, 16), Case(768, 8, 8, 16),
        ),
    ),
}  # fmt: skip
Name = Literal[tuple(CONSTANTS)]


def step_of(case: Case) -> Callable[[], object]:
    """A step of attention, forward and backward."""
    nb = uniform(case.nodes, case.edges)
    leaves, grad = draw(case.nodes, case.heads, case.head_dim)

    def step() -> object:
        return torch.autograd.grad(ops.attention(*leaves, nb), leaves, grad)  # type: ignore[misc]

    return step


def serve(line: Connection, name: str, value: int, threads: int) -> None:
    """In a process of its own: answer the number of a case with the seconds of its step."""
    torch.set_num_threads(threads)
    constant = CONSTANTS[name]
    setattr(import_module(constant.module), name, value)
    steps = [step_of(case) for case in constant.cases]
    taken = [0.0] * len(steps)
    for place in iter(line.recv, None):
        calls = max(1, ceil(_SHORT / taken[place])) if taken[place] else 1
        steps[place]()  # finds the memory as its own last step left it
        start = time.perf_counter()
        for _ in range(calls):
            steps[place]()
        taken[place] = (time.perf_counter() - start) / calls
        line.send(taken[place])


@contextmanager
def at_all_sizes(name: str, value: int, threads: int) -> Iterator[Callable[[int], float]]:
    """Seconds of a case where the constant has that value, whose machine code is kept nowhere."""
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["NUMBA_CACHE_DIR"] = folder  # which numba of the new process reads
        process = context.Process(target=serve, args=(theirs, name, value, threads), daemon=True)
        process.start()
        theirs.close()  # so that a process that ended is an EOFError here
        del os.environ["NUMBA_CACHE_DIR"]

        def seconds(place: int) -> float:
            ours.send(place)
            found: float = ours.recv()
            return found

        try:
            yield seconds
        finally:
            process.terminate()
            process.join()


def measure(name: str, rounds: int, threads: int) -> list[Row]:
    """How many times as long the way takes that is not chosen, for every case."""
    constant, rows = CONSTANTS[name], []
    threshold = getattr(import_module(constant.module), name)
    with (
        at_all_sizes(name, 2**62, threads) as below,
        at_all_sizes(name, 1, threads) as above,
    ):
        ways = {"below": below, "above": above}
        found: list[dict[str, list[float]]] = [{w: [] for w in ways} for _ in constant.cases]
        for turn in track(range(1 + rounds), f"{name}, rounds"):
            for place, times in enumerate(found):
                for way in ways if turn % 2 else reversed(ways):
                    times[way].append(ways[way](place))
    for case, times in zip(constant.cases, found, strict=True):
        size = constant.size(case)
        chosen, other = ("below", "above") if size < threshold else ("above", "below")
        about = case._asdict() | {"size": size, name: threshold, "threads": threads}
        slower = ratios(times[other][1:], times[chosen][1:])  # the first round compiled
        rows.append(Row.of(f"{getattr(constant, other)}, over the other way", slower, "1", **about))
    return rows


def main(
    constants: tuple[Name, ...] = tuple(CONSTANTS),
    rounds: int = 15,
    threads: int = 2,
    out: Path | None = None,
) -> None:
    """Time both sides of constants that depend on the processor.

    Args:
        constants: Names.
        rounds: Times of each side, in turn.
        threads: Of torch and of the kernels.
        out: CSV file to put the rows in, after the conformance tests.
    """
    rows = []
    for name in constants:
        found = measure(name, rounds, threads)
        constant, value = CONSTANTS[name], getattr(import_module(CONSTANTS[name].module), name)
        print(f"{name} = {value:,}: below {constant.below}, from there on {constant.above}")
        show(found)
        wrong = sum(row.median < _WORTH for row in found)
        print(f"{wrong} of {len(found)} sizes would be faster by a tenth the other way\n")
        rows += found
    if out is not None:
        save(rows, out)


if __name__ == "__main__":
    tyro.cli(main)
