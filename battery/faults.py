"""Faults of the machine: full disks, folders that cannot be written, signals, workers that die."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from battery.jobs import JOBS, Fault, ended, graph
from battery.line import Line, timed
from graphtheory.data.loaders import NodeSetLoader
from graphtheory.patterns import GraphSAGE

POINTS, SIGNALS, PAIRS, WORKERS = 30, 100, 10, 10
MOST_SECONDS = 5.0  # from a signal to the end
_SENTENCE = ("bytes needed", "bytes free", "free;")


class _Runs:
    """Runs of one training job, beside one that nothing befell."""

    def __init__(self, home: Path, seed: int) -> None:
        self.home, self.rng, self.number = home, np.random.default_rng(seed), 0
        for name in ("first", "whole"):  # the first starts the server that the others fork from
            end = ended("train", 0, home / name)
            assert end.code == 0, end.said
        self.seconds, self.expected = end.seconds, JOBS["train"].facts(home / "whole", 0)

    def folder(self) -> Path:
        """The path of a new folder of runs."""
        self.number += 1
        return self.home / f"run-{self.number}"

    def went_on(self, out: Path) -> str:
        """Whether the same command ends as the run that nothing befell; "" if so."""
        end = ended("train", 0, out)
        if end.code != 0:
            return f"does not go on: {end.said[-200:]}"
        return "" if JOBS["train"].facts(out, 0) == self.expected else "ends otherwise"


def full_disks(share: float, seed: int) -> list[Line]:
    """A limit on the size of files at points between nothing and what a run needs."""
    line = Line(
        "faults", "a full disk ends a run in a sentence; the last checkpoint is whole, and goes on",
        "a saver that writes over the old file",
    )  # fmt: skip
    with timed(line), tempfile.TemporaryDirectory() as home:
        runs = _Runs(Path(home), seed)
        largest = max(p.stat().st_size for p in (Path(home) / "whole").iterdir())
        for most in np.linspace(1, largest - 1, max(4, round(share * POINTS))).astype(int):
            out = runs.folder()
            line.trials += 1
            end = ended("train", 0, out, Fault(most_bytes=int(most)))
            if said := _unclear(end.code, end.said) or _unreadable(out) or runs.went_on(out):
                line.broken.append(f"{most} bytes: {said}")
        for _ in range(2):
            out = runs.folder()
            ended("train", 0, out, Fault(unsafe=True))
            line.planted += 1
            line.caught += bool(_unreadable(out))
        line.figures = {"largest file": f"{largest} bytes"}
    return [line]


def _unclear(code: int | None, said: str) -> str:
    if code == 0:
        return "ends as if nothing had happened"
    if "Traceback" in said or not any(word in said for word in _SENTENCE):
        return f"says no clear sentence: {said[-200:]}"
    return ""


def _unreadable(out: Path) -> str:
    try:
        JOBS["train"].check(out)
    except Exception as error:  # of a reader
        return str(error)
    return ""


def signals(share: float, seed: int) -> list[Line]:
    """SIGINT and SIGTERM at random moments of a run."""
    line = Line(
        "faults", f"Ctrl-C and SIGTERM end a run within {MOST_SECONDS:.0f} s with 130 and 143, and "
        "it goes on to the same bits", "runs that go on with another seed",
    )  # fmt: skip
    with timed(line), tempfile.TemporaryDirectory() as home:
        runs, slowest = _Runs(Path(home), seed), 0.0
        for number in range(max(4, round(share * SIGNALS))):
            sent, code = ((signal.SIGINT, 130), (signal.SIGTERM, 143))[number % 2]
            out = runs.folder()
            after = float(runs.rng.uniform(0.1, 0.7) * runs.seconds)
            end = ended("train", 0, out, Fault(after, sent))
            line.trials += 1
            if end.code == 0:
                continue  # it had ended before
            slowest = max(slowest, end.seconds)
            line.figures["ended"] = line.figures.get("ended", 0) + 1
            said = "" if end.code in (code, -sent) else f"exit code {end.code}: {end.said[-200:]}"
            if end.seconds > MOST_SECONDS:
                said = f"{end.seconds:.1f} s"
            if said := said or runs.went_on(out):
                line.broken.append(f"{sent.name} after {after:.2f} s: {said}")
        line.figures["slowest"] = f"{slowest:.2f} s"
        other = runs.folder()
        ended("train", 3, other)  # the same model with another seed
        line.planted = 1
        line.caught = int(JOBS["train"].facts(other, 3) != runs.expected)
    return [line]


def folders(share: float, seed: int) -> list[Line]:
    """Folders that cannot be written to, and two runs in one."""
    line = Line(
        "faults", "a folder that is read-only, a file or in use is refused in a sentence before "
        "anything is trained", "the same command in a folder that is fine",
    )  # fmt: skip
    with timed(line), tempfile.TemporaryDirectory() as home:
        runs = _Runs(Path(home), seed)
        file = Path(home) / "file"
        file.write_text("")
        places = [("a file", file), ("below a file", file / "run")]
        with _read_only(Path(home) / "disk") as disk:
            places += [("read-only", disk / "run"), ("itself read-only", disk)] if disk else []
            for what, out in places:
                line.trials += 1
                end = ended("train", 0, out)
                if end.code != 2 or "Traceback" in end.said or "out" not in end.said:
                    line.broken.append(f"{what}: exit code {end.code}: {end.said[-200:]}")
        line.figures["read-only disk"] = "mounted" if disk else "cannot be mounted here"
        for _ in range(max(2, round(share * PAIRS))):
            line.trials += 1
            if said := _two(runs):
                line.broken.append(f"two runs: {said}")
        line.planted, line.caught = 1, int(ended("train", 0, runs.folder()).code == 0)
    return [line]


@contextmanager
def _read_only(place: Path) -> Iterator[Path | None]:
    """A disk that is mounted read-only, since a superuser may write to any folder that is not."""
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "ro,size=1m", "tmpfs", str(place)]
    try:
        done = subprocess.run(mount, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        done = False
    yield place if done else None
    if done:
        subprocess.run(["umount", str(place)], check=True)


def _two(runs: _Runs) -> str:
    """Two processes on one folder: one trains, the other is refused or finds it finished."""
    out, ends = runs.folder(), []
    both = [threading.Thread(target=lambda: ends.append(ended("train", 0, out))) for _ in range(2)]
    for one in both:
        one.start()
    for one in both:
        one.join()
    refused = [end for end in ends if end.code != 0]
    if len(refused) > 1 or any("another run is using it" not in end.said for end in refused):
        return f"{[end.code for end in ends]}: {refused[0].said[-200:]}"
    return runs.went_on(out)


class _Mortal:
    """A transform whose process ends in the third batch."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, data: Any) -> Any:
        """Count the call, and end the worker in its third."""
        self.calls += 1
        if self.calls == 3 and torch.utils.data.get_worker_info() is not None:
            os.kill(os.getpid(), signal.SIGKILL)
        return data


