"""Processed arrays on disk: plain npz, nothing executable, every byte covered by a SHA-256."""

from __future__ import annotations

import hashlib
import io
import os
import warnings
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from graphtheory.disk import replace_file

_HASH_BYTES = 32


def default_folder() -> Path:
    """$GRAPHTHEORY_CACHE, or ~/.cache/graphtheory."""
    return Path(os.environ.get("GRAPHTHEORY_CACHE", "~/.cache/graphtheory")).expanduser()


def write(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Store arrays under `path`: its SHA-256, then an npz; complete or not at all.

    Args:
        path: Where; the folder is made.
        arrays: Numbers only.

    Raises:
        OSError: The folder cannot be written; the message says how to choose another.
    """
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # type: ignore[arg-type]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        content = buffer.getvalue()
        replace_file(path, hashlib.sha256(content).digest() + content)
    except OSError as error:
        raise OSError(
            f"cache: {path} cannot be written ({error.strerror}); "
            "give another folder as cache= or in GRAPHTHEORY_CACHE"
        ) from error


def read(path: Path) -> dict[str, np.ndarray] | None:
    """The arrays stored under `path`; None when there are none, or when they are damaged.

    A damaged file is reported as a warning; the caller makes it again from the raw files.

    Args:
        path: Where `write` put them.
    """
    if not path.is_file():
        return None
    content = path.read_bytes()
    if hashlib.sha256(content[_HASH_BYTES:]).digest() != content[:_HASH_BYTES]:
        warnings.warn(f"{path}: damaged, made again from the raw files", stacklevel=2)
        return None
    with np.load(io.BytesIO(content[_HASH_BYTES:]), allow_pickle=False) as stored:
        return {name: stored[name] for name in stored.files}
