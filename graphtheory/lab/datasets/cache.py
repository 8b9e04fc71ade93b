"""Processed data sets on disk: plain npz, nothing executable, every byte covered by a SHA-256."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path

import numpy as np
import torch
import torch_geometric
from torch import Tensor

from graphtheory.disk import replace_file
from graphtheory.lab.datasets.catalogue import DatasetInfo
from graphtheory.lab.datasets.files import DamagedFileError, digests, locate, staged

_HASH_BYTES = 32
_FORMAT = 2  # of what a reader returns


def default_folder() -> Path:
    """The folder $GRAPHTHEORY_CACHE, or ~/.cache/graphtheory."""
    return Path(os.environ.get("GRAPHTHEORY_CACHE", "~/.cache/graphtheory")).expanduser()


def write(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Store arrays of numbers under `path`: their SHA-256, then an npz; complete or not at all.

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
    """
    if not path.is_file():
        return None
    content = path.read_bytes()
    if hashlib.sha256(content[_HASH_BYTES:]).digest() != content[:_HASH_BYTES]:
        warnings.warn(f"{path}: damaged, made again from the raw files", stacklevel=2)
        return None
    with np.load(io.BytesIO(content[_HASH_BYTES:]), allow_pickle=False) as stored:
        return {name: stored[name] for name in stored.files}


def processed(
    info: DatasetInfo,
    root: str | PathLike[str] | None,
    cache: str | PathLike[str] | None,
    reader: Callable[[Path], Mapping[str, Tensor]],
    *,
    readers: Sequence[str] = (),
) -> dict[str, Tensor]:
    """The tensors that a reader makes of a data set's raw files, from the cache where they are.

    The cache knows them by the content of every raw file and the versions of the readers: other
    files or another release of PyG never meet an old entry.

    Args:
        info: The data set.
        root: Folder with the raw files; may be read-only.
        cache: Folder for processed arrays; None for the default.
        reader: Gets a private root with copies of the raw files.
        readers: What else decides what comes out, such as releases of other packages.

    Raises:
        FileNotFoundError: Raw files are missing.
        DamagedFileError: A raw file is truncated or altered.
        OSError: The cache cannot be written.
    """
    found = locate(info, root)
    hashes = digests(found, all_pinned=info.family == "planetoid")
    versions = [_FORMAT, torch_geometric.__version__, info.name, *readers]
    key = hashlib.sha256(json.dumps([versions, hashes], sort_keys=True).encode()).hexdigest()
    folder = default_folder() if cache is None else Path(cache)
    path = folder / f"{info.name}-{key[:16]}.arrays"
    stored = read(path)
    if stored is None:
        with staged(found, hashes) as private:
            stored = {name: value.numpy() for name, value in _made(info, reader, private).items()}
        write(path, stored)
    return {name: torch.from_numpy(value) for name, value in stored.items()}


def _made(
    info: DatasetInfo, reader: Callable[[Path], Mapping[str, Tensor]], private: Path
) -> Mapping[str, Tensor]:
    hush = io.StringIO()  # PyG and ogb report every step with print and progress bars
    try:
        with contextlib.redirect_stdout(hush), contextlib.redirect_stderr(hush):
            return reader(private)
    except (MemoryError, ImportError, DamagedFileError):
        raise
    except Exception as error:  # readers of a dozen formats fail in as many ways
        raise DamagedFileError(
            f"{info.name}: the raw files of {info.folder} cannot be read, one is truncated or "
            f"altered ({type(error).__name__}: {error})"
        ) from error
