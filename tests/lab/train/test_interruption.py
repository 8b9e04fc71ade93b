"""Runs that are killed, interrupted and resumed, each in a process of its own."""

import multiprocessing
import os
import signal
import sys
import time
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest

from battery.child import EPOCHS, STAGES, Orders, run
from battery.jobs import run_facts
from graphtheory.lab.train import read_checkpoint

pytestmark = pytest.mark.skipif(os.name != "posix", reason="kills processes by POSIX signals")


def train(orders: Orders) -> None:
    try:
        run(orders)
    except KeyboardInterrupt:
        sys.exit(130)


def start(folder: Path, **orders: Any) -> BaseProcess:
    flag = folder.parent / "flag"
    flag.write_bytes(b"\0")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])  # imported once, not by every process
    process = context.Process(target=train, args=(Orders(str(folder), str(flag), **orders),))
    process.start()
    return process


def finish(folder: Path, **orders: Any) -> int | None:
    process = start(folder, **orders)
    process.join(timeout=60)
    return process.exitcode


def wait_for_epochs(folder: Path, count: int) -> None:
    log, deadline = folder / "history.csv", time.monotonic() + 60
    while not log.exists() or len(log.read_text().splitlines()) <= count:
        assert time.monotonic() < deadline, f"{count} epochs not reached"
        time.sleep(0.005)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("uninterrupted") / "run"
    assert finish(folder) == 0
    return run_facts(folder)


def assert_goes_on(folder: Path, expected: dict[str, Any]) -> None:
    assert finish(folder) == 0
    assert run_facts(folder) == expected and len(expected["history"]) == EPOCHS + 1
    assert not list(folder.glob(".*.draft"))


def test_killed_at_any_time_it_goes_on(tmp_path: Path, expected: dict[str, Any]) -> None:
    folder = tmp_path / "run"
    for epochs in (1, 2, 4):
        process = start(folder, pause=0.2)
        wait_for_epochs(folder, epochs)
        process.kill()
        process.join()
        assert process.exitcode == -signal.SIGKILL
        read_checkpoint(folder / "last.ckpt")
    assert_goes_on(folder, expected)


@pytest.mark.parametrize("stage", STAGES)
def test_killed_while_it_writes_it_goes_on(
    tmp_path: Path, expected: dict[str, Any], stage: str
) -> None:
    folder = tmp_path / "run"
    for save in (1, 2):  # the best epoch, the last one
        assert finish(folder, die_at=stage, save=save) == -signal.SIGKILL
        for path in folder.glob("*.ckpt"):
            read_checkpoint(path)
    assert_goes_on(folder, expected)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupted_it_ends_at_once_and_goes_on(
    tmp_path: Path, expected: dict[str, Any], number: signal.Signals, code: int
) -> None:
    folder = tmp_path / "run"
    process = start(folder, pause=0.3)
    wait_for_epochs(folder, 2)
    assert process.pid is not None
    os.kill(process.pid, number)
    process.join(timeout=5)
    assert process.exitcode == code
    assert 2 <= len((folder / "history.csv").read_text().splitlines()) - 1 < EPOCHS
    read_checkpoint(folder / "last.ckpt")
    assert_goes_on(folder, expected)
