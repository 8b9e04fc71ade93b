"""Hours of commands that are killed or kept from writing, beside one process that lives on."""

from __future__ import annotations

import gc
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import torch

from battery.answers import OPERATIONS, TOLERANCE, error, found_by, true_of
from battery.draw import Case
from battery.growth import resident
from battery.jobs import JOBS, Fault, ended, graph
from battery.line import Line, timed
from graphtheory.data.loaders import GraphFolder, NodeSetLoader
from graphtheory.lab.train import read_checkpoint
from graphtheory.lab.train.checkpoint import write_checkpoint
from graphtheory.lab.train.contract import digest
from graphtheory.patterns import LADIES

SECONDS = 7_200  # at share 1
MOST_GROWTH = 8 * 2**20  # bytes from the first third to the end
_VARIANTS, _CONTROLS, _WARM = 6, 10, 200
Samples = list[tuple[float, int]]


class _Soak:
    """Jobs with faults, and what the process does between them."""

    def __init__(self, home: Path, seed: int) -> None:
        self.home, self.rng, self.number = home, np.random.default_rng(seed), 0
        self.kills = self.full = 0
        self.expected: dict[tuple[str, int], tuple[str, float]] = {}
        self.calls = {one.__name__: one for one in (self._ops, self._loader, self._files)}
        self.graph = graph(0)
        self.folder = GraphFolder.write(self.graph, home / "graph")
        write_checkpoint(home / "kept.ckpt", {"state_dict": {"x": self.graph.x}})

    def whole(self, name: str, variant: int) -> tuple[str, float]:
        """Facts and seconds of the job that nothing befalls."""
        if (name, variant) not in self.expected:
            out = self.home / f"{name}-{variant}"
            end = ended(name, variant, out)
            assert end.code == 0, end.said
            self.expected[name, variant] = JOBS[name].facts(out, variant), end.seconds
        return self.expected[name, variant]

    def job(self, *, unsafe: bool = False) -> str:
        """One job with up to three faults, then to its end; what went wrong, "" if nothing."""
        self.number += 1
        name = "train" if unsafe else str(self.rng.choice(list(JOBS)))
        variant = int(self.rng.integers(_VARIANTS))
        expected, seconds = self.whole(name, variant)
        out = self.home / f"run-{self.number}"
        try:
            for _ in range(1 if unsafe else int(self.rng.integers(0, 4))):
                if said := self._faulty(name, variant, out, seconds, unsafe):
                    return said
            end = ended(name, variant, out)
            if end.code != 0:
                return f"{name} {variant} did not go on ({end.code}): {end.said[-300:]}"
            if (found := JOBS[name].facts(out, variant)) != expected:
                return f"{name} {variant} ended in {found[:200]}, expected {expected[:200]}"
            left = [p.name for p in out.glob(".*.draft")] if name == "train" else []
            return f"{name} {variant} leaves {left}" if left else ""
        except Exception as broken:  # of a reader
            return f"{name} {variant}: {type(broken).__name__}: {broken}"
        finally:
            shutil.rmtree(out, ignore_errors=True)

    def _faulty(self, name: str, variant: int, out: Path, seconds: float, unsafe: bool) -> str:
        fault = Fault(unsafe=unsafe)
        if not unsafe and self.rng.random() < 0.3:
            fault = Fault(most_bytes=int(self.rng.integers(1, 300_000)))
        elif not unsafe:
            number = (signal.SIGKILL, signal.SIGTERM)[int(self.rng.random() < 0.2)]
            fault = Fault(float(self.rng.uniform(0, seconds)), number)
        end = ended(name, variant, out, fault)
        self.kills += end.code is not None and end.code < 0
        if end.code is None:
            return f"{name} {variant} hangs after {fault}"
        if fault.most_bytes is not None and end.code != 0:
            self.full += 1
            if "Traceback" in end.said and name in ("train", "bench"):
                return f"{name} {variant}, full disk: {end.said[-300:]}"
        if out.exists() and not unsafe:
            JOBS[name].check(out)
        return ""

    def live(self) -> str:
        """One call in this process, against what it has to give."""
        name = str(self.rng.choice(list(self.calls)))
        return self.calls[name](int(self.rng.integers(1_000)))

    def _ops(self, number: int) -> str:
        case = Case.draw(number, 0)
        operation = OPERATIONS[int(self.rng.integers(len(OPERATIONS)))]
        tensors = operation.tensors(case)
        true, grad = true_of(operation, case, tensors)
        off, where = error(true, found_by(operation.call, tensors, case, grad, None))
        return f"case {number}, {operation.name}: {where} off by {off}" if off > TOLERANCE else ""

    def _loader(self, number: int) -> str:
        return "" if self._epoch(number % 5) == self._kept_epoch(number % 5) else "another epoch"

    def _epoch(self, seed: int) -> str:
        pattern = LADIES(64)
        loader = NodeSetLoader(self.folder, pattern, 2, batch_size=500, shuffle=True, seed=seed)
        return digest(tensor for batch in loader for tensor in (batch.n_id, batch.x))

    @cache  # noqa: B019  one soak in a process
    def _kept_epoch(self, seed: int) -> str:
        return self._epoch(seed)

    def _files(self, number: int) -> str:
        GraphFolder(self.home / "graph").verify()
        found = read_checkpoint(self.home / "kept.ckpt")["state_dict"]["x"]
        return "" if torch.equal(found, self.graph.x) else "a checkpoint that nobody wrote to"


