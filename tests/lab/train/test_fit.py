import io
import logging
import mmap
import random
import sys
import warnings
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from itertools import count
from pathlib import Path
from time import process_time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from torch_geometric.data import Data

from graphtheory.lab import progress
from graphtheory.lab.train.checkpoint import read_checkpoint
from graphtheory.lab.train.contract import Evaluation
from graphtheory.lab.train.fit import FitResult, fit, quiet_lightning
from graphtheory.lab.train.nodes import FullGraph, NodeBatch, NodeTask
from graphtheory.lab.train.sampled import SampledGraph, SampledLayers
from graphtheory.lab.train.watch import PeakMemory, borrowed_randomness, seed_all
from graphtheory.patterns import Compose, Sample, UniformNodes
from graphtheory.patterns.draw import derive
from tests.lab.train.conftest import OneLayer, new_task, without_time

module = import_module("graphtheory.lab.train.fit")
MODULES = {
    "full": FullGraph,
    "random pattern": lambda data: FullGraph(data, Sample(5, whole_graph=True)),
    "sampled": lambda data: SampledGraph(data, num_neighbors=[3, 3], batch_size=8),
}


def equal(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[k], other[k]) for k in one)


def test_it_learns(data: Data) -> None:
    before = new_task().evaluate(FullGraph(data).evaluation_batch()).val_loss
    result = fit(new_task(dropout=0.0, lr=0.05), FullGraph(data), epochs=60, progress=False)
    losses = [row["train_loss"] for row in result.history]
    assert losses[-1] < 0.7 * losses[0]
    assert min(row["val_loss"] for row in result.history) < before
    assert result.seconds_per_epoch > 0 and result.peak_mb >= 0


def test_the_caller_keeps_random_state_and_the_seed_decides(data: Data) -> None:
    def run(seed: int) -> list[dict[str, float]]:
        return without_time(fit(new_task(), FullGraph(data), epochs=3, seed=seed, progress=False))

    task, before = new_task(), torch.get_rng_state()
    first = without_time(fit(task, FullGraph(data), epochs=3, progress=False))
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(99)
    assert run(0) == first != run(1)


@pytest.mark.parametrize("module", MODULES.values(), ids=MODULES)
def test_a_run_in_parts_is_the_run_in_one(data: Data, tmp_path: Path, module: Any) -> None:
    if module is MODULES["sampled"]:
        pytest.importorskip("torch_sparse", reason="PyG's sampler needs torch-sparse")

    def run(folder: str, epochs: int, **options: bool) -> FitResult:
        return fit(
            new_task(average=0.9), module(data), epochs=epochs, out_dir=tmp_path / folder,
            progress=False, **options,
        )  # fmt: skip

    whole = run("whole", 7)
    for epochs in (2, 3, 7):
        torch.manual_seed(epochs)  # the state outside does not matter
        parts = run("parts", epochs, resume=True)
    assert without_time(parts) == without_time(whole)
    one, other = (read_checkpoint(tmp_path / name / "last.ckpt") for name in ("whole", "parts"))
    assert equal(one["state_dict"], other["state_dict"])
    states = [c["optimizer_states"][0]["state"] for c in (one, other)]
    assert all(equal(states[0][i], states[1][i]) for i in states[0])
    log = (tmp_path / "parts" / "history.csv").read_text().splitlines()
    assert [line.split(",")[0] for line in log] == ["epoch", *"1234567"]


def test_resuming_a_finished_run_trains_nothing(
    data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"epochs": 50, "patience": 2, "out_dir": tmp_path, "progress": False}
    task = new_task(lr=0.5)
    first = fit(task, FullGraph(data), **options)
    assert first.epochs < 50
    monkeypatch.setattr(NodeTask, "training_step", None)
    again = new_task(lr=0.5)
    assert fit(again, FullGraph(data), resume=True, **options) == first
    assert equal(again.state_dict(), task.state_dict())


