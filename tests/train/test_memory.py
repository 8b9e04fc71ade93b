import sys

import pytest
import torch

from graphtheory.train.memory import PeakMemory

on_cpu_linux = pytest.mark.skipif(
    torch.cuda.is_available() or not sys.platform.startswith("linux"),
    reason="reads the resident memory of a Linux process that trains on the CPU",
)


@on_cpu_linux
def test_a_block_that_was_freed_counts() -> None:
    found = []
    for _ in range(3):  # the system may take idle pages from the process in between
        memory = PeakMemory()
        memory.start()
        block = torch.ones(50_000_000, dtype=torch.uint8)
        del block
        memory.update()
        found.append(memory.megabytes)
    assert any(45 < megabytes < 80 for megabytes in found), found


@on_cpu_linux
def test_what_came_before_does_not_count() -> None:
    block = torch.ones(200_000_000, dtype=torch.uint8)
    del block
    memory = PeakMemory()
    memory.start()
    memory.update()
    assert memory.megabytes < 50


@on_cpu_linux
def test_the_peak_before_an_interruption_counts() -> None:
    memory = PeakMemory()
    memory.megabytes = 1e9
    memory.start()
    memory.update()
    assert memory.megabytes == 1e9
