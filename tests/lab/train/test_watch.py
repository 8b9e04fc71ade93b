import io
import mmap
import random
import sys
from collections.abc import Iterator
from contextlib import suppress

import numpy as np
import pytest
import torch
from rich.console import Console
from torch_geometric.data import Data

from graphtheory.lab.train import Evaluation, FitResult, FullGraph, NodeBatch, NodeTask, fit
from graphtheory.lab.train import watch as module
from graphtheory.lab.train.watch import PeakMemory, borrowed_randomness, seed_all
from graphtheory.patterns.draw import derive
from tests.lab.train.conftest import new_task


class Scripted(NodeTask):
    """Claims given validation losses and scores, one after the other."""

    script: Iterator[tuple[float, float]]

    def evaluate(self, batch: NodeBatch) -> Evaluation:
        loss, score = next(self.script)
        self.seen = {**getattr(self, "seen", {}), score: self.state_dict()["model.linear.bias"] + 0}
        return Evaluation(loss, score, test=1 - score)


def run(data: Data, task: NodeTask, script: list[tuple[float, float]], patience: int) -> FitResult:
    task.__class__ = Scripted
    task.script = iter(script)
    return fit(task, FullGraph(data), epochs=len(script), patience=patience, progress=False)


def test_the_best_epoch_is_reported_and_its_parameters_stay(data: Data) -> None:
    script, task = [(1.0, 0.3), (0.9, 0.6), (0.1, 0.5), (0.1, 0.4)], new_task(lr=0.1)
    result = run(data, task, script, patience=10)
    assert (result.best_epoch, result.epochs, result.val, result.test) == (2, 4, 0.6, 0.4)
    assert [row["epoch"] for row in result.history] == [1, 2, 3, 4]
    assert [row["val"] for row in result.history] == [0.3, 0.6, 0.5, 0.4]
    now = task.model.linear.bias
    assert torch.equal(now, task.seen[0.6]) and not torch.equal(now, task.seen[0.4])
    assert not task.training


def test_of_equal_scores_the_lower_loss_is_better(data: Data) -> None:
    script = [(1.0, 0.5), (0.8, 0.5), (0.9, 0.5), (0.8, 0.5)]
    assert run(data, new_task(), script, patience=10).best_epoch == 2


@pytest.mark.parametrize(("patience", "epochs"), [(1, 3), (2, 4), (3, 6)])
def test_patience_counts_epochs_without_a_better_one(
    data: Data, patience: int, epochs: int
) -> None:
    script = [(1.0, 0.1), (1.0, 0.5), (1.0, 0.4), (1.0, 0.4), (0.9, 0.5), (1.0, 0.4)]
    assert run(data, new_task(), script, patience).epochs == epochs


def test_test_labels_decide_nothing(data: Data) -> None:
    first = fit(new_task(), FullGraph(data), epochs=20, patience=3, progress=False)
    data.y[data.test_mask] = (data.y[data.test_mask] + 1) % 3
    second = fit(new_task(), FullGraph(data), epochs=20, patience=3, progress=False)
    assert (first.best_epoch, first.epochs, first.val) == (
        second.best_epoch, second.epochs, second.val,
    )  # fmt: skip
    assert first.test != second.test


def test_a_graph_without_test_nodes_has_no_test_score(data: Data) -> None:
    del data.test_mask
    result = fit(new_task(), FullGraph(data), epochs=2, progress=False)
    assert result.test is None and "test" not in result.history[0]


def draws() -> list[float]:
    return [float(torch.rand(())), np.random.rand(), random.random()]  # noqa: NPY002


def test_a_seed_fixes_what_all_three_draw() -> None:
    seeds = {derive(a, b, c) for a in range(10) for b in range(10) for c in range(10)}
    assert len(seeds) == 1000 and all(0 <= seed < 2**63 for seed in seeds)
    assert derive(1) != derive(1, 0)
    with borrowed_randomness():
        seed_all(derive(3, 4))
        first = draws()
        seed_all(derive(3, 4))
        assert draws() == first
        seed_all(derive(3, 5))
        assert all(a != b for a, b in zip(draws(), first, strict=True))


