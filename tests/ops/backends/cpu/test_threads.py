import os
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path

import pytest
import torch

from graphtheory.ops.backends.cpu.launch import Helpers
from graphtheory.ops.backends.cpu.openmp import Team

needs_openmp = pytest.mark.skipif(
    not Team().takes(torch.get_num_threads()), reason="torch has no threads of OpenMP"
)


def test_helpers_work_until_all_is_done_and_keep_nothing() -> None:
    class Job:
        def __call__(self) -> None:
            seen.append(threading.get_ident())
            done.release()

    helpers, done, seen = Helpers(), threading.Semaphore(0), list[int]()
    job = Job()
    for _ in range(3):
        helpers.ask(job, 2)
    assert all(done.acquire(timeout=10) for _ in range(6))
    assert 1 <= len(set(seen)) <= 2 and threading.get_ident() not in seen
    gone = weakref.ref(job)
    del job
    for _ in range(100):
        if gone() is None:
            break
        time.sleep(0.01)
    assert gone() is None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_has_helpers_of_its_own() -> None:
    helpers = Helpers()
    done = threading.Semaphore(0)
    helpers.ask(done.release, 1)
    assert done.acquire(timeout=10)
    child = os.fork()
    if child == 0:
        helpers.ask(done.release, 1)
        os._exit(0 if done.acquire(timeout=10) else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_the_process_ends_after_its_helpers(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import time\n"
        "from graphtheory.ops.backends.cpu.launch import helpers\n"
        "def job():\n"
        "    time.sleep(0.3)\n"
        "    print('ended', flush=True)\n"
        "helpers.ask(job, 2)\n"
    )
    found = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, check=False, timeout=60
    )
    assert (found.returncode, found.stdout.count("ended")) == (0, 2), found.stderr


@needs_openmp
def test_torchs_threads_take_part_and_are_the_same_each_time() -> None:
    team, both = Team(), threading.Barrier(2, timeout=10)

    def seen() -> set[int]:
        ids: list[int] = []

        def job() -> None:
            both.wait()  # so that neither thread does both parts
            ids.append(threading.get_native_id())

        team.run(job, 2)
        assert len(ids) == 2
        return set(ids)

    first = seen()
    torch.randn(1000, 1000) @ torch.randn(1000, 1000)
    assert threading.get_native_id() in first and seen() == first


@needs_openmp
def test_torchs_threads_are_taken_all_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    assert [Team().takes(threads) for threads in (2, 3, 4)] == [False, True, False]


@needs_openmp
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_leaves_torchs_threads_alone() -> None:
    team = Team()
    team.run(lambda: None, 2)
    child = os.fork()
    if child == 0:
        os._exit(int(team.takes(torch.get_num_threads())))
    assert os.waitpid(child, 0)[1] == 0
