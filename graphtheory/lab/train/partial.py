"""The state of a training that has not ended, in a file from which it goes on."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import count
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Generator

from graphtheory.lab.train.checkpoint import (
    CheckpointError,
    first_difference,
    read_checkpoint,
    write_checkpoint,
)
from graphtheory.lab.train.contract import shapes

SECONDS = 60.0  # between two writes
_PLACES: ContextVar[Iterator[Path] | None] = ContextVar("places", default=None)


@contextmanager
def checkpoint_dir(folder: Path) -> Iterator[None]:
    """Let each training in the block keep its state under `folder`, and go on from what is there.

    The first one has the folder 0, the next one 1 and so on, so that a block that is run again has
    to train in the same order.
    """
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
        warnings.warn(
            f"state of a training was not written, after a break it would start anew: {error}",
            stacklevel=2,
        )


class Clock:
    """Tells when it is time to write again, about once a minute."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def due(self) -> bool:
        """Whether it is time, from which the next minute counts."""
        if time.monotonic() - self._last < SECONDS:
            return False
        self._last = time.monotonic()
        return True


class TrainingState:
    """The state of a training loop of your own, written to a file about once a minute.

    Args:
        path: The file; its folder is made where it is missing. None: nothing is kept.
        settings: What has to be the same for a training to go on, as plain values.
        generator: Source of what it draws, beside torch's global one.
        **parts: What has a state, `model` among them, in the order in which it is put back.
    """

    def __init__(
        self,
        path: str | PathLike[str] | None,
        settings: dict[str, Any],
        generator: Generator,
        **parts: Any,
    ) -> None:
        self.path = None if path is None else Path(path)
        self._settings, self._clock = settings, Clock()
        self._generator, self._parts = generator, parts

    def save(self, losses: list[float], *, last: bool = False) -> None:
        """Write the state after so many steps if a minute is over, or they were the last."""
        if self.path is None or not (self._clock.due() or last):
            return
        drawn = {"prompts": self._generator.get_state(), "others": torch.get_rng_state()}
        state = {name: part.state_dict() for name, part in self._parts.items()}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_checkpoint(self.path, state | drawn | {"settings": self._settings, "losses": losses})

    def restore(self) -> list[float]:
        """Put what the file holds into the parts; the losses so far, none without a file.

        Raises:
            CheckpointError: Damaged, or of another training; the message says what differs.
        """
        if self.path is None or not self.path.exists():
            return []
        state = read_checkpoint(self.path)
        if "losses" not in state or not self._parts.keys() <= state.keys():
            raise CheckpointError(f"{self.path}: not written by train_in_context or a study")
        difference = first_difference(
            state["settings"] | {"model": shapes(state["model"])},
            self._settings | {"model": shapes(self._parts["model"].state_dict())},
        )
        if difference:
            raise CheckpointError(f"{self.path}: another training: {difference}")
        for name, part in self._parts.items():
            part.load_state_dict(state[name])
        self._generator.set_state(state["prompts"])
        torch.set_rng_state(state["others"])
        return state["losses"]