@pytest.mark.parametrize("fails", [False, True])
def test_the_callers_random_state_comes_back(fails: bool) -> None:
    seed_all(1)
    expected = draws()
    seed_all(1)
    with suppress(KeyError), borrowed_randomness():
        seed_all(7)
        draws()
        if fails:
            raise KeyError
    assert draws() == expected


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
def test_what_came_before_does_not_count_but_before_an_interruption_does() -> None:
    block = torch.ones(200_000_000, dtype=torch.uint8)
    del block
    memory, resumed = PeakMemory(), PeakMemory()
    resumed.megabytes = 1e9
    for each in (memory, resumed):
        each.start()
        each.update()
    assert memory.megabytes < 50 and resumed.megabytes == 1e9


def test_a_log_gets_a_line_now_and_then_and_of_the_end(
    data: Data, capfd: pytest.CaptureFixture[str]
) -> None:
    result = fit(new_task(), FullGraph(data), epochs=40, patience=40, progress=True)
    out, err = capfd.readouterr()
    lines = err.splitlines()
    assert out == "" and len(lines) == 10
    assert lines[0].startswith("epoch 4/40  loss ") and lines[-1].startswith("epoch 40/40  loss ")
    assert lines[-1].endswith(f"best {result.val:.4f}")
    result = fit(new_task(lr=0.5), FullGraph(data), epochs=1000, patience=1, progress=True)
    assert f"epoch {result.epochs}/1000" in capfd.readouterr().err


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=True, width=120)
    monkeypatch.setattr(module, "Console", lambda stderr: console)
    return shown


def test_a_terminal_gets_one_moving_line(data: Data, screen: io.StringIO) -> None:
    fit(new_task(), FullGraph(data), epochs=5, progress=True)
    shown = screen.getvalue()
    assert "5/5" in shown and "best 0." in shown
    assert shown.count("\n") == 1  # the rest moves the cursor back


def test_a_terminal_is_left_in_order_after_an_error(data: Data, screen: io.StringIO) -> None:
    with pytest.raises(FloatingPointError, match=r"epoch \d: .*a finite loss.*lr=1e\+37"):
        fit(new_task(lr=1e37), FullGraph(data), epochs=20)
    assert screen.getvalue().rindex("\x1b[?25h") > screen.getvalue().rindex("\x1b[?25l")


def test_a_listener_gets_every_epoch_and_no_test_score(
    data: Data, capfd: pytest.CaptureFixture[str]
) -> None:
    heard: list[dict[str, float]] = []
    result = fit(new_task(), FullGraph(data), epochs=3, progress=heard.append)
    without = [{k: v for k, v in row.items() if k != "test"} for row in result.history]
    assert heard == without and "test" in result.history[0]
    fit(new_task(), FullGraph(data), epochs=3, progress=False)
    assert capfd.readouterr() == ("", "")


def test_every_fit_of_a_block_tells_its_epochs(data: Data) -> None:
    heard: list[tuple[int, int, str]] = []
    with module.report_epochs(lambda *at: heard.append(at)):
        for progress in (False, lambda row: None):
            fit(new_task(), FullGraph(data), epochs=2, progress=progress)
    fit(new_task(), FullGraph(data), epochs=2, progress=False)
    assert heard == [(1, 2, "epoch"), (2, 2, "epoch")] * 2


def test_a_line_says_how_long_the_rest_takes(
    data: Data,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = iter(range(0, 1000, 10))  # ten seconds an epoch
    monkeypatch.setattr(module.time, "monotonic", lambda: next(clock))
    fit(new_task(), FullGraph(data), epochs=4, progress=True)
    lines = capfd.readouterr().err.splitlines()
    assert [line.endswith("s left") for line in lines] == [True, True, True, False]
    assert lines[1].endswith("at most 20 s left")
