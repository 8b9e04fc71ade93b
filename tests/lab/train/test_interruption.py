"""Runs that are killed, interrupted and resumed, each in a process of its own."""

import os
import signal
import sys
import time
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest

from battery.child import EPOCHS, STAGES, Orders, run
from battery.forked import start
from battery.jobs import run_facts
from graphtheory.lab.train import read_checkpoint

pytestmark = pytest.mark.skipif(os.name != "posix", reason="kills processes by POSIX signals")
SECONDS = 60  # after which a process hangs


def to_the_end(orders: Orders) -> None:
    try:
        run(orders)
    except KeyboardInterrupt:
        sys.exit(130)


class Runs:
    """Runs in one folder."""

    def __init__(self, home: Path) -> None:
        self.folder, self.flag = home / "run", home / "flag"

    def start(self, **orders: Any) -> BaseProcess:
        self.flag.write_bytes(b"\0")
        return start(to_the_end, Orders(str(self.folder), str(self.flag), **orders))

    def code(self, process: BaseProcess, seconds: float = SECONDS) -> int | None:
        process.join(seconds)
        assert process.exitcode is not None, "the run hangs"
        return process.exitcode

    def finish(self, **orders: Any) -> int | None:
        return self.code(self.start(**orders))

    def epochs(self) -> int:
        log = self.folder / "history.csv"
        return max(len(log.read_text().splitlines()) - 1, 0) if log.exists() else 0

    def send(self, number: signal.Signals, *, after: int, pause: float) -> BaseProcess:
        """Send a signal to a run that has written so many epochs."""
        process, deadline = self.start(pause=pause), time.monotonic() + SECONDS
        while self.epochs() < after:
            assert time.monotonic() < deadline, f"{after} epochs not reached"
            time.sleep(0.005)
        assert process.pid is not None
        os.kill(process.pid, number)
        return process

    def assert_goes_on(self, expected: dict[str, Any]) -> None:
        assert self.finish() == 0
        assert run_facts(self.folder) == expected and len(expected["history"]) == EPOCHS + 1
        assert not list(self.folder.glob(".*.draft"))


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    return Runs(tmp_path)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    runs = Runs(tmp_path_factory.mktemp("uninterrupted"))
    assert runs.finish() == 0
    return run_facts(runs.folder)


def test_killed_at_any_time_it_goes_on(runs: Runs, expected: dict[str, Any]) -> None:
    for epochs in (1, 2, 4):
        process = runs.send(signal.SIGKILL, after=epochs, pause=0.1)
        assert runs.code(process) == -signal.SIGKILL
        read_checkpoint(runs.folder / "last.ckpt")
    runs.assert_goes_on(expected)


@pytest.mark.parametrize("stage", STAGES)
def test_killed_while_writing_it_goes_on(runs: Runs, expected: dict[str, Any], stage: str) -> None:
    for save in (1, 2):  # the best epoch, the last one
        assert runs.finish(die_at=stage, save=save) == -signal.SIGKILL
        for path in runs.folder.glob("*.ckpt"):
            read_checkpoint(path)
    runs.assert_goes_on(expected)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupted_it_ends_at_once_and_goes_on(
    runs: Runs, expected: dict[str, Any], number: signal.Signals, code: int
) -> None:
    process = runs.send(number, after=2, pause=0.3)
    assert runs.code(process, seconds=5) == code and 2 <= runs.epochs() < EPOCHS
    read_checkpoint(runs.folder / "last.ckpt")
    runs.assert_goes_on(expected)
