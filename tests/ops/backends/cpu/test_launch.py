"""Threads around compiled loops: every chunk once, forks that live, errors that come out."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from graphtheory import Neighborhood, ops
from graphtheory.ops.backends.cpu import launch, primitives
from graphtheory.ops.backends.cpu.launch import next_chunk, take_chunk
from tests.conformance.check import GRAPHS, draw_inputs

MUCH = 10 * launch.WORTH_A_THREAD


@pytest.fixture(params=[True, False], ids=["torch's threads", "plain threads"], autouse=True)
def of_torch(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Both kinds of threads in turn, those of torch from the first call on."""
    monkeypatch.setattr(launch, "_ready", mock.MagicMock(__contains__=lambda *_: True))
    if not request.param:
        monkeypatch.setattr(launch.team, "_region", None)
    return bool(request.param)


@pytest.fixture
def threads_pay(two_threads: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two threads, and loops that take both however small they are."""
    monkeypatch.setattr(launch, "WORTH_A_THREAD", 1)
    monkeypatch.setattr(launch, "_CHUNK", 64)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[int, int]]]:
    """What a loop is given: (chunk, thread); nothing is compiled but the counters."""
    calls: list[tuple[int, int]] = []

    def loop(counters: np.ndarray, chunks: int) -> None:
        chunk = take_chunk(counters)
        while chunk < chunks:
            calls.append((chunk, threading.get_ident()))
            time.sleep(0.002)  # long enough for the other thread to take its share
            chunk = next_chunk(counters)

    monkeypatch.setattr(launch, "_compiled", lambda _: loop)
    yield calls


@pytest.mark.parametrize("chunks", [0, 1, 3, 128])
@pytest.mark.parametrize("count", [1, 2, 5])
def test_every_chunk_is_done_once(chunks, count, seen, two_threads) -> None:
    torch.set_num_threads(count)
    launch.launch(print, chunks, MUCH, chunks)
    assert sorted(chunk for chunk, _ in seen) == list(range(chunks))


def test_little_work_stays_in_the_calling_thread_and_much_is_shared(seen, two_threads) -> None:
    launch.launch(print, 16, launch.WORTH_A_THREAD - 1, 16)
    assert seen == [(chunk, threading.get_ident()) for chunk in range(16)]
    seen.clear()
    launch.launch(print, 128, MUCH, 128)
    assert len({thread for _, thread in seen}) == 2
    assert threading.get_ident() in {thread for _, thread in seen}


@pytest.mark.parametrize(("threads", "chunks", "worth", "others"), [
    (8, 128, 1, 1), (8, 128, 3, 3), (8, 128, 100, 7), (8, 5, 100, 4), (2, 128, 100, 1),
])  # fmt: skip
def test_as_many_threads_help_as_the_work_pays_for(
    threads, chunks, worth, others, seen, two_threads, monkeypatch
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(launch.team, "run", lambda job, of: (asked.append(of - 1), job()))
    monkeypatch.setattr(launch.helpers, "ask", lambda job, threads: asked.append(threads))
    torch.set_num_threads(threads)
    for work in (worth * launch.WORTH_A_THREAD, (worth + 1) * launch.WORTH_A_THREAD - 1):
        launch.launch(print, chunks, work, chunks)
    assert asked == [others, others]


def test_a_call_waits_for_the_chunks_of_others(monkeypatch, two_threads) -> None:
    done: list[int] = []

    def loop(counters: np.ndarray, chunks: int) -> None:
        chunk = take_chunk(counters)
        while chunk < chunks:
            time.sleep(0.3 if threading.get_ident() != caller else 0.01)
            done.append(chunk)
            chunk = next_chunk(counters)

    caller = threading.get_ident()
    monkeypatch.setattr(launch, "_compiled", lambda _: loop)
    monkeypatch.setattr(launch, "_PATIENCE", 1)
    launch.launch(print, 8, MUCH, 8)
    assert sorted(done) == list(range(8))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("of_caller", [True, False])
def test_an_error_in_a_thread_comes_out(of_caller, of_torch, monkeypatch, two_threads) -> None:
    caller = threading.get_ident()

    def fail(counters: np.ndarray) -> None:
        if (threading.get_ident() == caller) == of_caller:
            raise MemoryError(f"chunk {take_chunk(counters)}")
        time.sleep(0.05)

    monkeypatch.setattr(launch, "_compiled", lambda _: fail)
    error, said = (RuntimeError, "ended early") if of_torch else (MemoryError, "chunk")
    with pytest.raises(error, match=said):
        launch.launch(fail, 8, MUCH)


def test_the_first_call_of_a_kind_goes_to_plain_threads(seen, of_torch, two_threads, monkeypatch):
    taken: list[int] = []
    run = launch.team.run
    monkeypatch.setattr(launch, "_ready", set())
    monkeypatch.setattr(launch.team, "run", lambda job, of: (taken.append(of), run(job, of)))
    for number, asked in ((8, 0), (8, 1), (np.float32(8), 1), (np.float32(8), 2)):
        launch.launch(print, 8, MUCH, number)
        assert len(taken) == asked * of_torch
    assert len(seen) == 4 * 8


def test_every_interrupt_comes_out(threads_pay: None) -> None:
    nb, caught = GRAPHS["random"](300), 0
    attend(nb)
    for turn in range(40):
        late = threading.Timer(0.001 * (turn % 8), os.kill, (os.getpid(), signal.SIGINT))
        try:
            late.start()
            while late.is_alive():
                attend(nb)
            time.sleep(0.01)
        except KeyboardInterrupt:
            caught += 1
        late.join()
    assert caught >= 38  # one that comes within a finalizer is lost


def test_a_second_call_starts_no_thread(threads_pay: None, monkeypatch: pytest.MonkeyPatch) -> None:
    attend(GRAPHS["random"](300))
    monkeypatch.setattr(launch, "start_new_thread", None)
    attend(GRAPHS["random"](300))


def attend(nb: Neighborhood) -> Tensor:
    inputs = draw_inputs(nb, 4, 32)
    out = ops.attention(inputs.query, inputs.key, inputs.value, nb, backend="numba_csr")
    grads = torch.autograd.grad(out, (inputs.query, inputs.key, inputs.value), inputs.grad)
    return torch.cat([out.detach(), *grads])


def attend_in_worker(_: int) -> Tensor:
    assert torch.utils.data.get_worker_info() is not None
    return attend(GRAPHS["random"](300))


def test_workers_attend_after_their_parent_did_on_threads(threads_pay: None) -> None:
    here = attend(GRAPHS["random"](300))  # on two threads, before the fork
    loader = DataLoader(
        range(4), batch_size=None, num_workers=2, multiprocessing_context="fork", timeout=60,
        collate_fn=attend_in_worker,
    )  # fmt: skip
    for there in loader:
        assert torch.equal(there, here)
    assert torch.equal(attend(GRAPHS["random"](300)), here)  # and the parent goes on


def test_a_forked_child_runs_loops_on_threads_of_its_own(threads_pay: None) -> None:
    # Loops alone: torch's own parallel operations do not survive a fork.
    query, key = torch.rand(300, 4, 32), torch.rand(300, 4, 32)
    nb = GRAPHS["random"](300)
    here = primitives.edge_dot(nb.indptr, nb.indices, query, key).numpy()
    child = os.fork()
    if child == 0:
        there = primitives.edge_dot(nb.indptr, nb.indices, query, key).numpy()
        os._exit(0 if np.array_equal(there, here) else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_calls_from_several_threads_do_not_disturb_each_other(threads_pay: None) -> None:
    graphs = [GRAPHS["random"](n) for n in (200, 250, 300)]
    alone = [attend(nb) for nb in graphs]
    with ThreadPoolExecutor(3) as callers:
        assert all(map(torch.equal, callers.map(attend, graphs), alone))
