"""The folders of checkpoints that trainings write and go on from."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any

import lightning
import torch
from filelock import FileLock, Timeout
from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import Checkpoint

from graphtheory.disk import name_file, replace_file
from graphtheory.lab.train.checkpoint import (
    CheckpointError,
    Clock,
    first_difference,
    read_checkpoint,
    warn_if_unwritable,
)
from graphtheory.lab.train.contract import Task

if TYPE_CHECKING:
    from graphtheory.lab.train.watch import EpochRow, Watch

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
        content = self._read_last()
        if difference := first_difference(content.get("run", {}), run):
            raise CheckpointError(f"{self.last}: checkpoint of another run: {difference}")
        self.watch.load_state_dict(content["callbacks"][self.watch.state_key])
        task.load_state_dict(content["state_dict"])
        return self.last

    def _read_last(self) -> dict[str, Any]:
        try:
            return read_checkpoint(self.last)
        except CheckpointError as error:
            try:
                read_checkpoint(self.previous)
            except (CheckpointError, FileNotFoundError):
                raise error from None
            other = f"{self.previous}, one epoch older, is whole"
            way = f"rename it to {self.last.name} to go on from there"
            raise CheckpointError(f"{error}; {other}: {way}") from None

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
