"""Runs that are killed, interrupted and resumed, each in a process of its own."""

import multiprocessing
import os
import runpy
import signal
import time
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
import torch

from graphtheory.lab.train import read_checkpoint

pytestmark = pytest.mark.skipif(os.name != "posix", reason="kills processes by POSIX signals")

SCRIPT = str(Path(__file__).with_name("run_of_a_process.py"))
EPOCHS = 12


def start(folder: Path, **more: float | str) -> BaseProcess:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["graphtheory.lab.train"])  # imported once, not by every process
    options = {"out_dir": str(folder), "epochs": EPOCHS, "pause": 0.0, "die_at": ""} | more
    given = {"options": options}
    process = context.Process(target=runpy.run_path, args=(SCRIPT, given, "__main__"))
    process.start()
    return process


def finish(folder: Path, **options: float | str) -> int | None:
    process = start(folder, **options)
    process.join(timeout=60)
    return process.exitcode


def lines(folder: Path) -> list[str]:
    log = folder / "history.csv"
    return log.read_text().splitlines() if log.exists() else []


def wait_for_epochs(folder: Path, count: int) -> None:
    deadline = time.monotonic() + 60
    while len(lines(folder)) <= count:
        assert time.monotonic() < deadline, f"{count} epochs not reached: {lines(folder)}"
        time.sleep(0.005)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("uninterrupted")
    assert finish(folder) == 0
    return folder


def assert_same_run(folder: Path, expected: Path) -> None:
    one, other = (read_checkpoint(path / "last.ckpt") for path in (folder, expected))
    assert one["state_dict"].keys() == other["state_dict"].keys()
    assert all(
        torch.equal(one["state_dict"][name], other["state_dict"][name])
        for name in one["state_dict"]
    )
    logs = [[line.rsplit(",", 1)[0] for line in lines(path)] for path in (folder, expected)]
    assert logs[0] == logs[1] and len(logs[0]) == EPOCHS + 1
    best = [read_checkpoint(path / "best.ckpt")["epoch"] for path in (folder, expected)]
    assert best[0] == best[1]
    assert not list(folder.glob(".*.draft"))


def test_killed_at_any_time_it_goes_on(tmp_path: Path, uninterrupted: Path) -> None:
    for epochs in (2, 5, 9):
        process = start(tmp_path, pause=0.02)
        wait_for_epochs(tmp_path, epochs)
        process.kill()
        process.join()
        assert process.exitcode == -signal.SIGKILL
        read_checkpoint(tmp_path / "last.ckpt")
    assert finish(tmp_path) == 0
    assert_same_run(tmp_path, uninterrupted)


@pytest.mark.parametrize("die_at", ["fsync", "replace"])
def test_killed_while_it_writes_it_goes_on(
    tmp_path: Path, uninterrupted: Path, die_at: str
) -> None:
    for call in (3, 4, 7, 8, 9):  # of the best, the last, or the log; content or folder
        assert finish(tmp_path, die_at=die_at, call=call) == -signal.SIGKILL
        for path in tmp_path.glob("*.ckpt"):
            read_checkpoint(path)
    assert finish(tmp_path) == 0
    assert_same_run(tmp_path, uninterrupted)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupted_it_ends_at_once_and_goes_on(
    tmp_path: Path, uninterrupted: Path, number: signal.Signals, code: int
) -> None:
    process = start(tmp_path, pause=0.1)
    wait_for_epochs(tmp_path, 3)
    assert process.pid is not None
    os.kill(process.pid, number)
    process.join(timeout=5)
    assert process.exitcode == code
    assert 3 <= len(lines(tmp_path)) - 1 < EPOCHS
    read_checkpoint(tmp_path / "last.ckpt")
    assert finish(tmp_path) == 0
    assert_same_run(tmp_path, uninterrupted)
