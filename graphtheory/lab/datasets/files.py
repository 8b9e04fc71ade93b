"""Raw files are found, checked, read in a private copy, and kept as plain arrays in a cache.

A file of the cache is an npz of numbers behind its SHA-256: nothing executable, every byte covered.
"""

import hashlib
import io
import json
import os
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
import torch_geometric
from torch import Tensor

from graphtheory.disk import replace_file
from graphtheory.lab.datasets.catalogue import DatasetInfo, Root

_HASH_BYTES = 32
_FORMAT = 2  # of what a reader returns
PICKLED = ("planetoid", "cifar-pickles")
Reader = Callable[[Path], Mapping[str, Tensor]]


class DamagedFileError(ValueError):
    """A raw file is not, byte for byte, the published one."""


def folder_of(info: DatasetInfo, root: Root) -> Path | None:
    """The folder with all raw files, ours or as PyG and ogb lay it out right below `root`."""
    places = () if root is None else (info.folder, info.folder.partition("/")[2])
    folders = (Path(root or "") / place for place in places if place)
    return next((f for f in folders if all((f / n).is_file() for n in info.files)), None)


def locate(info: DatasetInfo, root: Root) -> dict[str, Path]:
    """The raw files of a data set, by their path below `root`; nothing is downloaded."""
    if root is None:
        raise FileNotFoundError(
            f"root: {info.name} does not come with the package, give the folder that has "
            f"{info.folder}/; get its {len(info.files)} raw files {info.how}"
        )
    folder = folder_of(info, root) or Path(root) / info.folder
    missing = [name for name in info.files if not (folder / name).is_file()]
    if missing:
        listed = ", ".join(missing[:4]) + (", ..." if len(missing) > 4 else "")
        raise FileNotFoundError(
            f"{info.name}: {len(missing)} of {len(info.files)} raw files are missing ({listed}); "
            f"get them {info.how}, into {folder}"
        )
    present = [name for name in info.optional_files if (folder / name).is_file()]
    return {f"{info.folder}/{name}": folder / name for name in (*info.files, *present)}


def digests(
    info: DatasetInfo, files: Mapping[str, Path], *, all_pinned: bool = False
) -> dict[str, str]:
    """SHA-256 of files, each checked against its pin; `all_pinned` refuses a file without one."""
    found = {}
    for name, path in files.items():
        content, file = path.read_bytes(), name.removeprefix(f"{info.folder}/")
        found[name] = hashlib.sha256(content).hexdigest()
        size, pin = info.sha256.get(file, (0, None))
        if pin is None and file in info.md5:
            md5 = hashlib.md5(content, usedforsecurity=False).hexdigest()
            if md5 != info.md5[file]:
                raise DamagedFileError(
                    f"{path}: MD5 {md5}, expected {info.md5[file]}; the file is truncated or "
                    "altered"
                )
        elif pin is None and all_pinned:
            raise DamagedFileError(f"{path}: no SHA-256 is known for it, so it is not opened")
        elif pin not in (None, found[name]):
            blob = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False)
            if blob.hexdigest() != info.git_blob.get(file):
                raise DamagedFileError(
                    f"{path}: expected {size:,} bytes with SHA-256 {pin}, found {len(content):,} "
                    f"bytes with SHA-256 {found[name]}; the file is truncated or altered, fetch it "
                    "again"
                )
    return found


def verify_counts(info: DatasetInfo, found: Mapping[str, int]) -> None:
    """Raise DamagedFileError unless `info.counts` are what came out of the raw files."""
    for what, expected in info.counts:
        if found[what] != expected:
            raise DamagedFileError(
                f"{info.name}: expected {expected:,} {what}, found {found[what]:,}; a raw file in "
                f"{info.folder} is truncated, altered or of another release"
            )


@contextmanager
def staged(files: Mapping[str, Path], expected: Mapping[str, str]) -> Iterator[Path]:
    """A private, writable root with copies of the raw files, removed afterwards.

    PyG and ogb write beside raw files, and unpickle what they find there: here is nothing else.
    """
    with tempfile.TemporaryDirectory(prefix="graphtheory-") as folder:
        for name, path in files.items():
            copy = Path(folder) / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
            if hashlib.sha256(copy.read_bytes()).hexdigest() != expected[name]:
                raise DamagedFileError(f"{path}: changed while it was being read")
        yield Path(folder)


@contextmanager
def staged_topology(info: DatasetInfo, root: Root, *more: str) -> Iterator[Path]:
    """A folder with those files of a Planetoid set without features, and `more` by their ends."""
    parts = (".y", ".ally", ".ty", ".graph", ".test.index", *more)
    needed = replace(info, files=tuple(n for n in info.files if n.endswith(parts)))
    partial = replace(needed, folder=f"Planetoid_{info.name}_partial")
    needed = needed if folder_of(partial, root) is None else partial
    found = locate(needed, root)
    with staged(found, digests(needed, found, all_pinned=True)) as private:
        yield private / needed.folder


def cache_folder() -> Path:
    """The folder $GRAPHTHEORY_CACHE, or ~/.cache/graphtheory."""
    return Path(os.environ.get("GRAPHTHEORY_CACHE", "~/.cache/graphtheory")).expanduser()


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Store arrays of numbers under `path`, complete or not at all."""
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # type: ignore[arg-type]
    content = buffer.getvalue()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, hashlib.sha256(content).digest() + content)
    except OSError as error:
        raise OSError(
            f"cache: {path} cannot be written ({error.strerror}); "
            "give another folder in GRAPHTHEORY_CACHE"
        ) from error


def read_arrays(path: Path) -> dict[str, np.ndarray] | None:
    """The arrays stored under `path`; None when there are none or, with a warning, damaged ones."""
    if not path.is_file():
        return None
    content = path.read_bytes()
    if hashlib.sha256(content[_HASH_BYTES:]).digest() != content[:_HASH_BYTES]:
        warnings.warn(f"{path}: damaged, made again from the raw files", stacklevel=2)
        return None
    with np.load(io.BytesIO(content[_HASH_BYTES:]), allow_pickle=False) as stored:
        return {name: stored[name] for name in stored.files}


def processed(
    info: DatasetInfo, root: Root, reader: Reader, *, readers: Sequence[str] = ()
) -> dict[str, Tensor]:
    """Tensors that a reader makes of a private copy of the raw files, from the cache if there."""
    found = locate(info, root)
    hashes = digests(info, found, all_pinned=info.family in PICKLED)
    versions = [_FORMAT, torch_geometric.__version__, info.name, *readers]
    key = hashlib.sha256(json.dumps([versions, hashes], sort_keys=True).encode()).hexdigest()
    path = cache_folder() / f"{info.name}-{key[:16]}.arrays"
    stored = read_arrays(path)
    if stored is None:
        hush = io.StringIO()  # PyG and ogb report every step with print and progress bars
        with staged(found, hashes) as private:
            try:
                with redirect_stdout(hush), redirect_stderr(hush):
                    stored = {name: value.numpy() for name, value in reader(private).items()}
            except (MemoryError, ImportError, DamagedFileError):
                raise
            except Exception as error:  # readers of a dozen formats fail in as many ways
                alone = f" ({info.files[0]})" if len(info.files) == 1 else ""
                raise DamagedFileError(
                    f"{info.name}: the raw files of {info.folder}{alone} cannot be read, one is "
                    f"truncated or altered ({type(error).__name__}: {error})"
                ) from error
        write_arrays(path, stored)
    return {name: torch.from_numpy(value) for name, value in stored.items()}
