"""What happens around each epoch: seeds, scores, the best epoch, and when to stop."""

from __future__ import annotations

import math
import time
from typing import Any

import torch
from lightning import Callback, LightningModule, Trainer
from torch import Tensor

from graphtheory.lab.train.contract import Source, Task
from graphtheory.lab.train.memory import PeakMemory
from graphtheory.lab.train.seeds import derive, seed_all

EpochRow = dict[str, float]


class Watch(Callback):
    """Score after every epoch, keep the best epoch's parameters, stop when there is no progress.

    An epoch is better than another when its validation score is higher, of an error lower, or equal
    with a lower validation loss. The test score is noted and decides nothing. A task that learns
    without labels has no scores and no best epoch. Each epoch's randomness is a function of (seed,
    epoch), so that a run that goes on from a checkpoint draws the same.

    Args:
        data: Whose validation part decides.
        seed: Of everything that draws from global random state, dropout above all.
        patience: Epochs without a better one after which to stop.
    """

    def __init__(self, data: Source, *, seed: int, patience: int) -> None:
        self.data, self.seed, self.patience = data, seed, patience
        self.memory = PeakMemory()
        self.history: list[EpochRow] = []
        self.best: EpochRow | None = None
        self.best_state: dict[str, Tensor] = {}
        self._losses: list[tuple[Tensor, int]] = []
        self._began = 0.0

    @property
    def out_of_patience(self) -> bool:
        """Whether the best epoch lies `patience` epochs back."""
        return self.best is not None and len(self.history) - self.best["epoch"] >= self.patience

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Give the epoch its own randomness."""
        self._began = time.perf_counter()
        self._losses = []
        seed_all(derive(self.seed, trainer.current_epoch))

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Remember the loss and how many labels it is the mean of."""
        alone = trainer.num_training_batches == 1
        count = 1 if alone or isinstance(batch, Tensor) else batch.count
        self._losses.append((outputs["loss"], count))

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Evaluate, remember, decide."""
        assert isinstance(pl_module, Task)
        row = self._row(pl_module, trainer.current_epoch + 1)
        self.history.append(row)
        if "val" in row and self._is_best(row, pl_module.higher_is_better):
            self.best = row
            state = pl_module.state_dict()
            self.best_state = {name: value.detach().clone() for name, value in state.items()}
        if self.out_of_patience:
            trainer.should_stop = True

    def _is_best(self, row: EpochRow, higher_is_better: bool) -> bool:
        def rank(row: EpochRow) -> tuple[float, float]:
            return (row["val"] if higher_is_better else -row["val"]), -row["val_loss"]

        return self.best is None or rank(row) > rank(self.best)

    def _row(self, task: Task, epoch: int) -> EpochRow:
        found = task.evaluate(self.data.evaluation_batch())
        row = {"epoch": epoch, "train_loss": self._mean_loss(weighted=found is not None)}
        row |= {k: v for k, v in (found._asdict() if found else {}).items() if v is not None}
        losses = {name: row[name] for name in ("train_loss", "val_loss") if name in row}
        if not all(map(math.isfinite, losses.values())):
            told = ", ".join(f"{name} {loss}" for name, loss in losses.items())
            raise FloatingPointError(
                f"epoch {epoch}: {told}; expected a finite loss, which a smaller step than that of "
                f"{task.options} may give"
            )
        return row | {"seconds": time.perf_counter() - self._began}

    def _mean_loss(self, *, weighted: bool) -> float:
        """Over the labels of all batches; without labels over the batches, all of one size."""
        if not weighted:
            return float(torch.stack([loss for loss, _ in self._losses]).mean())
        labels = sum(count for _, count in self._losses)
        return sum(float(loss) * count for loss, count in self._losses) / labels

    def state_dict(self) -> dict[str, Any]:
        """The record so far, in plain values and tensors."""
        return {
            "history": self.history,
            "best": self.best,
            "best_state": self.best_state,
            "peak_mb": self.memory.megabytes,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on with a record."""
        self.history, self.best = list(state_dict["history"]), state_dict["best"]
        self.best_state = state_dict["best_state"]
        self.memory.megabytes = state_dict["peak_mb"]
