"""How threads of OpenMP wait: awake on an idle machine, asleep on a busy one."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from graphtheory.ops.backends.cpu import openmp
from graphtheory.ops.backends.cpu.openmp import Rest

works = pytest.mark.skipif(Rest()._region is None, reason="torch's OpenMP library is not GNU's")
CORES = 4


def held_at(
    monkeypatch: pytest.MonkeyPatch, looks: Sequence[tuple[float, int]], threads: int
) -> list[int]:
    """How many threads a rest holds after looks at these seconds and counts of lost cores."""
    rest, held = Rest(), []
    monkeypatch.setattr(openmp, "start_new_thread", lambda *_: None)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    rest._cores = CORES
    for now, lost in looks:
        monkeypatch.setattr(openmp, "perf_counter", lambda now=now: now)
        counts = SimpleNamespace(ru_nivcsw=lost)
        monkeypatch.setattr(openmp, "getrusage", lambda _, counts=counts: counts)
        rest.look()
        held.append(rest.held)
    return held


IDLE = [(10.0, 50), (10.3, 51), (10.6, 53), (12, 60)]
BUSY = [(10.0, 50), (10.3, 90), (10.4, 90), (10.8, 91), (11.2, 91), (11.5, 91), (12, 140)]
TABLE = {
    "idle": (IDLE, 4, [0] * 4),
    "busy until 10.3, which is found at once and forgotten after a second": (
        BUSY, 4, [0, 2, 2, 2, 2, 0, 2],
    ),
    "fewer threads than cores: more are missing": (BUSY[:2], 2, [0, 4]),
    "one thread waits for none": (BUSY[:2], 1, [0, 0]),
    "the library knows that there are too many": (BUSY[:2], 7, [0, 0]),
}  # fmt: skip


@works
@pytest.mark.parametrize("name", TABLE)
def test_a_rest_begins_and_ends_with_what_the_system_takes(name, monkeypatch) -> None:
    looks, threads, expected = TABLE[name]
    assert held_at(monkeypatch, looks, threads) == expected


@works
def test_the_table_notices_a_rest_that_looks_at_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openmp, "_BUSY", (1e9, 0))
    assert held_at(monkeypatch, BUSY, 4) == [0] * len(BUSY)


@pytest.mark.parametrize("name", openmp._CHOSEN)
def test_what_users_set_stays(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "1000")
    rest = Rest()
    assert rest._region is None and name in str(rest)
    rest.look()
    assert rest.held == 0


MEASURED = """
import sys, time, torch
from graphtheory.ops.backends.cpu.openmp import rest
torch.set_num_threads(2)
x = torch.randn(200_000)

def waited():
    found = []
    for _ in range(5):
        x.add(1)
        start = time.process_time()
        time.sleep(0.02)
        found.append(time.process_time() - start)
    return sorted(found)[2]

def waits_until(right):
    # A busy machine begins and ends the thread that holds the others in its own time.
    for _ in range(100):
        found = waited()
        if right(found):
            break
    return found

awake = waits_until(lambda found: found > 0.001)  # of some milliseconds
rest._hold(max(rest._cores, 2))
asleep = waits_until(lambda found: found < awake / 4)
rest._hold(0)
print(awake, asleep, waits_until(lambda found: found > 4 * asleep))
"""


@works
def test_threads_that_wait_take_no_processor_time_in_a_rest(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(MEASURED)
    environment = {k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"}
    command = [sys.executable, str(tmp_path / "script.py")]
    found = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    before, within, after = map(float, found.stdout.split())
    assert within < before / 4 and within < after / 4


@works
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_begins_without_a_rest() -> None:
    rest = Rest()
    rest._hold(2)
    child = os.fork()
    if child == 0:
        os._exit(rest.held)
    rest._hold(0)
    assert os.waitpid(child, 0)[1] == 0
