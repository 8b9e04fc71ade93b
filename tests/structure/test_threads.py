"""Chunks: all of the range once, on as many threads as torch has, errors passed on."""

import threading
import time

import pytest
import torch

from graphtheory.structure._search import for_chunks


@pytest.mark.parametrize(("total", "chunk"), [(0, 4), (1, 4), (8, 4), (9, 4), (100, 1)])
@pytest.mark.parametrize("threads", [1, 3])
def test_every_item_is_visited_once(total, chunk, threads, two_threads):
    torch.set_num_threads(threads)
    visits = [0] * total
    used = set()

    def work(start, stop):
        used.add(threading.get_ident())
        assert 0 < stop - start <= chunk
        for i in range(start, stop):
            visits[i] += 1

    for_chunks(work, total, chunk)
    assert visits == [1] * total
    if threads == 1 and total:
        assert used == {threading.get_ident()}


def test_chunks_run_at_the_same_time(two_threads):
    meeting = threading.Barrier(2, timeout=20)  # one thread alone would wait in vain
    for_chunks(lambda start, stop: meeting.wait(), 2, 1)


@pytest.mark.parametrize("threads", [1, 2])
def test_an_error_in_a_chunk_is_the_callers(threads, two_threads):
    torch.set_num_threads(threads)
    started = []

    def work(start, stop):
        started.append(start)
        if start == 0:
            raise ArithmeticError("chunk 0")
        time.sleep(0.01)  # longer than it takes to hand out all chunks

    with pytest.raises(ArithmeticError, match="chunk 0"):
        for_chunks(work, 300, 1)
    assert len(started) < 300
