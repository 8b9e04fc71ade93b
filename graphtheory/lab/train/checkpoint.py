"""Checkpoint files that are whole or absent and notice one flipped bit, and folders of them.

They are zip archives of `torch.save` whose comment is the SHA-256 of everything before it.
"""

import hashlib
import io
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import count
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.plugins.io import TorchCheckpointIO
from torch import Generator

from graphtheory.disk import load_tensors, replace_file
from graphtheory.lab.train.contract import Task, shapes

SECONDS = 60.0  # between two writes of a training that keeps its state now and then
_LABEL = b"sha256:"
_COMMENT = len(_LABEL) + 64
_END_OF_ARCHIVE, _END_BYTES = b"PK\x05\x06", 22
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
    state = read_checkpoint(path).get("state_dict")
    if not isinstance(state, dict):
        raise CheckpointError(f"{path}: without parameters of a task, expected a checkpoint of fit")
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
