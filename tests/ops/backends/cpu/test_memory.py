import gc
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from graphtheory.ops.backends.cpu import memory

LIKE = torch.empty(0)
PAGE = 2**21


@pytest.fixture(autouse=True)
def rooms(monkeypatch: pytest.MonkeyPatch) -> Iterator[memory.Rooms]:
    monkeypatch.setattr(memory, "_rooms", memory.Rooms())
    yield memory._rooms


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_large_outputs_begin_a_large_page_and_are_whole(dtype: torch.dtype) -> None:
    out = memory.empty((1000, 3, 333), LIKE.to(dtype))
    assert (out.shape, out.dtype, out.is_contiguous()) == ((1000, 3, 333), dtype, True)
    assert out.data_ptr() % PAGE == 0
    out.fill_(2)
    assert out.sum() == 2 * 1000 * 3 * 333


def test_small_outputs_are_torchs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory.Rooms, "lend", lambda *given: pytest.fail(f"lent {given}"))
    assert memory.empty((2**18 - 1,), LIKE).shape == (2**18 - 1,)
    assert memory.empty((0, 4), LIKE).shape == (0, 4)


def test_freed_memory_is_used_again_and_memory_in_use_is_not(rooms: memory.Rooms) -> None:
    first = memory.empty((2**19,), LIKE)
    place = first.data_ptr()
    second = memory.empty((2**19,), LIKE)
    assert second.data_ptr() != place
    part = first[5:]  # a view keeps it in use
    del first
    gc.collect()
    assert rooms.free == []
    del part
    gc.collect()
    assert len(rooms.free) == 1
    assert memory.empty((2**19 - 7,), LIKE).data_ptr() == place  # as many pages


def test_a_freed_room_serves_an_output_that_is_a_little_smaller(rooms: memory.Rooms) -> None:
    rooms.put_back(np.empty(8 * PAGE, np.uint8))
    assert rooms.take(6 * PAGE).size == 6 * PAGE  # a third more would be idle
    assert rooms.take(8 * PAGE + 1).size > 8 * PAGE
    assert len(rooms.free) == 1
    assert rooms.take(7 * PAGE).size == 8 * PAGE
    assert rooms.free == []


def test_a_last_page_that_would_be_idle_for_its_most_part_is_small(rooms: memory.Rooms) -> None:
    for size, room in (
        (PAGE, PAGE), (PAGE + 1, PAGE + 2**16), (PAGE + 2**16, PAGE + 2**16),
        (PAGE + PAGE // 2 - 1, PAGE + PAGE // 2), (PAGE + PAGE // 2, 2 * PAGE),
        (2 * PAGE - 5, 2 * PAGE),
    ):  # fmt: skip
        assert rooms.take(size).size == room


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="needs Linux's /proc")
def test_a_room_takes_no_more_memory_than_it_says(rooms: memory.Rooms) -> None:
    def resident() -> int:
        lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith("Rss:"))

    before = resident()
    many = [memory.empty((PAGE // 4 * 2 + 2**14,), LIKE).fill_(1) for _ in range(16)]
    grown = resident() - before
    assert all(bool((t == 1).all()) for t in many)
    assert grown < 16 * (2 * PAGE + PAGE // 4)


def test_memory_where_the_system_cannot_be_asked_for_largememory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(memory.mmap, "MADV_HUGEPAGE", raising=False)
    out = memory.empty((2**20 + 1,), LIKE)
    assert out.fill_(2).sum() == 2 * (2**20 + 1)
    assert out.data_ptr() % PAGE == 0


def test_no_more_is_kept_than_the_limit(
    rooms: memory.Rooms, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "_KEPT", 2**26)
    many = [memory.empty((2**20,), LIKE) for _ in range(30)]  # 4 MiB and a page each
    del many
    gc.collect()
    assert 2**25 < sum(room.size for room in rooms.free) <= 2**26


def test_a_room_that_moved_while_it_was_chosen_is_not_taken(rooms: memory.Rooms) -> None:
    class Moving(list):
        def pop(self, place: int) -> np.ndarray:  # what another thread may do just before
            self.insert(0, np.empty(3 * PAGE, np.uint8))
            return super().pop(place)

    rooms.free = Moving([np.empty(2 * PAGE, np.uint8)])
    assert rooms.take(2 * PAGE - 1).size == 2 * PAGE


def test_threads_never_share_a_room() -> None:
    wrong = []

    def work(number: int) -> None:
        for _ in range(200):
            out = memory.empty((2**18,), LIKE).fill_(number)
            if not bool((out == number).all()):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
