"""From raw files to tensors, once: checked, read in a private copy, kept in the cache."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path

import torch
import torch_geometric
from torch import Tensor

from graphtheory.lab.datasets import cache as storage
from graphtheory.lab.datasets import files
from graphtheory.lab.datasets.catalogue import DatasetInfo

_FORMAT = 1  # of what a reader returns


def processed(
    info: DatasetInfo,
    root: str | PathLike[str] | None,
    cache: str | PathLike[str] | None,
    read: Callable[[Path], Mapping[str, Tensor]],
    *,
    readers: Sequence[str] = (),
) -> dict[str, Tensor]:
    """The tensors that `read` makes of a data set's raw files, from the cache where they are.

    The cache knows them by the content of every raw file and the versions of the readers: other
    files or another release of PyG never meet an old entry.

    Args:
        info: The data set.
        root: Folder that holds `info.folder`; may be read-only.
        cache: Folder for processed arrays; None for the default.
        read: Gets a private root with copies of the raw files.
        readers: What else decides what comes out, such as releases of other packages.

    Raises:
        FileNotFoundError: Raw files are missing.
        DamagedFileError: A raw file is truncated or altered.
        OSError: The cache cannot be written.
    """
    found = files.locate(info, root)
    digests = files.digests(found, all_pinned=info.family == "planetoid")
    versions = [_FORMAT, torch_geometric.__version__, info.name, *readers]
    key = hashlib.sha256(json.dumps([versions, digests], sort_keys=True).encode()).hexdigest()
    folder = storage.default_folder() if cache is None else Path(cache)
    path = folder / f"{info.name}-{key[:16]}.arrays"
    stored = storage.read(path)
    if stored is None:
        with files.staged(found, digests) as private:
            stored = {name: value.numpy() for name, value in _read(info, read, private).items()}
        storage.write(path, stored)
    return {name: torch.from_numpy(value) for name, value in stored.items()}


def _read(
    info: DatasetInfo, read: Callable[[Path], Mapping[str, Tensor]], private: Path
) -> Mapping[str, Tensor]:
    try:
        return read(private)
    except (MemoryError, ImportError, files.DamagedFileError):
        raise
    except Exception as error:  # readers of a dozen formats fail in as many ways
        raise files.DamagedFileError(
            f"{info.name}: the raw files of {info.folder} cannot be read, one is truncated or "
            f"altered ({type(error).__name__}: {error})"
        ) from error
