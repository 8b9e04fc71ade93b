from collections.abc import Callable, Iterator

import pytest
import torch
from torch_geometric.data import Data

from graphtheory.lab.train import Evaluation, FitResult, FullGraph, NodeBatch, NodeTask, fit

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
