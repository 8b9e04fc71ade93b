"""What happens in every epoch of a training: seeds, scores, the best one, and checkpoints."""

import errno
import math
import random
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import lightning
import numpy as np
import torch
from filelock import FileLock, Timeout
from lightning import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import Checkpoint
from torch import Tensor

from graphtheory.disk import name_file, replace_file
from graphtheory.lab.progress import report_step
from graphtheory.lab.train.checkpoint import (
    CheckpointError,
    Clock,
    first_difference,
    read_checkpoint,
    warn_if_unwritable,
)
from graphtheory.lab.train.contract import Source, Task
from graphtheory.patterns.draw import derive

EpochRow = dict[str, float]
Listener = Callable[[EpochRow], None]
_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


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
            kept = {n: v for n, v in shown.items() if n not in ("epoch", "seconds")}
            pl_module.log_dict(kept, batch_size=1, sync_dist=True)
        if self.listener is not None:
            self.listener(shown)
        report_step(trainer.current_epoch + 1, trainer.max_epochs or 0, "epoch")

    def _row(self, task: Task, trainer: Trainer) -> EpochRow:
        with trainer.precision_plugin.forward_context():
            found = task.evaluate(self.data.evaluation_batch())
        losses, counts = zip(*self._losses, strict=True)
        if found is None:  # batches of one size, without labels
            loss = float(torch.stack(losses).mean())
        else:
            loss = sum(float(of) * n for of, n in zip(losses, counts, strict=True)) / sum(counts)
        epoch = trainer.current_epoch + 1
        row = {"epoch": epoch, "train_loss": loss}
        row |= {k: v for k, v in (found._asdict() if found else {}).items() if v is not None}
        if trainer.world_size > 1:  # the same row in every process
            mean = torch.tensor(loss, device=task.device)
            row["train_loss"] = float(trainer.strategy.reduce(mean, reduce_op="mean"))
            row = trainer.strategy.broadcast(row)
        both = {name: row[name] for name in ("train_loss", "val_loss") if name in row}
        if not all(map(math.isfinite, both.values())):
            told = ", ".join(f"{name} {value}" for name, value in both.items())
            hint = f"which a smaller step than that of {task.options} may give"
            raise FloatingPointError(f"epoch {epoch}: {told}; expected a finite loss, {hint}")
        return row | {"seconds": time.perf_counter() - self._began}

    def state_dict(self) -> dict[str, Any]:
        state = {"history": self.history, "best": self.best, "best_state": self.best_state}
        return state | {"peak_mb": self.memory.megabytes, "stopped": self.stopped}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.history, self.best = list(state_dict["history"]), state_dict["best"]
        self.best_state, self.stopped = state_dict["best_state"], state_dict.get("stopped", False)
        self.memory.megabytes = state_dict["peak_mb"]


_COPIES = 14  # parameters, two Adam moments and the best ones, in three files, one being written


@contextmanager
def locked(folder: Path, name: str = ".lock") -> Iterator[None]:
    """Refuse a second process; the lock goes with the process, however that ends."""
    try:
        with FileLock(folder / name, timeout=0):
            yield
    except Timeout:
        message = "out_dir: another run is using it"
        raise BlockingIOError(errno.EAGAIN, message, str(folder)) from None


class StudyFolder(Checkpoint):  # which Lightning calls after all other callbacks
    """Writes `last.ckpt` alone, about once a minute, for the many trainings of a study."""

    def __init__(self, path: str | PathLike[str], watch: Watch) -> None:
        self.path, self.watch = Path(path), watch  # the callback before this one
        names = ("last.ckpt", "previous.ckpt", "best.ckpt", "history.csv")
        self.last, self.previous, self.best, self.log_file = map(self.path.joinpath, names)
        self.run: dict[str, Any] = {}
        self.writes = True  # not where another process does
        self._clock = Clock()

    def restore(self, task: Task, run: dict[str, Any], *, writes: bool = True) -> Path | None:
        """Give `watch` and the task what the last checkpoint of the same `run` holds; its path."""
        self.run, self.writes = run, writes
        if not self.last.exists():
            return None
        try:
            content = read_checkpoint(self.last)
        except CheckpointError as error:
            with suppress(CheckpointError, FileNotFoundError):
                read_checkpoint(self.previous)
                other = f"{self.previous}, one epoch older, is whole"
                way = f"rename it to {self.last.name} to go on from there"
                error = CheckpointError(f"{error}; {other}: {way}")
            raise error from None
        if difference := first_difference(content.get("run", {}), run):
            raise CheckpointError(f"{self.last}: checkpoint of another run: {difference}")
        self.watch.load_state_dict(content["callbacks"][self.watch.state_key])
        task.load_state_dict(content["state_dict"])
        return self.last

    def on_save_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        versions = {"torch": str(torch.__version__), "lightning": lightning.__version__}
        checkpoint |= {"run": self.run, "versions": versions}

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._clock.due():
            with warn_if_unwritable():
                trainer.save_checkpoint(self.last)


class RunFolder(StudyFolder):
    """Writes `last.ckpt`, `previous.ckpt`, `best.ckpt` and `history.csv` after every epoch."""

    @contextmanager
    def opened(self, task: Task, *, resume: bool) -> Iterator[None]:
        """Hold the folder, after checks that cost nothing and spare a run that cannot be saved."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            TemporaryFile(dir=self.path).close()
        except OSError as error:
            message = f"out_dir cannot be written to: {error.strerror}"
            raise type(error)(error.errno, message, str(self.path)) from None
        size = sum(p.nbytes for p in task.parameters())
        needed, free = _COPIES * size + 2**16, shutil.disk_usage(self.path).free
        if free < needed:
            message = f"out_dir: {needed} bytes needed, {free} free"
            raise OSError(errno.ENOSPC, message, str(self.path))
        with locked(self.path):
            for draft in self.path.glob(".*.draft"):  # of a process that was killed
                draft.unlink()
            if self.last.exists() and not resume:
                message = "out_dir holds an earlier run; expected resume=True or a new folder"
                raise FileExistsError(errno.EEXIST, message, str(self.last))
            yield

    def restore(self, task: Task, run: dict[str, Any], *, writes: bool = True) -> Path | None:
        found = super().restore(task, run, writes=writes)
        if writes:  # lines of epochs that no checkpoint knows go
            replace_file(self.log_file, _lines(self.watch.history).encode())
        return found

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        row, watch = self.watch.history[-1], self.watch
        watch.stopped = trainer.should_stop and not watch.out_of_patience  # by a callback
        if row is watch.best:  # first, so that whatever `last` says is there
            trainer.save_checkpoint(self.best)
        if self.writes and self.last.exists():
            name_file(self.last, self.previous)
        trainer.save_checkpoint(self.last)
        if not self.writes:
            return
        with self.log_file.open("a", newline="") as file:
            file.write(_lines([row]))


def _lines(rows: list[EpochRow]) -> str:
    """Write epochs as lines of a table without test scores; the first epoch brings its head."""
    told = [{name: value for name, value in row.items() if name != "test"} for row in rows]
    head = [",".join(row) for row in told if row["epoch"] == 1]
    lines = [",".join(map(repr, row.values())) for row in told]
    return "".join(f"{line}\n" for line in head + lines)
