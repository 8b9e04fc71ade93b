"""Train a task on a graph and say how well it did."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median

from graphtheory.train.full_graph import FullGraph
from graphtheory.train.memory import PeakMemory
from graphtheory.train.seeds import borrowed_randomness
from graphtheory.train.task import NodeTask
from graphtheory.train.trainer import lean_trainer, quiet_lightning
from graphtheory.train.watch import Row, Watch


@dataclass(frozen=True)
class FitResult:
    """How well a run did.

    Args:
        test: Score on the test nodes at the best epoch, 0..1; None without test nodes.
        val: Score on the validation nodes at the best epoch.
        best_epoch: The first epoch is 1.
        epochs: How many were run.
        seconds_per_epoch: Median, evaluation included.
        peak_mb: MB (10^6 bytes) that training took at its peak; see `PeakMemory`.
        history: One row an epoch: epoch, train_loss, val_loss, val, test, seconds. The test column
            is for drawing curves; nothing is chosen by it.
    """

    test: float | None
    val: float
    best_epoch: int
    epochs: int
    seconds_per_epoch: float
    peak_mb: float
    history: list[Row] = field(repr=False)


def fit(
    task: NodeTask,
    datamodule: FullGraph,
    *,
    epochs: int = 200,
    patience: int = 50,
    seed: int = 0,
) -> FitResult:
    """Train, and report the test score of the epoch with the best validation score."""
    watch = Watch(datamodule, seed=seed, patience=patience)
    task.train()
    with borrowed_randomness(), quiet_lightning(), PeakMemory() as memory:
        lean_trainer(epochs, [watch], []).fit(task, datamodule=datamodule)
    assert watch.best is not None
    task.load_state_dict(watch.best_state)
    return FitResult(
        test=watch.best.get("test"),
        val=watch.best["val"],
        best_epoch=int(watch.best["epoch"]),
        epochs=len(watch.history),
        seconds_per_epoch=median(row["seconds"] for row in watch.history),
        peak_mb=memory.megabytes,
        history=watch.history,
    )
