"""The folder of a run: its checkpoints, its log, and what is refused before it starts."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any

import lightning
import torch
from lightning import Callback, LightningModule, Trainer

from graphtheory.disk import name_file, replace_file
from graphtheory.lab.train.checkpoint import CheckpointError, first_difference, read_checkpoint
from graphtheory.lab.train.contract import Task
from graphtheory.lab.train.partial import Clock, warn_if_unwritable

if TYPE_CHECKING:
    from graphtheory.lab.train.watch import EpochRow, Watch

_COPIES = 14  # parameters, two Adam moments and the best ones, in three files, one being written


@contextmanager
def locked(folder: Path, name: str = ".lock") -> Iterator[None]:
    """Refuse a second process; the lock goes with the process, however that ends."""
    if os.name != "posix":
        yield
        return
    import fcntl

    with (folder / name).open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise OSError(error.errno, "out_dir: another run is using it", str(folder)) from None
        yield


class RunFolder(Callback):
    """Writes `last.ckpt`, `previous.ckpt`, `best.ckpt` and `history.csv` after every epoch.

    Args:
        path: The folder, made where it is missing.
        watch: Knows the epochs so far and the best one; comes before this callback.
    """

    def __init__(self, path: str | PathLike[str], watch: Watch) -> None:
        self.path, self.watch = Path(path), watch
        self.last, self.best = self.path / "last.ckpt", self.path / "best.ckpt"
        self.previous, self.log_file = self.path / "previous.ckpt", self.path / "history.csv"
        self.run: dict[str, Any] = {}
        self.columns = ["epoch", "train_loss", "seconds"]

    @contextmanager
    def opened(self, task: Task, *, resume: bool) -> Iterator[None]:
        """Hold the folder, after checks that cost nothing and spare a run that cannot be saved.

        Raises:
            OSError: Not a folder, not writable, too full, or another process trains in it.
            FileExistsError: It holds an earlier run and `resume` is False.
        """
        self._require_writable()
        if task.num_classes is not None:
            self.columns[2:2] = ["val_loss", "val"]
        size = sum(p.numel() * p.element_size() for p in task.parameters())
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

    def _require_writable(self) -> None:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            TemporaryFile(dir=self.path).close()
        except OSError as error:
            message = f"out_dir cannot be written to: {error.strerror}"
            raise type(error)(error.errno, message, str(self.path)) from None

    def restore(self, task: Task, run: dict[str, Any]) -> Path | None:
        """Give `watch` and the task what the last checkpoint holds; its path, None without one.

        `run` is what has to be the same for a run to go on where another stopped.

        Raises:
            CheckpointError: Damaged, or of another run; the message says what differs.
        """
        self.run = run
        there = self.last.exists()
        if there:
            content = self._read_last()
            if difference := first_difference(content.get("run", {}), run):
                raise CheckpointError(f"{self.last}: checkpoint of another run: {difference}")
            self.watch.load_state_dict(content["callbacks"][self.watch.state_key])
            task.load_state_dict(content["state_dict"])
        self.rewrite_log()
        return self.last if there else None

    def _read_last(self) -> dict[str, Any]:
        try:
            return read_checkpoint(self.last)
        except CheckpointError as error:
            try:
                read_checkpoint(self.previous)
            except (CheckpointError, FileNotFoundError):
                raise error from None
            raise CheckpointError(
                f"{error}; {self.previous}, one epoch older, is whole: rename it to "
                f"{self.last.name} to go on from there"
            ) from None

    def rewrite_log(self) -> None:
        """Write the log of the epochs so far and no others."""
        lines = [",".join(self.columns) + "\n", *map(self._line, self.watch.history)]
        replace_file(self.log_file, "".join(lines).encode())

    def _line(self, row: EpochRow) -> str:
        return ",".join(repr(row[name]) for name in self.columns) + "\n"

    def on_save_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        checkpoint["run"] = self.run
        versions = {"torch": str(torch.__version__), "lightning": lightning.__version__}
        checkpoint["versions"] = versions

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        row = self.watch.history[-1]
        if row is self.watch.best:  # first, so that whatever `last` says is there
            trainer.save_checkpoint(self.best)
        if self.last.exists():
            name_file(self.last, self.previous)
        trainer.save_checkpoint(self.last)
        with self.log_file.open("a", newline="") as file:
            file.write(self._line(row))


class StudyFolder(RunFolder):
    """Writes `last.ckpt` alone, about once a minute, for the many trainings of a study."""

    def __init__(self, path: str | PathLike[str], watch: Watch) -> None:
        super().__init__(path, watch)
        self._clock = Clock()

    @contextmanager
    def opened(self, task: Task, *, resume: bool) -> Iterator[None]:
        yield

    def rewrite_log(self) -> None:
        pass

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._clock.due():
            with warn_if_unwritable():
                self.path.mkdir(parents=True, exist_ok=True)
                trainer.save_checkpoint(self.last)
