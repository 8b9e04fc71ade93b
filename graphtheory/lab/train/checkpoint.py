"""Checkpoint files that are whole or absent and notice one flipped bit, and folders of them.

They are zip archives of `torch.save` whose comment is the SHA-256 of everything before it.
"""

from __future__ import annotations

import errno
import hashlib
import io
import shutil
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import count
from os import PathLike
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any

import lightning
import torch
from filelock import FileLock, Timeout
from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import Checkpoint
from lightning.pytorch.plugins.io import TorchCheckpointIO
from torch import Generator

from graphtheory.disk import load_tensors, name_file, replace_file
from graphtheory.lab.train.contract import Task, shapes

if TYPE_CHECKING:
    from graphtheory.lab.train.fit import EpochRow, Watch

SECONDS = 60.0  # between two writes of a training that keeps its state now and then
_LABEL = b"sha256:"
_COMMENT = len(_LABEL) + 64
_END_OF_ARCHIVE, _END_BYTES = b"PK\x05\x06", 22
_COPIES = 14  # parameters, two Adam moments and the best ones, in three files, one being written
_PLACES: ContextVar[Iterator[Path] | None] = ContextVar("places", default=None)


class CheckpointError(ValueError):
    """A checkpoint that is damaged, or not one of this run."""


def write_checkpoint(path: str | PathLike[str], content: dict[str, Any]) -> None:
    """Replace the file at `path` in one step; a crash at any time leaves the old or the new one."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    buffer = io.BytesIO()
    torch.save(content, buffer)
    replace_file(Path(path), _sealed(bytearray(buffer.getbuffer())))


def _sealed(archive: bytearray) -> bytearray:
    """Add the digest as the archive's comment, whose length the last two bytes tell."""
    archive[-2:] = _COMMENT.to_bytes(2, "little")
    archive += _LABEL + hashlib.sha256(archive).hexdigest().encode()
    return archive


def read_checkpoint(path: str | PathLike[str]) -> dict[str, Any]:
    """Read the content of a checkpoint, on the CPU; nothing in it can run code.

    Raises:
        FileNotFoundError: No file at `path`.
        CheckpointError: The file is damaged, truncated, or was not written by `fit`.
    """
    raw = Path(path).read_bytes()
    archive, comment = raw[:-_COMMENT], raw[-_COMMENT:]
    if archive[-_END_BYTES:][:4] != _END_OF_ARCHIVE or not comment.startswith(_LABEL):
        origin = "so truncated or not written by graphtheory.lab.train.fit"
        told = f"{len(raw)} bytes without a digest at their end, {origin}"
        raise CheckpointError(f"{path}: {told}; expected one of its checkpoints")
    if hashlib.sha256(archive).hexdigest().encode() != comment[len(_LABEL) :]:
        told = f"damaged, its {len(raw)} bytes do not match their own SHA-256"
        raise CheckpointError(f"{path}: {told}; restore a copy or remove the file and start again")
    try:
        return load_tensors(raw)
    except Exception:  # torch names no class for what its safe loader refuses
        told = "holds more than tensors and plain values"
        origin = "so it was not written by graphtheory.lab.train"
        raise CheckpointError(f"{path}: {told}, {origin}; nothing in it was run") from None


def load_parameters(task: Task, path: str | PathLike[str]) -> None:
    """Put the parameters of a checkpoint into a task whose model has the same shapes.

    Raises:
        FileNotFoundError: No file at `path`.
        CheckpointError: Damaged, or of another model; the message names the first difference.
    """
    state = read_checkpoint(path)["state_dict"]
    difference = first_difference(shapes(state), shapes(task.state_dict()))
    if difference:
        model = type(task.model).__name__
        raise CheckpointError(f"{path}: checkpoint of another model than {model}: {difference}")
    task.load_state_dict(state)


