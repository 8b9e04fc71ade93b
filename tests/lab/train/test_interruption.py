"""Runs that are killed, interrupted and resumed, each in a process of its own."""

import multiprocessing
import os
import signal
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from battery.child import EPOCHS, STAGES, Orders, run
from battery.jobs import run_facts
from graphtheory.lab.train import read_checkpoint

pytestmark = pytest.mark.skipif(os.name != "posix", reason="kills processes by POSIX signals")
SECONDS = 60  # after which a process hangs


def serve(channel: Connection) -> None:
    """Fork a run for each order, so that what takes seconds to import is imported once."""
    while True:
        orders = channel.recv()
        if pid := os.fork():
            channel.send(pid)
            channel.send(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
            continue
        code: Any = 1
        try:
            code = run(orders) or 0
        except KeyboardInterrupt:
            code = 130
        except SystemExit as ending:
            code = ending.code
        finally:
            os._exit(code)


@pytest.fixture(scope="module")
def server() -> Iterator[Connection]:
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(theirs,))
    process.start()
    yield ours
    process.kill()
    process.join()


class Runs:
    """Runs in one folder."""

    def __init__(self, server: Connection, home: Path) -> None:
        self.server, self.folder, self.flag = server, home / "run", home / "flag"

    def start(self, **orders: Any) -> int:
        self.flag.write_bytes(b"\0")
        self.server.send(Orders(str(self.folder), str(self.flag), **orders))
        return self.server.recv()

    def code(self, seconds: float = SECONDS) -> int:
        assert self.server.poll(seconds), "the run hangs"
        return self.server.recv()

    def finish(self, **orders: Any) -> int:
        self.start(**orders)
        return self.code()

    def epochs(self) -> int:
        log = self.folder / "history.csv"
        return max(len(log.read_text().splitlines()) - 1, 0) if log.exists() else 0

    def send(self, number: signal.Signals, *, after: int, pause: float) -> None:
        """Send a signal to a run that has written so many epochs."""
        pid, deadline = self.start(pause=pause), time.monotonic() + SECONDS
        while self.epochs() < after:
            assert time.monotonic() < deadline, f"{after} epochs not reached"
            time.sleep(0.005)
        os.kill(pid, number)

    def assert_goes_on(self, expected: dict[str, Any]) -> None:
        assert self.finish() == 0
        assert run_facts(self.folder) == expected and len(expected["history"]) == EPOCHS + 1
        assert not list(self.folder.glob(".*.draft"))


@pytest.fixture
def runs(server: Connection, tmp_path: Path) -> Runs:
    return Runs(server, tmp_path)


@pytest.fixture(scope="module")
def expected(server: Connection, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    runs = Runs(server, tmp_path_factory.mktemp("uninterrupted"))
    assert runs.finish() == 0
    return run_facts(runs.folder)


def test_killed_at_any_time_it_goes_on(runs: Runs, expected: dict[str, Any]) -> None:
    for epochs in (1, 2, 4):
        runs.send(signal.SIGKILL, after=epochs, pause=0.1)
        assert runs.code() == -signal.SIGKILL
        read_checkpoint(runs.folder / "last.ckpt")
    runs.assert_goes_on(expected)


@pytest.mark.parametrize("stage", STAGES)
def test_killed_while_it_writes_it_goes_on(
    runs: Runs, expected: dict[str, Any], stage: str
) -> None:
    for save in (1, 2):  # the best epoch, the last one
        assert runs.finish(die_at=stage, save=save) == -signal.SIGKILL
        for path in runs.folder.glob("*.ckpt"):
            read_checkpoint(path)
    runs.assert_goes_on(expected)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupted_it_ends_at_once_and_goes_on(
    runs: Runs, expected: dict[str, Any], number: signal.Signals, code: int
) -> None:
    runs.send(number, after=2, pause=0.3)
    assert runs.code(seconds=5) == code and 2 <= runs.epochs() < EPOCHS
    read_checkpoint(runs.folder / "last.ckpt")
    runs.assert_goes_on(expected)
