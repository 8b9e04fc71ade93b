"""What happens around each epoch: seeds, memory, scores, the best epoch, progress, and the end."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning import Callback, LightningModule, Trainer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor

from graphtheory.lab.train.contract import Source, Task
from graphtheory.patterns.draw import derive

EpochRow = dict[str, float]
Listener = Callable[[EpochRow], None]
Epochs = Callable[[int, int, str], None]  # of a number, of how many, and "epoch" or "step"
_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")
_LINES = 10  # of a whole run, where the output is not a terminal
_PATIENCE = 2.0  # seconds that need no estimate
_EPOCHS: ContextVar[Epochs | None] = ContextVar("epochs", default=None)


def seed_all(seed: int) -> None:
    """Seed torch (CPU and CUDA), numpy and Python, for layers that draw from global state."""
    torch.default_generator.manual_seed(seed)  # torch.manual_seed costs 1 ms without a GPU
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002  what others may draw from
    random.seed(seed)


@contextmanager
def borrowed_randomness() -> Iterator[None]:
    """Change global random state inside; the caller's comes back afterwards, after errors too."""
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else []
    with torch.random.fork_rng(devices):
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)  # noqa: NPY002


class PeakMemory:
    """Peak memory from `start` to the latest `update`, above what was in use at the start.

    On a GPU what torch's allocator handed out, on Linux the resident memory of this process without
    DataLoader workers, whose high-water mark can be reset; elsewhere NaN.
    """

    def __init__(self) -> None:
        self.megabytes = 0.0  # MB of 10^6 bytes; set it to go on with work that was interrupted
        self._began = 0

    def start(self) -> None:
        """Count memory from here on."""
        if torch.cuda.is_available():
            torch.cuda.reset_peak_memory_stats()
            self._began = torch.cuda.memory_allocated()
        elif _RESET.exists():
            _RESET.write_text("5")
            self._began = _status_bytes("VmRSS")

    def update(self) -> None:
        """Take the peak up to now into account."""
        peak = math.nan
        if torch.cuda.is_available():
            peak = torch.cuda.max_memory_allocated()
        elif _RESET.exists():
            peak = _status_bytes("VmHWM")
        self.megabytes = max((peak - self._began) / 1e6, self.megabytes)  # NaN where it is first


def _status_bytes(field: str) -> int:
    line = next(s for s in _STATUS.read_text().splitlines() if s.startswith(field))
    return int(line.split()[1]) * 1024


@contextmanager
def report_epochs(listener: Epochs) -> Iterator[None]:
    """Call `listener` after every epoch of every `fit` in the block: its number, of how many."""
    token = _EPOCHS.set(listener)
    try:
        yield
    finally:
        _EPOCHS.reset(token)


def report_step(step: int, steps: int, unit: str = "step") -> None:
    """Call the listener of `report_epochs`, if there is one, after a step of your own loop."""
    if (listener := _EPOCHS.get()) is not None:
        listener(step, steps, unit)


class Watch(Callback):
    """Score after every epoch, keep the best epoch's parameters, stop when there is no progress.

    Of equal scores the lower validation loss is better; the test score decides nothing. A task
    without labels has no best epoch. Each epoch's randomness is a function of (seed, epoch), so
    that a run that goes on from a checkpoint draws the same.
    """

    def __init__(self, data: Source, *, seed: int, patience: int) -> None:
        self.data, self.seed, self.patience = data, seed, patience
        self.listener: Listener | None = None  # of each epoch's row without the test score
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
        self._began = time.perf_counter()
        self._losses = []
        seed_all(derive(self.seed, trainer.current_epoch))

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        alone = trainer.num_training_batches == 1
        self._losses.append((outputs["loss"], 1 if alone else getattr(batch, "count", 1)))

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        assert isinstance(pl_module, Task)
        sign = 1 if pl_module.higher_is_better else -1

        def rank(row: EpochRow) -> tuple[float, float]:
            return sign * row["val"], -row["val_loss"]

        row = self._row(pl_module, trainer.current_epoch + 1)
        self.history.append(row)
        if "val" in row and (self.best is None or rank(row) > rank(self.best)):
            self.best = row
            state = pl_module.state_dict()
            self.best_state = {name: value.detach().clone() for name, value in state.items()}
        trainer.should_stop |= self.out_of_patience
        self.memory.update()
        if self.listener is not None:
            self.listener({name: value for name, value in row.items() if name != "test"})
        report_step(trainer.current_epoch + 1, trainer.max_epochs or 0, "epoch")

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
        """Average over the labels of all batches; without labels over the batches of one size."""
        if not weighted:
            return float(torch.stack([loss for loss, _ in self._losses]).mean())
        labels = sum(count for _, count in self._losses)
        return sum(float(loss) * count for loss, count in self._losses) / labels

    def state_dict(self) -> dict[str, Any]:
        state = {"history": self.history, "best": self.best, "best_state": self.best_state}
        return state | {"peak_mb": self.memory.megabytes}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.history, self.best = list(state_dict["history"]), state_dict["best"]
        self.best_state = state_dict["best_state"]
        self.memory.megabytes = state_dict["peak_mb"]


@contextmanager
def shown(watch: Watch, epochs: int) -> Iterator[Listener]:
    """Show epochs, loss and validation score on the standard error stream."""
    console = Console(stderr=True)
    bar = Progress(
        TextColumn("epoch"), MofNCompleteColumn(), BarColumn(), TextColumn("{task.description}"),
        TimeRemainingColumn(), console=console, disable=not console.is_terminal,
    )  # fmt: skip
    first, began = len(watch.history), time.monotonic()
    line = bar.add_task("", total=epochs, completed=first)

    def show(row: EpochRow) -> None:
        epoch = int(row["epoch"])
        text = f"loss {row['train_loss']:.4f}"
        if watch.best is not None:
            text += f"  val {row['val']:.4f}  best {watch.best['val']:.4f}"
        bar.update(line, completed=epoch, description=text)
        ends = watch.out_of_patience or epoch == epochs
        if not console.is_terminal and (epoch % max(1, epochs // _LINES) == 0 or ends):
            each = (time.monotonic() - began) / (epoch - first)
            left = 0 if ends else each * (epochs - epoch)
            more = f"  at most {left:.0f} s left" if left > _PATIENCE else ""
            console.print(f"epoch {epoch}/{epochs}  {text}{more}", highlight=False)

    with bar:
        yield show
