"""Checkpoint files that are whole or absent, and that notice one flipped bit.

A file is what `torch.save` writes, a zip archive, with the SHA-256 of everything before it as the
archive's comment: one file, and `torch.load(path, weights_only=True)` reads it as it is.
"""

from __future__ import annotations

import hashlib
import io
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.plugins.io import TorchCheckpointIO

from graphtheory.disk import load_tensors, replace_file
from graphtheory.lab.train.contract import Task, shapes

_LABEL = b"sha256:"
_COMMENT = len(_LABEL) + 64
_END_OF_ARCHIVE, _END_BYTES = b"PK\x05\x06", 22


class CheckpointError(ValueError):
    """A checkpoint that is damaged, or not one of this run."""


def write_checkpoint(path: str | PathLike[str], content: dict[str, Any]) -> None:
    """Replace the file at `path` in one step; a crash at any time leaves the old or the new one.

    Raises:
        OSError: The file cannot be written; the old one is intact.
    """
    buffer = io.BytesIO()
    torch.save(content, buffer)
    replace_file(Path(path), _sealed(bytearray(buffer.getbuffer())))


def read_checkpoint(path: str | PathLike[str]) -> dict[str, Any]:
    """Read the content of a checkpoint, on the CPU; nothing in it can run code.

    Raises:
        FileNotFoundError: No file at `path`.
        CheckpointError: The file is damaged, truncated, or was not written by `fit`.
    """
    raw = Path(path).read_bytes()
    end = len(raw) - _COMMENT
    if raw[end - _END_BYTES : end - _END_BYTES + 4] != _END_OF_ARCHIVE or not raw[end:].startswith(
        _LABEL
    ):
        raise CheckpointError(
            f"{path}: {len(raw)} bytes without a digest at their end, so truncated or not written "
            "by graphtheory.lab.train.fit; expected one of its checkpoints"
        )
    if hashlib.sha256(raw[:end]).hexdigest().encode() != raw[end + len(_LABEL) :]:
        raise CheckpointError(
            f"{path}: damaged, its {len(raw)} bytes do not match their own SHA-256; restore a copy "
            "or remove the file and start again"
        )
    try:
        return load_tensors(raw)
    except Exception:  # torch names no class for what its safe loader refuses
        raise CheckpointError(
            f"{path}: holds more than tensors and plain values, so it was not written by "
            "graphtheory.lab.train; nothing in it was run"
        ) from None


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


def _sealed(archive: bytearray) -> bytearray:
    """Add the digest as the archive's comment, whose length the last two bytes tell."""
    archive[-2:] = _COMMENT.to_bytes(2, "little")
    archive += _LABEL + hashlib.sha256(archive).hexdigest().encode()
    return archive


class SafeCheckpointIO(TorchCheckpointIO):
    """Lightning's plugin for the above: atomic, verified, nothing executable."""

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | PathLike[str], storage_options: Any = None
    ) -> None:
        write_checkpoint(path, checkpoint)

    def load_checkpoint(
        self, path: str | PathLike[str], map_location: Any = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        return read_checkpoint(path)