def _held() -> tuple[int, int]:
    """Open files and threads of this process."""
    return len([*Path("/proc/self/fd").iterdir()]), threading.active_count()


def _sampled(work: Callable[[], object], seconds: float, turns: int) -> Samples:
    """Resident memory after each turn of some work, for some seconds and some turns at least."""
    start, samples = time.monotonic(), []
    while len(samples) < turns or time.monotonic() - start < seconds:
        work()
        gc.collect()
        samples.append((time.monotonic() - start, resident()))
    return samples


def _growth(samples: Samples) -> float:
    """Bytes: the median of the last fifth beyond that of the fifth after the first third."""
    size = [held for _, held in samples]
    part = max(1, len(size) // 5)
    return float(np.median(size[-part:]) - np.median(size[len(size) // 3 :][:part]))


def soak(share: float, seed: int) -> list[Line]:
    """Two hours at share 1."""
    same = Line(
        "soak", "commands that are killed, ended or refused their files go on to the same results",
        "runs whose saver writes over the old file",
    )  # fmt: skip
    live = Line(
        "soak", f"a process that lives on gives right answers and grows by at most "
        f"{MOST_GROWTH >> 20} MiB", "a list that keeps a megabyte of every turn",
    )  # fmt: skip
    with timed(same), tempfile.TemporaryDirectory() as home:
        trials = _Soak(Path(home), seed)
        for name in JOBS:
            trials.whole(name, 0)
        for _ in range(_WARM):
            trials.live()
        before = _held()

        def turn() -> None:
            for line, work, count in ((same, trials.job, 1), (live, trials.live, 20)):
                for _ in range(count):
                    line.trials += 1
                    if said := work():
                        line.broken.append(said)

        samples = _sampled(turn, share * SECONDS, 12)
        for _ in range(max(2, round(share * _CONTROLS))):
            same.planted += 1
            same.caught += bool(trials.job(unsafe=True))
        kept: list[bytearray] = []
        leak = _sampled(lambda: kept.append(bytearray(b"\1" * 2**20)), 0, 60)
        live.planted, live.caught = 1, int(_growth(leak) > MOST_GROWTH)
        grown, now = _growth(samples), _held()
    if grown > MOST_GROWTH:
        live.broken.append(f"memory grows by {grown / 2**20:.1f} MiB")
    if now[0] > before[0] or now[1] > before[1]:
        live.broken.append(f"open files and threads {before} before, {now} after")
    live.seconds = samples[-1][0]
    same.figures = {"kills": trials.kills, "full disks": trials.full}
    live.figures = {
        "minutes": f"{samples[-1][0] / 60:.0f}", "growth": f"{grown / 2**20:.1f} MiB",
        "at the end": f"{samples[-1][1] / 2**20:.0f} MiB",
    }  # fmt: skip
    return [same, live]
