"""Files that are whole or absent, whatever ends the process that writes them."""

from __future__ import annotations

import glob
import os
import shutil
import time
from contextlib import suppress
from pathlib import Path

_OLD = 3_600.0  # seconds


def replace_file(path: Path, content: bytes | bytearray) -> None:
    """Write beside the file, to the disk, then rename over it.

    What a writer left beside it that was killed an hour ago or more is removed.

    Raises:
        OSError: With path, bytes needed and bytes free; the old file is intact.
    """
    draft = _draft_of(path)
    try:
        with draft.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
        _sync_folder(path.parent)
        _sweep(path)
    except OSError as error:
        free = shutil.disk_usage(path.parent).free
        raise OSError(
            error.errno,
            f"{os.strerror(error.errno or 0)}: {len(content)} bytes needed, {free} free; "
            "an earlier file is intact",
            str(path),
        ) from None
    finally:
        draft.unlink(missing_ok=True)


def name_file(path: Path, name: Path) -> None:
    """Give the file a second name beside it, in the place of what had that name, in one step.

    Where a disk has no links, the second name is of a copy.
    """
    draft = _draft_of(name)
    try:
        try:
            os.link(path, draft)
        except OSError:
            shutil.copyfile(path, draft)
        draft.replace(name)
        _sweep(name)
    finally:
        draft.unlink(missing_ok=True)


def _draft_of(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}.draft")


def _sync_folder(folder: Path) -> None:
    if os.name != "posix":  # a folder cannot be opened elsewhere
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sweep(path: Path) -> None:
    """Younger drafts may be another process's, on a disk that machines share."""
    for draft in path.parent.glob(f".{glob.escape(path.name)}.*.draft"):
        with suppress(OSError):
            if time.time() - draft.stat().st_mtime > _OLD:
                draft.unlink()