@pytest.mark.parametrize(("options", "message"), [
    ({"epochs": 0}, "epochs: got 0, expected 1 or more"),
    ({"patience": 0}, "patience: got 0, expected 1 or more"),
    ({"seed": -1}, "seed: got -1, expected 0 or more"),
    ({"resume": True}, "resume: got True with out_dir=None"),
])  # fmt: skip
def test_refuses(data: Data, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fit(new_task(), FullGraph(data), progress=False, **options)
    with pytest.raises(ValueError, match=r"data.y: \d+ nodes .*expected 0\.\.1"):
        fit(NodeTask(OneLayer(2), num_classes=2), FullGraph(data), progress=False)
    with pytest.raises(TypeError, match="task: got 3, expected one such as NodeTask"):
        fit(3, FullGraph(data))


@pytest.mark.slow  # a measurement: right on a machine that does nothing else
def test_an_epoch_costs_little_more_than_a_bare_one(data: Data) -> None:
    epochs, batch = 100, FullGraph(data).train_batch(0)

    def bare() -> float:
        task, began = new_task(), process_time()
        optimizer = task.configure_optimizers()
        for _ in range(epochs):
            optimizer.zero_grad()
            task.training_step(batch, 0).backward()
            optimizer.step()
            task.evaluate(FullGraph.evaluation_batch(module))
        return process_time() - began

    def fitted() -> float:
        began = process_time()
        fit(new_task(), module, epochs=epochs, patience=epochs, progress=False)
        return process_time() - began

    module = FullGraph(data)
    more = min(fitted() for _ in range(3)) - min(bare() for _ in range(3))
    assert more / epochs < 3e-3


def test_quiet_is_only_inside_and_only_that() -> None:
    logger = logging.getLogger("lightning.pytorch")
    level = logger.level
    old = "`isinstance(treespec, LeafSpec)` is deprecated"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with quiet_lightning():
            assert not logger.isEnabledFor(logging.INFO) and logger.isEnabledFor(logging.WARNING)
            warnings.warn(old, FutureWarning, stacklevel=1)
            with pytest.raises(UserWarning, match="anything else"):
                warnings.warn("anything else", UserWarning, stacklevel=1)
        with pytest.raises(FutureWarning):
            warnings.warn(old, FutureWarning, stacklevel=1)
    assert logger.level == level
    logger.setLevel(logging.CRITICAL)
    with quiet_lightning():  # a level that is quieter still is kept
        assert logger.level == logging.CRITICAL
    logger.setLevel(level)


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


TIES = [(1.0, 0.5), (0.8, 0.5), (0.9, 0.5), (0.8, 0.5)]
WAITS = [(1.0, 0.1), (1.0, 0.5), (1.0, 0.4), (1.0, 0.4), (0.9, 0.5), (1.0, 0.4)]


@pytest.mark.parametrize(
    ("script", "patience", "epochs", "best"),
    [(TIES, 10, 4, 2), (WAITS, 1, 3, 2), (WAITS, 2, 4, 2), (WAITS, 3, 6, 5)],
)
def test_of_equal_scores_the_lower_loss_is_better_and_patience_waits_for_a_better_one(
    data: Data, script: list[tuple[float, float]], patience: int, epochs: int, best: int
) -> None:
    result = run(data, new_task(), script, patience)
    assert (result.epochs, result.best_epoch) == (epochs, best)


def test_of_the_test_nodes_nothing_decides(data: Data) -> None:
    first = fit(new_task(), FullGraph(data), epochs=20, patience=3, progress=False)
    data.y[data.test_mask] = (data.y[data.test_mask] + 1) % 3
    second = fit(new_task(), FullGraph(data), epochs=20, patience=3, progress=False)
    assert (first.best_epoch, first.epochs, first.val) == (
        second.best_epoch, second.epochs, second.val,
    )  # fmt: skip
    assert first.test != second.test
    del data.test_mask
    result = fit(new_task(), FullGraph(data), epochs=2, progress=False)
    assert result.test is None and "test" not in result.history[0]


def draws() -> list[float]:
    return [float(torch.rand(())), np.random.rand(), random.random()]  # noqa: NPY002


def test_a_seed_fixes_what_all_three_draw_and_the_caller_s_state_comes_back() -> None:
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
    seed_all(1)
    expected = draws()
    for fails in (False, True):
        seed_all(1)
        with suppress(KeyError), borrowed_randomness():
            seed_all(7)
            draws()
            if fails:
                raise KeyError
        assert draws() == expected


@pytest.mark.skipif(
    torch.cuda.is_available() or not sys.platform.startswith("linux"),
    reason="reads the resident memory of a Linux process that trains on the CPU",
)
def test_a_freed_block_counts_and_what_came_before_only_after_an_interruption() -> None:
    memory, resumed = PeakMemory(), PeakMemory()
    resumed.megabytes = 1e9
    block = torch.ones(200_000_000, dtype=torch.uint8)
    del block
    for each in (memory, resumed):
        each.start()
        each.update()
    assert memory.megabytes < 50 and resumed.megabytes == 1e9
    memory = PeakMemory()
    memory.start()
    with mmap.mmap(-1, 50_000_000) as block:  # pages of its own, whatever malloc has in store
        for page in range(0, len(block), 4096):
            block[page] = 1
    memory.update()
    assert 45 < memory.megabytes < 80


def test_a_log_gets_a_line_now_and_then_and_says_how_long_the_rest_takes(
    data: Data, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    result = fit(new_task(), FullGraph(data), epochs=40, patience=40, progress=True)
    out, err = capfd.readouterr()
    lines = err.splitlines()
    assert out == "" and len(lines) == 10
    assert lines[0].startswith("epoch 4/40  loss ") and lines[-1].startswith("epoch 40/40  loss ")
    assert lines[-1].endswith(f"best {result.val:.4f}")
    result = fit(new_task(lr=0.5), FullGraph(data), epochs=1000, patience=1, progress=True)
    assert f"epoch {result.epochs}/1000" in capfd.readouterr().err
    clock = count(0, 10)  # ten seconds a look at the clock
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    fit(new_task(), FullGraph(data), epochs=4, progress=True)
    lines = capfd.readouterr().err.splitlines()
    assert [line.endswith(" left)") for line in lines] == [False, True, True, False]


def test_a_terminal_gets_one_moving_line_and_is_left_in_order_after_an_error(
    data: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=120)
    monkeypatch.setattr(module, "Console", lambda stderr: console)
    fit(new_task(), FullGraph(data), epochs=5, progress=True)
    shown = screen.getvalue()
    assert "5/5" in shown and "best 0." in shown
    assert shown.count("\n") == 1  # the rest moves the cursor back
    with pytest.raises(FloatingPointError, match=r"epoch \d: .*a finite loss.*lr=1e\+37"):
        fit(new_task(lr=1e37), FullGraph(data), epochs=20)
    assert screen.getvalue().rindex("\x1b[?25h") > screen.getvalue().rindex("\x1b[?25l")


def test_a_listener_gets_every_epoch_and_no_test_score_and_a_block_hears_of_each_fit(
    data: Data, capfd: pytest.CaptureFixture[str]
) -> None:
    heard: list[dict[str, float]] = []
    result = fit(new_task(), FullGraph(data), epochs=3, progress=heard.append)
    without = [{k: v for k, v in row.items() if k != "test"} for row in result.history]
    assert heard == without and "test" in result.history[0]
    told: list[tuple[int, int, str]] = []
    with progress.report_epochs(lambda *at: told.append(at)):
        for listens in (False, lambda row: None):
            fit(new_task(), FullGraph(data), epochs=2, progress=listens)
    fit(new_task(), FullGraph(data), epochs=2, progress=False)
    assert told == [(1, 2, "epoch"), (2, 2, "epoch")] * 2
    assert capfd.readouterr() == ("", "")


def test_a_long_epoch_tells_its_batches(
    data: Data, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[tuple[int, int, str]] = []
    monkeypatch.setattr(progress, "SILENCE", -1.0)
    source = SampledLayers(data, UniformNodes(share=0.5), 1, evaluation=Compose(), batch_size=10)
    with progress.report_epochs(lambda *at: heard.append(at)):
        fit(new_task(several=True), source, epochs=2, progress=True)
    assert heard == [(0.5, 2, "epoch"), (1, 2, "epoch"), (1.5, 2, "epoch"), (2, 2, "epoch")]
    lines = capfd.readouterr().err.splitlines()
    assert lines[0].endswith("50% of it") and len(lines) == 4
