"""Train a task: seeds, memory, scores, the best epoch, progress, and the end of each epoch."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from lightning import Callback, LightningModule, Trainer
from rich.console import Console
from torch import Tensor
from torch.utils.data import DataLoader

from graphtheory.lab.progress import Steps
from graphtheory.lab.signals import prompt_signals
from graphtheory.lab.train.checkpoint import RunFolder, StudyFolder, next_place
from graphtheory.lab.train.contract import Source, Task, check_at_least
from graphtheory.lab.train.trainer import TrainerOptions, quiet_lightning
from graphtheory.patterns.draw import derive

EpochRow = dict[str, float]
Listener = Callable[[EpochRow], None]
Epochs = Callable[[float, int, str], None]  # how many are over, of how many, "epoch" or "step"
_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")
_LINES = 10  # of a whole run, where the output is not a terminal
_EPOCHS: ContextVar[tuple[Epochs, ...]] = ContextVar("epochs", default=())


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


@dataclass
class PeakMemory:
    """Peak of torch's GPU memory, or of a Linux process without workers, above that at `start`."""

    megabytes: float = 0.0  # MB of 10^6 bytes; NaN where nothing tells it
    _began: int = 0

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
    """Call `listener` after every batch of every `fit` in the block: epochs over, of how many."""
    token = _EPOCHS.set((*_EPOCHS.get(), listener))
    try:
        yield
    finally:
        _EPOCHS.reset(token)


def report_step(step: float, steps: int, unit: str = "step") -> None:
    """Call the listeners of `report_epochs` after a step of your own loop."""
    for listener in _EPOCHS.get():
        listener(step, steps, unit)


class Watch(Callback):
    """Seed and score every epoch, keep the best one's parameters, stop where patience ends."""

    def __init__(self, data: Source, *, seed: int, patience: int) -> None:
        self.data, self.seed, self.patience = data, seed, patience
        self.listener: Listener | None = None  # of each epoch's row without the test score
        self.logs = False  # whether callbacks and loggers get the rows, too
        self.stopped = False  # whether a callback has ended the training
        self._plateaus: list[Any] = []  # schedules that look at an epoch's row
        self.memory = PeakMemory()
        self.history: list[EpochRow] = []
        self.best: EpochRow | None = None
        self.best_state: dict[str, Tensor] = {}
        self._losses: list[tuple[Tensor, int]] = []
        self._began = 0.0

    @property
    def out_of_patience(self) -> bool:
        """Whether the best epoch lies `patience` epochs back, or a callback has ended it all."""
        best = self.best
        return self.stopped or (
            best is not None and len(self.history) - best["epoch"] >= self.patience
        )

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._plateaus = [one for one in trainer.lr_scheduler_configs if one.reduce_on_plateau]
        for config in self._plateaus:  # Lightning would move them after the checkpoint is written
            config.interval = "never"

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._began = time.perf_counter()
        self._losses = []
        rank = [trainer.global_rank] if trainer.global_rank else []
        seed_all(derive(self.seed, trainer.current_epoch, *rank))

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        batches, done = int(trainer.num_training_batches), batch_idx + 1
        if done < batches:  # a part of a long epoch
            report_step(trainer.current_epoch + done / batches, trainer.max_epochs or 0, "epoch")
        self._losses.append((outputs["loss"], 1 if batches == 1 else getattr(batch, "count", 1)))

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        assert isinstance(pl_module, Task)
        sign = 1 if pl_module.higher_is_better else -1

        def rank(row: EpochRow) -> tuple[float, float]:
            return sign * row["val"], -row["val_loss"]

        row = self._row(pl_module, trainer)
        self.history.append(row)
        if "val" in row and (self.best is None or rank(row) > rank(self.best)):
            self.best = row
            state = pl_module.state_dict()
            self.best_state = {name: value.detach().clone() for name, value in state.items()}
        shown = {name: value for name, value in row.items() if name != "test"}
        for config in self._plateaus:
            config.scheduler.step(shown[config.monitor])
        trainer.should_stop |= self.out_of_patience
        self.memory.update()
        if self.logs:
            kept = {
                name: value for name, value in shown.items() if name not in ("epoch", "seconds")
            }
            pl_module.log_dict(kept, batch_size=1, sync_dist=True)
        if self.listener is not None:
            self.listener(shown)
        report_step(trainer.current_epoch + 1, trainer.max_epochs or 0, "epoch")

    def _row(self, task: Task, trainer: Trainer) -> EpochRow:
        with trainer.precision_plugin.forward_context():
            found = task.evaluate(self.data.evaluation_batch())
        loss, epoch = self._mean_loss(weighted=found is not None), trainer.current_epoch + 1
        row = {"epoch": epoch, "train_loss": loss}
        row |= {k: v for k, v in (found._asdict() if found else {}).items() if v is not None}
        if trainer.world_size > 1:  # the same row in every process
            mean = torch.tensor(loss, device=task.device)
            row["train_loss"] = float(trainer.strategy.reduce(mean, reduce_op="mean"))
            row = trainer.strategy.broadcast(row)
        losses = {name: row[name] for name in ("train_loss", "val_loss") if name in row}
        if not all(map(math.isfinite, losses.values())):
            told = ", ".join(f"{name} {loss}" for name, loss in losses.items())
            hint = f"which a smaller step than that of {task.options} may give"
            raise FloatingPointError(f"epoch {epoch}: {told}; expected a finite loss, {hint}")
        return row | {"seconds": time.perf_counter() - self._began}

    def _mean_loss(self, *, weighted: bool) -> float:
        """Average over the labels of all batches; without labels over the batches of one size."""
        losses, counts = zip(*self._losses, strict=True)
        if not weighted:
            return float(torch.stack(losses).mean())
        return sum(float(loss) * n for loss, n in zip(losses, counts, strict=True)) / sum(counts)

    def state_dict(self) -> dict[str, Any]:
        state = {"history": self.history, "best": self.best, "best_state": self.best_state}
        return state | {"peak_mb": self.memory.megabytes, "stopped": self.stopped}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.history, self.best = list(state_dict["history"]), state_dict["best"]
        self.best_state, self.stopped = state_dict["best_state"], state_dict.get("stopped", False)
        self.memory.megabytes = state_dict["peak_mb"]


