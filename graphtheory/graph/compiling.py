"""Keeps machine code that numba makes on disk, and says once a process that it takes a while."""

import logging
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from pathlib import Path
from time import perf_counter
from typing import Any

from numba import njit
from numba.core import event


@cache
def _sources(folder: Path) -> str:
    """A digest of the files of a folder."""
    files = sorted(folder.rglob("*.py"))
    return sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def kept_on_disk(folder: Path, function: Callable[..., Any], **options: Any) -> Any:
    """Compile a function as numba does, and keep its machine code until a file there changes.

    By itself numba looks at the file of the function only, but functions of other files are in its
    code, too.
    """
    found = njit(cache=True, **options)(function)
    file = found._cache._cache_file
    file._source_stamp = file._source_stamp, _sources(folder)
    return found


class _Notice(event.Listener):
    """Warns by the logger "graphtheory"; parts of a kernel end long before the kernel does."""

    depth, start, told = 0, 0.0, False

    def on_start(self, found: Any) -> None:
        self.start = self.start if self.depth else perf_counter()
        self.depth += 1

    def on_end(self, found: Any) -> None:
        self.depth -= 1
        ours = found.data["dispatcher"].py_func.__module__.startswith("graphtheory.")
        if ours and not self.told and perf_counter() - self.start > 0.5:
            self.told = True
            logging.getLogger("graphtheory").warning(
                "graphtheory is compiling its CPU kernels, which takes some seconds, once; "
                "`graphtheory warmup` does so ahead of time"
            )


notice = _Notice()
event.register("numba:compile", notice)
