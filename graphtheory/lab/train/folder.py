"""The folder of a run: its checkpoints, its log, and what is refused before it starts."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lightning
import torch
from lightning import Callback, LightningModule, Trainer
from torch import nn

from graphtheory.disk import name_file, replace_file
from graphtheory.lab.train.checkpoint import (
    CheckpointError,
    first_difference,
    read_checkpoint,
)
from graphtheory.lab.train.contract import Source, Task
from graphtheory.lab.train.under_way import Clock, spared

if TYPE_CHECKING:
    from graphtheory.lab.train.watch import EpochRow, Watch

_LOGGED = ("epoch", "train_loss", "val_loss", "val", "seconds")
_LOGGED_WITHOUT_LABELS = ("epoch", "train_loss", "seconds")
_COPIES = 14  # parameters, two Adam moments and the best ones, in three files, one being written


def describe_run(task: Task, data: Source, epochs: int, seed: int) -> dict[str, Any]:
    """What has to be the same for a run to go on where another stopped."""
    return task.describe(epochs) | {"data": data.describe(), "seed": seed}


class RunFolder:
    """`last.ckpt`, the one before it, `best.ckpt` and `history.csv` of one run.

    Args:
        path: Made where it is missing.
        labeled: Whether epochs are scored; otherwise the log has no such columns.
    """

    def __init__(self, path: str | PathLike[str], *, labeled: bool = True) -> None:
        self.path, self.columns = Path(path), _LOGGED if labeled else _LOGGED_WITHOUT_LABELS
        self.last, self.best = self.path / "last.ckpt", self.path / "best.ckpt"
        self.previous, self.log = self.path / "previous.ckpt", self.path / "history.csv"

    @contextmanager
    def opened(self, model: nn.Module, *, resume: bool) -> Iterator[None]:
        """Hold the folder, after checks that cost nothing and spare a run that cannot be saved.

        Raises:
            OSError: Not a folder, not writable, too full, or another process trains in it.
            FileExistsError: It holds an earlier run and `resume` is False.
        """
        self._require_writable()
        self._require_space(4 * sum(p.numel() * p.element_size() for p in model.parameters()))
        with locked(self.path):
            for draft in self.path.glob(".*.draft"):  # of a process that was killed
                draft.unlink()
            if self.last.exists() and not resume:
                raise FileExistsError(
                    errno.EEXIST, "out_dir holds an earlier run; expected resume=True or a new "
                    "folder", str(self.last),
                )  # fmt: skip
            yield

    def _require_writable(self) -> None:
        probe = self.path / f".probe.{os.getpid()}.draft"
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            probe.touch()
            probe.unlink()
        except OSError as error:
            raise type(error)(
                error.errno, f"out_dir cannot be written to: {error.strerror}", str(self.path)
            ) from None

    def _require_space(self, parameter_bytes: int) -> None:
        needed, free = _COPIES * parameter_bytes // 4 + 2**16, shutil.disk_usage(self.path).free
        if free < needed:
            raise OSError(
                errno.ENOSPC, f"out_dir: {needed} bytes needed, {free} free", str(self.path)
            )

    def restore(self, expected: dict[str, Any], watch: Watch) -> dict[str, Any] | None:
        """The last checkpoint, after the record in it went to `watch`; None where there is none.

        Raises:
            CheckpointError: Damaged, or of another run; the message says what differs.
        """
        if not self.last.exists():
            return None
        content = self._read_last()
        difference = first_difference(content.get("run", {}), expected)
        if difference:
            raise CheckpointError(f"{self.last}: checkpoint of another run: {difference}")
        watch.load_state_dict(content["callbacks"][watch.state_key])
        return content

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

    def rewrite_log(self, history: list[EpochRow]) -> None:
        """The log of these epochs and no others."""
        lines = [",".join(self.columns) + "\n", *map(self.line, history)]
        replace_file(self.log, "".join(lines).encode())

    def line(self, row: EpochRow) -> str:
        """An epoch as a line of the log."""
        return ",".join(repr(row[name]) for name in self.columns) + "\n"


class Keep(Callback):
    """Write checkpoint and log after every epoch. Comes after `Watch`."""

    def __init__(self, folder: RunFolder, watch: Watch, run: dict[str, Any]) -> None:
        self.folder, self.watch, self.run = folder, watch, run

    def on_save_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Say which run it is, and with what it was made."""
        checkpoint["run"] = self.run
        checkpoint["versions"] = {
            "torch": str(torch.__version__),
            "lightning": lightning.__version__,
        }

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Best first: whatever `last` says is then there."""
        self.watch.memory.update()
        row = self.watch.history[-1]
        if row is self.watch.best:
            trainer.save_checkpoint(self.folder.best)
        if self.folder.last.exists():
            name_file(self.folder.last, self.folder.previous)
        trainer.save_checkpoint(self.folder.last)
        with self.folder.log.open("a", newline="") as file:
            file.write(self.folder.line(row))


class KeepRarely(Keep):
    """Write `last.ckpt` alone, about once a minute: for the trainings of a study, many of them."""

    def __init__(self, folder: RunFolder, watch: Watch, run: dict[str, Any]) -> None:
        super().__init__(folder, watch, run)
        self._clock = Clock()

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Write if it is time."""
        if self._clock.due():
            self.watch.memory.update()
            with spared():
                self.folder.path.mkdir(parents=True, exist_ok=True)
                trainer.save_checkpoint(self.folder.last)
            self._clock.restart()


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