@dataclass(frozen=True)
class FitResult:
    """How well a run of `fit` did."""

    #: Score on the test part at the best epoch, in the metric's own unit (a share 0..1, or an
    #: error); None where the data have no test part, as `ImageData`.
    test: float | None
    val: float  #: Score on the validation part at the best epoch; nan of a task without labels.
    best_epoch: int  #: The first epoch is 1; of a task without labels it is the last one.
    epochs: int  #: How many were run.
    seconds_per_epoch: float  #: Median, evaluation included.
    peak_mb: float  #: MB (10^6 bytes) that training took at its peak, on a GPU of its memory.
    #: One row an epoch: epoch, train_loss, val_loss, val, test, seconds; without labels epoch,
    #: train_loss, seconds. Nothing is chosen by the test column.
    history: list[EpochRow] = field(repr=False)


def fit(
    task: Task,
    datamodule: Source | DataLoader[Any],
    *,
    epochs: int = 200,
    patience: int = 50,
    out_dir: str | PathLike[str] | None = None,
    resume: bool = False,
    progress: bool | Listener = True,
    seed: int = 0,
    trainer: TrainerOptions = TrainerOptions(),
) -> FitResult:
    """Train, and report the test score of the epoch with the best validation score.

    Of two epochs the one with the better validation score is better, then the one with the lower
    validation loss. Afterwards the task holds the best epoch's parameters, in evaluation mode. A
    task without labels, such as `papers.fusion.contrastive.SimCLR`, is not scored: it trains for
    all epochs, at whose end its step size is 0, and holds the last parameters. The result follows
    from the model's parameters, the data and the seeds, on one machine with one number of threads;
    the caller's random state is left alone.

    With `out_dir` each epoch leaves `last.ckpt`, the one before it `previous.ckpt`, the best one
    `best.ckpt`, and `history.csv` a line (without test scores). A run that was stopped for any
    reason goes on from there to bitwise the same parameters; a finished one gives the same result.
    Ctrl-C raises KeyboardInterrupt, SIGTERM SystemExit(143), at once; the unfinished epoch is lost.

    Args:
        task: What to train.
        datamodule: A `Source` such as `FullGraph`; of a task without labels what it says.
        epochs: At most this many, at least 1, with an `ImageTask` those of its recipe. A resumed
            run may have more than it began with, of a task without labels the same number.
        patience: Stop after this many epochs without a better one, at least 1; not of a task
            without labels.
        out_dir: Folder of this run alone, made where it is missing; None writes nothing.
        resume: Go on where `out_dir` stands, from the start where it holds no checkpoint.
        progress: Show a line on the standard error stream, or a function that is given each epoch's
            row, without the test score.
        seed: Of dropout and other draws from global random state, 0 or more.
        trainer: Devices, precision, accumulation, callbacks and loggers, by Lightning.

    Raises:
        ValueError: An argument out of its range, or labels that the task has no class for.
        TypeError: Data that this task cannot train on.
        FloatingPointError: A loss that is not finite.
        CheckpointError: `out_dir` holds a damaged checkpoint or one of another run.
        FileExistsError: `out_dir` holds a run and `resume` is False.
        OSError: `out_dir` cannot be written to, has no space, or is in use.

    Example:
        >>> from graphtheory.lab.datasets import graphs
        >>> from graphtheory.lab.train import FullGraph, NodeTask
        >>> from graphtheory.models import GraphTransformer
        >>> task = NodeTask(GraphTransformer(34, 16, 2, num_layers=1, heads=2), num_classes=2)
        >>> fit(task, FullGraph(graphs.load("karate")), epochs=3, progress=False).epochs
        3
    """
    check_at_least(1, epochs=epochs, patience=patience)
    check_at_least(0, seed=seed)
    if resume and out_dir is None:
        raise ValueError("resume: got True with out_dir=None, expected the folder of a run")
    data = task.source(datamodule)
    if task.num_classes is not None:
        data.check_classes(task.num_classes)
    watch = Watch(data, seed=seed, patience=patience)
    watch.logs = bool(trainer.callbacks or trainer.loggers)
    folder: StudyFolder | None = None
    checkpoint = None
    with ExitStack() as stack:
        stack.enter_context(quiet_lightning())
        lightning = trainer.build(epochs, data.num_batches())
        first = lightning.is_global_zero
        if out_dir is not None:
            folder = RunFolder(out_dir, watch)
            if first:
                stack.enter_context(folder.opened(task, resume=resume))
        elif (place := next_place()) is not None:
            folder = StudyFolder(place, watch)
        if folder is not None:
            run = task.describe(epochs) | {"data": data.describe(), "seed": seed}
            checkpoint = folder.restore(task, run | trainer.describe(), writes=first)
        if len(watch.history) < epochs and not watch.out_of_patience:
            if progress is True and first:
                watch.listener = stack.enter_context(shown(watch, epochs))
            elif callable(progress) and first:
                watch.listener = progress
            callbacks: list[Any] = lightning.callbacks  # type: ignore[attr-defined]
            callbacks[:] = [watch, *callbacks, *([folder] if folder else [])]
            task.train()
            watch.memory.start()
            with borrowed_randomness(), prompt_signals():
                lightning.fit(task, datamodule=data, ckpt_path=checkpoint)
    if watch.best is not None:
        task.load_state_dict(watch.best_state)
    task.eval()
    best = watch.best or watch.history[-1]
    return FitResult(
        test=best.get("test"),
        val=best.get("val", math.nan),
        best_epoch=int(best["epoch"]),
        epochs=len(watch.history),
        seconds_per_epoch=median(row["seconds"] for row in watch.history),
        peak_mb=watch.memory.megabytes,
        history=watch.history,
    )


@contextmanager
def shown(watch: Watch, epochs: int) -> Iterator[Listener]:
    """Show epochs, loss and validation score on the standard error stream."""
    steps = Steps(Console(stderr=True), "epoch", shown=True)

    def show_part(epoch: float, epochs: int, unit: str) -> None:
        if epoch % 1:
            steps.within(f"{epoch % 1:.0%} of it", epoch % 1)

    def show(row: EpochRow) -> None:
        epoch, text = int(row["epoch"]), f"loss {row['train_loss']:.4f}"
        if watch.best is not None:
            text += f"  val {row['val']:.4f}  best {watch.best['val']:.4f}"
        if watch.out_of_patience or epoch % max(1, epochs // _LINES) == 0 or epoch == epochs:
            steps.finished(text)
        steps.before(text, epoch, epochs)

    steps.before("", len(watch.history), epochs)
    with steps.bar, report_epochs(show_part):
        yield show
