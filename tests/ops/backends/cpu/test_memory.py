import gc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch

from graphtheory.ops.backends.cpu import memory

LIKE = torch.empty(0)
PAGE = 2**21


@pytest.fixture(autouse=True)
def pool(monkeypatch: pytest.MonkeyPatch) -> Iterator[memory.BufferPool]:
    monkeypatch.setattr(memory, "_pool", memory.BufferPool())
    yield memory._pool


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_large_outputs_begin_a_large_page_and_are_whole(dtype: torch.dtype) -> None:
    out = memory.empty((1000, 3, 333), LIKE.to(dtype))
    assert (out.shape, out.dtype, out.is_contiguous()) == ((1000, 3, 333), dtype, True)
    assert out.data_ptr() % PAGE == 0
    out.fill_(2)
    assert out.sum() == 2 * 1000 * 3 * 333


def test_small_outputs_are_torchs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory.BufferPool, "lend", lambda *given: pytest.fail(f"lent {given}"))
    assert memory.empty((2**18 - 1,), LIKE).shape == (2**18 - 1,)
    assert memory.empty((0, 4), LIKE).shape == (0, 4)


def test_freed_memory_is_used_again_and_memory_in_use_is_not(pool: memory.BufferPool) -> None:
    first = memory.empty((2**19,), LIKE)
    place = first.data_ptr()
    second = memory.empty((2**19,), LIKE)
    assert second.data_ptr() != place
    part = first[5:]  # a view keeps it in use
    del first
    gc.collect()
    assert pool.free == []
    del part
    gc.collect()
    assert len(pool.free) == 1
    assert memory.empty((2**19 - 7,), LIKE).data_ptr() == place  # as many pages


def test_a_freed_buffer_serves_a_little_less_and_its_last_page_may_be_small(pool) -> None:
    pool.put_back(np.empty(8 * PAGE, np.uint8))
    assert pool.take(6 * PAGE).size == 6 * PAGE  # a third more would be idle
    assert pool.take(8 * PAGE + 1).size > 8 * PAGE and len(pool.free) == 1
    assert pool.take(7 * PAGE).size == 8 * PAGE and pool.free == []
    for size, room in (
        (PAGE, PAGE), (PAGE + 1, PAGE + 2**16), (PAGE + 2**16, PAGE + 2**16),
        (PAGE + PAGE // 2 - 1, PAGE + PAGE // 2), (PAGE + PAGE // 2, 2 * PAGE),
        (2 * PAGE - 5, 2 * PAGE),
    ):  # fmt: skip
        assert pool.take(size).size == room


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="needs Linux's /proc")
def test_a_buffer_takes_no_more_memory_than_it_says(pool: memory.BufferPool) -> None:
    def resident() -> int:
        lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith("Rss:"))

    before = resident()
    many = [memory.empty((PAGE // 4 * 2 + 2**14,), LIKE).fill_(1) for _ in range(16)]
    grown = resident() - before
    assert all(bool((t == 1).all()) for t in many) and grown < 16 * (2 * PAGE + PAGE // 4)


def test_memory_where_the_system_has_no_large_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(memory.mmap, "MADV_HUGEPAGE", raising=False)
    out = memory.empty((2**20 + 1,), LIKE)
    assert out.fill_(2).sum() == 2 * (2**20 + 1) and out.data_ptr() % PAGE == 0


def test_no_more_is_kept_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_KEPT", 2**26)
    many = [memory.empty((2**20,), LIKE) for _ in range(30)]  # 4 MiB and a page each
    del many
    gc.collect()
    assert 2**25 < sum(buffer.size for buffer in memory._pool.free) <= 2**26


def test_a_buffer_that_moved_while_it_was_chosen_is_not_taken(pool: memory.BufferPool) -> None:
    class Moving(list):
        def pop(self, place: int) -> np.ndarray:  # what another thread may do just before
            self.insert(0, np.empty(3 * PAGE, np.uint8))
            return super().pop(place)

    pool.free = Moving([np.empty(2 * PAGE, np.uint8)])
    assert pool.take(2 * PAGE - 1).size == 2 * PAGE


def test_threads_never_share_a_buffer() -> None:
    def whole(number: int) -> bool:
        outs = (memory.empty((2**18,), LIKE).fill_(number) for _ in range(200))
        return all(bool((out == number).all()) for out in outs)

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(whole, range(4))) == [True] * 4
