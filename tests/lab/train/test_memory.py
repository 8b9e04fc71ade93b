import mmap
import sys

import pytest
import torch

from graphtheory.lab.train.watch import PeakMemory

on_cpu_linux = pytest.mark.skipif(
    torch.cuda.is_available() or not sys.platform.startswith("linux"),
    reason="reads the resident memory of a Linux process that trains on the CPU",
)


@on_cpu_linux
def test_a_block_that_was_freed_counts() -> None:
    memory = PeakMemory()
    memory.start()
    with mmap.mmap(-1, 50_000_000) as block:  # pages of its own, whatever malloc has in store
        for page in range(0, len(block), 4096):
            block[page] = 1
    memory.update()
    assert 45 < memory.megabytes < 80


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
