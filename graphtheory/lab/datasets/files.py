"""Raw files are found, checked against their pinned hashes, and copied to where they are read."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from os import PathLike
from pathlib import Path

from graphtheory.lab.datasets.catalogue import GIT_BLOB, SHA256, DatasetInfo


class DamagedFileError(ValueError):
    """A raw file is not, byte for byte, the published one."""


def locate(info: DatasetInfo, root: str | PathLike[str] | None) -> dict[str, Path]:
    """The raw files of a data set under `root`, by their path below `root`.

    Raises:
        FileNotFoundError: Files are missing; one sentence says which, where they go and where
            they come from. Nothing is ever downloaded.
    """
    place = f"{info.folder}/ ({len(info.files)} raw files from {info.source})"
    if root is None:
        raise FileNotFoundError(
            f"root: {info.name} does not come with the package, give the folder that has {place}"
        )
    folder = Path(root) / info.folder
    missing = [name for name in info.files if not (folder / name).is_file()]
    if missing:
        listed = ", ".join(missing[:4]) + (", ..." if len(missing) > 4 else "")
        raise FileNotFoundError(
            f"{info.name}: {len(missing)} of {len(info.files)} raw files are missing ({listed}); "
            f"put them into {folder} (source: {info.source}), nothing is downloaded"
        )
    present = [name for name in info.optional_files if (folder / name).is_file()]
    return {f"{info.folder}/{name}": folder / name for name in (*info.files, *present)}


def locate_topology(
    info: DatasetInfo, root: str | PathLike[str] | None, *more: str
) -> dict[str, Path]:
    """Find those files of a Planetoid set that hold no features, in either of two folders.

    Args:
        info: A Planetoid set.
        root: Folder that holds Planetoid/<name>/raw or Planetoid_<name>_partial.
        more: Ends of the names of other files that are needed, such as ".tx".

    Raises:
        FileNotFoundError: Neither folder has all of them.
    """
    parts = (".y", ".ally", ".ty", ".graph", ".test.index", *more)
    needed = replace(info, files=tuple(n for n in info.files if n.endswith(parts)))
    partial = Path(root or "") / f"Planetoid_{info.name}_partial"
    if root is not None and all((partial / name).is_file() for name in needed.files):
        return {f"{info.folder}/{name}": partial / name for name in needed.files}
    return locate(needed, root)


def digests(files: Mapping[str, Path], *, all_pinned: bool = False) -> dict[str, str]:
    """SHA-256 of every file, each checked against its pin where one is known.

    Args:
        files: Paths by name below `root`, as `locate` returns them.
        all_pinned: Refuse a file without a pin: for formats that can carry code.

    Raises:
        DamagedFileError: A file differs from its pin; names the file, both sizes and both hashes.
    """
    found = {}
    for name, path in files.items():
        content = path.read_bytes()
        found[name] = hashlib.sha256(content).hexdigest()
        folder, _, file = name.rpartition("/")
        pin = SHA256.get(folder, {}).get(file)
        if pin is None and all_pinned:
            raise DamagedFileError(f"{path}: no SHA-256 is known for it, so it is not opened")
        if pin is None or found[name] == pin[1]:
            continue
        blob = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False)
        if blob.hexdigest() != GIT_BLOB.get(folder, {}).get(file):
            raise DamagedFileError(
                f"{path}: expected {pin[0]:,} bytes with SHA-256 {pin[1]}, found "
                f"{len(content):,} bytes with SHA-256 {found[name]}; the file is truncated or "
                "altered, fetch it again"
            )
    return found


def verify_counts(info: DatasetInfo, found: Mapping[str, int]) -> None:
    """Compare the numbers that came out of the raw files with `info.counts`.

    Raises:
        DamagedFileError: A number differs.
    """
    for what, expected in info.counts:
        if found[what] != expected:
            raise DamagedFileError(
                f"{info.name}: expected {expected:,} {what}, found {found[what]:,}; a raw file in "
                f"{info.folder} is truncated, altered or of another release"
            )


@contextmanager
def staged(files: Mapping[str, Path], expected: Mapping[str, str]) -> Iterator[Path]:
    """A private, writable root with copies of the raw files, removed afterwards.

    PyG and ogb write beside the raw files they read, and load what they find there by unpickling:
    here is nothing but what `expected`, the SHA-256 of each file, vouches for, and the copies are
    what was checked.

    Raises:
        DamagedFileError: A file changed between the check and the copy.
    """
    with tempfile.TemporaryDirectory(prefix="graphtheory-") as folder:
        for name, path in files.items():
            copy = Path(folder) / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
            if hashlib.sha256(copy.read_bytes()).hexdigest() != expected[name]:
                raise DamagedFileError(f"{path}: changed while it was being read")
        yield Path(folder)
