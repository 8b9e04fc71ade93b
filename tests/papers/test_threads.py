import sys
import threading
import time
from collections.abc import Iterator

import pytest
import torch

from graphtheory.lab.signals import insistent_signals
from graphtheory.papers.grid import map_on_threads


@pytest.fixture(params=[1, 2])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def test_results_keep_the_order_of_items_that_run_on_torchs_threads(threads: int) -> None:
    def work(item: int) -> tuple[int, int]:
        time.sleep(0.02 * (3 - item))
        return item, torch.get_num_threads()

    assert map_on_threads(work, range(3)) == [(0, 1), (1, 1), (2, 1)]
    assert torch.get_num_threads() == threads
    assert map_on_threads(work, []) == []
    meet = threading.Barrier(threads)
    assert (
        map_on_threads(lambda item: meet.wait(5) >= 0, range(2 * threads)) == [True] * 2 * threads
    )


def test_an_error_ends_what_is_under_way() -> None:
    ended = []

    def work(item: int) -> None:
        if item == 0:
            time.sleep(0.05)
            raise KeyError("first")
        try:
            while True:
                time.sleep(0.01)
        finally:
            ended.append(item)

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with pytest.raises(KeyError, match="first"):
            map_on_threads(work, range(4))
        assert 1 in ended and 3 not in ended and torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_the_first_error_ends_an_earlier_item_and_survives_a_finalizer() -> None:
    class Slow:
        def __del__(self) -> None:
            start = time.monotonic()
            while time.monotonic() - start < 0.3:
                pass

    begun = []

    def work(item: int) -> None:
        begun.append(item)
        if item == 1:
            time.sleep(0.1)
            raise ValueError("of item 1")
        Slow()
        while True:
            time.sleep(0.01)

    before, start = torch.get_num_threads(), time.monotonic()
    hook, ignored = sys.unraisablehook, list[object]()
    torch.set_num_threads(2)
    sys.unraisablehook = lambda report: ignored.append(report.exc_type)
    try:
        with pytest.raises(ValueError, match="of item 1"), insistent_signals():
            map_on_threads(work, range(9))
    finally:
        torch.set_num_threads(before)
        sys.unraisablehook = hook
    assert time.monotonic() - start < 5 and set(begun) <= {0, 1, 2}
    assert set(ignored) <= {KeyboardInterrupt}