def first_difference(found: dict[str, Any], expected: dict[str, Any]) -> str:
    """Say in one clause where two descriptions part; '' where they do not."""
    for name in {**expected, **found}:
        here, there = found.get(name, "absent"), expected.get(name, "absent")
        if isinstance(here, dict) and isinstance(there, dict):
            if inner := first_difference(here, there):
                return f"{name}: {inner}"
        elif here != there:
            return f"{name} is {here} there, {there} here"
    return ""


class SafeCheckpointIO(TorchCheckpointIO):
    """Lightning's plugin for the above: atomic, verified, nothing executable."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, *_: Any, **__: Any) -> None:
        write_checkpoint(path, checkpoint)

    def load_checkpoint(self, path: Any, *_: Any, **__: Any) -> dict[str, Any]:
        return read_checkpoint(path)


@contextmanager
def locked(folder: Path, name: str = ".lock") -> Iterator[None]:
    """Refuse a second process; the lock goes with the process, however that ends."""
    try:
        with FileLock(folder / name, timeout=0):
            yield
    except Timeout:
        message = "out_dir: another run is using it"
        raise BlockingIOError(errno.EAGAIN, message, str(folder)) from None


@contextmanager
def checkpoint_dir(folder: Path) -> Iterator[None]:
    """Let trainings in the block, in order, keep states in `folder`/0, 1 and go on from there."""
    token = _PLACES.set(folder / str(number) for number in count())
    try:
        yield
    finally:
        _PLACES.reset(token)


def next_place() -> Path | None:
    """Take the folder of the next training in a block of `checkpoint_dir`; None outside one."""
    places = _PLACES.get()
    return None if places is None else next(places)


@contextmanager
def warn_if_unwritable() -> Iterator[None]:
    """Turn an error of the disk into a warning, where a training can go on without its file."""
    try:
        yield
    except OSError as error:
        said = "state of a training was not written, after a break it would start anew"
        warnings.warn(f"{said}: {error}", stacklevel=2)


@dataclass
class Clock:
    """Tells when it is time to write again, about once a minute."""

    last: float = field(default_factory=time.monotonic)

    def due(self) -> bool:
        """Whether it is time, from which the next minute counts."""
        over = time.monotonic() - self.last >= SECONDS
        self.last = time.monotonic() if over else self.last
        return over


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


@dataclass
class TrainingState:
    """The state of a training loop of your own, written to a file about once a minute."""

    path: Path | None  # its folder is made where it is missing; None keeps nothing
    settings: dict[str, Any]  # what has to be the same for a training to go on, as plain values
    generator: Generator  # source of what it draws, beside torch's global one
    parts: dict[str, Any]  # what has a state, "model" among them, in the order of loading
    clock: Clock = field(default_factory=Clock)

    def save(self, losses: list[float], *, last: bool = False) -> None:
        """Write the state after a step if a minute has passed, or if it was the last."""
        if self.path is None or not (self.clock.due() or last):
            return
        state = {name: part.state_dict() for name, part in self.parts.items()}
        state |= {"prompts": self.generator.get_state(), "others": torch.get_rng_state()}
        write_checkpoint(self.path, state | {"settings": self.settings, "losses": losses})

    def restore(self) -> list[float]:
        """Put what the file holds into the parts; the losses so far, none without a file."""
        if self.path is None or not self.path.exists():
            return []
        state = read_checkpoint(self.path)
        if "losses" not in state or not self.parts.keys() <= state.keys():
            raise CheckpointError(f"{self.path}: not written by train_in_context or a study")
        there, here = shapes(state["model"]), shapes(self.parts["model"].state_dict())
        known = state["settings"] | {"model": there}
        if difference := first_difference(known, self.settings | {"model": here}):
            raise CheckpointError(f"{self.path}: another training: {difference}")
        for name, part in self.parts.items():
            part.load_state_dict(state[name])
        self.generator.set_state(state["prompts"])
        torch.set_rng_state(state["others"])
        return state["losses"]
