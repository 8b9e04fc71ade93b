import mmap
import random
import sys
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from graphtheory.lab.train import Evaluation, FitResult, FullGraph, NodeBatch, NodeTask, fit
from graphtheory.lab.train.watch import PeakMemory, borrowed_randomness, seed_all
from graphtheory.patterns.draw import derive

NewTask = Callable[..., NodeTask]


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


def test_the_best_epoch_is_reported(data: Data, new_task: NewTask) -> None:
    script = [(1.0, 0.3), (0.9, 0.6), (0.1, 0.5), (0.1, 0.4)]
    result = run(data, new_task(), script, patience=10)
    assert (result.best_epoch, result.epochs, result.val, result.test) == (2, 4, 0.6, 0.4)
    assert [row["epoch"] for row in result.history] == [1, 2, 3, 4]
    assert [row["val"] for row in result.history] == [0.3, 0.6, 0.5, 0.4]


def test_of_equal_scores_the_lower_loss_is_better(data: Data, new_task: NewTask) -> None:
    script = [(1.0, 0.5), (0.8, 0.5), (0.9, 0.5), (0.8, 0.5)]
    assert run(data, new_task(), script, patience=10).best_epoch == 2


@pytest.mark.parametrize(("patience", "epochs"), [(1, 3), (2, 4), (3, 6)])
def test_patience_counts_epochs_without_a_better_one(
    data: Data, new_task: NewTask, patience: int, epochs: int
) -> None:
    script = [(1.0, 0.1), (1.0, 0.5), (1.0, 0.4), (1.0, 0.4), (0.9, 0.5), (1.0, 0.4)]
    assert run(data, new_task(), script, patience).epochs == epochs


def test_the_parameters_of_the_best_epoch_stay(data: Data, new_task: NewTask) -> None:
    task = new_task(lr=0.1)
    run(data, task, [(1.0, 0.3), (1.0, 0.6), (1.0, 0.5)], patience=10)
    now = task.model.linear.bias
    assert torch.equal(now, task.seen[0.6]) and not torch.equal(now, task.seen[0.5])
    assert not task.training


def test_test_labels_decide_nothing(data: Data, new_task: NewTask) -> None:
    first = fit(new_task(), FullGraph(data), epochs=20, patience=3, progress=False)
    data.y[data.test_mask] = (data.y[data.test_mask] + 1) % 3
    second = fit(new_task(), FullGraph(data), epochs=20, patience=3, progress=False)
    assert (first.best_epoch, first.epochs, first.val) == (
        second.best_epoch, second.epochs, second.val,
    )  # fmt: skip
    assert first.test != second.test


def test_a_graph_without_test_nodes_has_no_test_score(data: Data, new_task: NewTask) -> None:
    del data.test_mask
    result = fit(new_task(), FullGraph(data), epochs=2, progress=False)
    assert result.test is None and "test" not in result.history[0]


def test_a_loss_that_is_not_finite_ends_the_run(data: Data, new_task: NewTask) -> None:
    task = new_task(lr=1e37)
    with pytest.raises(FloatingPointError, match=r"epoch \d: .*expected a finite loss.*lr=1e\+37"):
        fit(task, FullGraph(data), epochs=20, progress=False)


def draws() -> list[float]:
    return [float(torch.rand(())), np.random.rand(), random.random()]  # noqa: NPY002


def test_places_have_seeds_of_their_own() -> None:
    seeds = {derive(a, b, c) for a in range(10) for b in range(10) for c in range(10)}
    assert len(seeds) == 1000
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert derive(1) != derive(1, 0)


def test_a_seed_fixes_what_all_three_draw() -> None:
    with borrowed_randomness():
        seed_all(derive(3, 4))
        first = draws()
        seed_all(derive(3, 4))
        assert draws() == first
        seed_all(derive(3, 5))
        assert all(a != b for a, b in zip(draws(), first, strict=True))


@pytest.mark.parametrize("fails", [False, True])
def test_the_callers_random_state_comes_back(fails: bool) -> None:
    torch.manual_seed(1)
    np.random.seed(1)  # noqa: NPY002
    random.seed(1)
    expected = draws()
    torch.manual_seed(1)
    np.random.seed(1)  # noqa: NPY002
    random.seed(1)
    try:
        with borrowed_randomness():
            seed_all(7)
            draws()
            if fails:
                raise KeyError
    except KeyError:
        pass
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
