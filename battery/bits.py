"""Same seed, same bits: fresh processes, thread counts, loader workers."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from itertools import product
from typing import TYPE_CHECKING, Any
from unittest import mock

import torch

from battery.growth import loaders_of
from battery.line import Line, timed
from graphtheory.lab.train.contract import digest

if TYPE_CHECKING:
    from battery.answers import Operation

PROCESSES = 100
_SCRIPT = """
import sys, torch
torch.set_num_threads(1)
from battery.bits import digest_of_a_run
print(digest_of_a_run(int(sys.argv[1]), sys.argv[2]))
"""
MODELS = ("gt", "gat", "gcn", "sage", "sampled-gcn")


def digest_of_a_run(seed: int, model: str) -> str:
    """SHA-256 of scores, history and parameters after three epochs on a small graph."""
    from graphtheory.lab.bench.node_task import NodeBenchTask

    task = NodeBenchTask("karate")
    found = task.run(task.config(model)[0], seed=seed, epochs=3, patience=3)
    history = [
        {name: value for name, value in row.items() if name != "seconds"}
        for row in found.fit.history
    ]
    parameters = digest(found.model.state_dict().values())
    return hashlib.sha256(f"{history} {parameters}".encode()).hexdigest()


def processes(share: float, seed: int) -> list[Line]:
    """A run in fresh processes with other hash seeds, folders and caches of compiled code."""
    line = Line(
        "bits", "training in a fresh process gives the same bits",
        "the same with another seed",
    )  # fmt: skip
    expected = {model: digest_of_a_run(seed, model) for model in MODELS}
    with timed(line):
        for number in range(max(2, round(share * PROCESSES))):
            model = MODELS[number % len(MODELS)]
            line.trials += 1
            if (found := _process(seed, model, number)) != expected[model]:
                line.broken.append(f"process {number}, {model}: {found[:12]}")
        for model in MODELS[: max(1, round(5 * share))]:
            line.planted += 1
            line.caught += _process(seed + 1, model, 0) != expected[model]
    return [line]


def _process(seed: int, model: str, number: int) -> str:
    environment = os.environ | {
        "PYTHONHASHSEED": str(number), "PYTHONPATH": os.pathsep.join(sys.path), "LC_ALL": "C",
    }  # fmt: skip
    words = [sys.executable, "-c", _SCRIPT, str(seed), model]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    return done.stdout.strip() or f"it ended with {done.returncode}: {done.stderr[-300:]}"


def threads(share: float, seed: int) -> list[Line]:
    """Every operation's output and gradients with 1, 2 and 4 threads."""
    from battery.answers import OPERATIONS, found_by, true_of
    from battery.draw import Case
    from battery.pieces import CHUNKS_BY_THREADS, computed_as

    line = Line(
        "bits", "1, 2 and 4 threads give the same bits of every operation and gradient, in as many "
        "chunks as a large graph has",
        "as many chunks as there are threads to share them, for each operation that sums",
    )  # fmt: skip
    before = torch.get_num_threads()

    def differs(operation: Operation, number: int) -> bool:
        case, found = Case.draw(number, seed), set()
        tensors = operation.tensors(case)
        grad = true_of(operation, case, tensors)[1]
        for count in (1, 2, 4):
            torch.set_num_threads(count)
            with computed_as(1 + number % 3):  # in many chunks
                result = found_by(operation.call, tensors, case, grad, "numba_csr")
            found.add(digest(result.values()))
        return len(found) > 1

    try:
        with timed(line):
            for number, operation in product(range(round(share * 1_000)), OPERATIONS):
                line.trials += 1
                if differs(operation, number):
                    line.broken.append(f"case {number}, {operation.name}")
            for operation in OPERATIONS:
                if operation.name.endswith((", max", ", min", "(GINE)", "(gated GCN)")):
                    continue  # no order matters to a largest value; rows of the others stay whole
                line.planted += 1
                with mock.patch.object(*CHUNKS_BY_THREADS):
                    line.caught += any(differs(operation, number) for number in range(60))
    finally:
        torch.set_num_threads(before)
    return [line]


def loader_workers(share: float, seed: int) -> list[Line]:
    """Two epochs of every loader with 0, 1 and 2 workers. The share does not matter."""
    line = Line(
        "bits", "any number of workers gives a loader's batches of the same seed",
        "the same with another seed",
    )  # fmt: skip
    with timed(line):
        by_workers, others = [loaders_of(seed, count) for count in range(3)], loaders_of(seed + 1)
        for name, other in others.items():
            found = [_epochs(loaders[name]) for loaders in by_workers]
            line.trials += 1
            if len(set(found)) > 1:
                line.broken.append(f"{name}: {found}")
            line.planted += 1
            line.caught += _epochs(other) != found[0]
    return [line]


def _epochs(loader: Any) -> str:
    return digest(batch.x for _ in range(2) for batch in loader)


def bits(share: float, seed: int) -> list[Line]:
    """All comparisons of this module, bit by bit."""
    parts: tuple[Callable[[float, int], list[Line]], ...] = (processes, threads, loader_workers)
    return [line for part in parts for line in part(share, seed)]