def _epoch(loader: NodeSetLoader) -> str:
    """What is wrong with how an epoch ends; "" if it ends in an error that names the worker."""
    try:
        return f"{len([*loader])} batches as if nothing had happened"
    except Exception as error:  # of a class that torch chooses
        return "" if "worker" in str(error) else f"{type(error).__name__}: {error}"


def workers(share: float, seed: int) -> list[Line]:
    """A worker of a loader that is killed."""
    line = Line(
        "faults", "a loader whose worker dies raises an error that says so, and does not hang",
        "a loader whose workers live",
    )  # fmt: skip
    with timed(line):
        for number in range(max(2, round(share * WORKERS))):
            line.trials += 1
            options = {"batch_size": 100, "seed": number, "num_workers": 1 + number % 2}
            loader = NodeSetLoader(graph(0), GraphSAGE(3), 2, transform=_Mortal(), **options)
            start = time.monotonic()
            try:
                said = _epoch(loader)
            except RuntimeError:  # torch raises at the signal of a child, wherever that arrives
                said = ""
            if said := said or ("" if time.monotonic() - start < 60 else "it takes a minute"):
                line.broken.append(said)
        live = NodeSetLoader(graph(0), GraphSAGE(3), 2, batch_size=100, num_workers=1)
        line.planted, line.caught = 1, int(len([*live]) == 20)
    return [line]


def faults(share: float, seed: int) -> list[Line]:
    """All faults of the system in this module."""
    parts = (full_disks, signals, folders, workers)
    return [line for part in parts for line in part(share, seed)]
