"""Raw files by PyG's and ogb's own classes, put in place only when they are whole and right."""

from __future__ import annotations

import contextlib
import io
import shutil
import sys
import tempfile
from collections.abc import Callable
from inspect import signature
from pathlib import Path
from typing import Any
from unittest.mock import patch

from graphtheory.lab.datasets.catalogue import DatasetInfo, Root
from graphtheory.lab.datasets.files import PICKLED, DamagedFileError, digests, folder_of
from graphtheory.lab.datasets.graph_readers import import_ogb


class _FetchedError(Exception):
    """Ends the constructor of a data set whose files are there."""


def fetch(info: DatasetInfo, root: Root, check: Callable[[Path], Any]) -> None:
    """Download the raw files of a set that has none below `root`, unless `check` refuses them.

    All happens in a folder of its own, which is removed in any case. `check` gets it as a root.
    """
    if info.embedded or folder_of(info, root) is not None:
        return
    if not info.fetched_by:
        raise ValueError(f"download: no class fetches {info.name}; get the files {info.how}")
    if root is None:
        raise ValueError(f"root: got None, expected the folder to download {info.name} into")
    Path(root).mkdir(parents=True, exist_ok=True)
    prefix = f".download-{info.name}-"
    for left in Path(root).glob(f"{prefix}*"):  # of a process that was killed
        shutil.rmtree(left)
    with tempfile.TemporaryDirectory(prefix=prefix, dir=root) as private:
        place = Path(private) / "root"
        try:
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(sys.stdout):
                made = _by_class(info, Path(private) / "made")
        except Exception as error:  # urllib, aiohttp, zipfile and ogb each have their own
            told = f"could not be downloaded ({type(error).__name__}: {error}), nothing is kept"
            raise OSError(f"{info.name}: {told}; try again, or get the files {info.how}") from error
        (place / info.folder).parent.mkdir(parents=True)
        made.rename(place / info.folder)
        files = [n for n in info.optional_files if (place / info.folder / n).is_file()]
        try:
            if folder_of(info, place) is None:
                raise DamagedFileError(f"the download has not all of {', '.join(info.files)}")
            found = {f"{info.folder}/{n}": place / info.folder / n for n in (*info.files, *files)}
            digests(info, found, all_pinned=info.family in PICKLED)
            check(place)
        except ValueError as error:
            raise DamagedFileError(f"{info.name}: {error}; what came was deleted") from error
        for name, path in found.items():
            (Path(root) / name).parent.mkdir(parents=True, exist_ok=True)
            path.replace(Path(root) / name)


def _by_class(info: DatasetInfo, place: Path) -> Path:
    """Let the class of a set download into `place`, without what it makes of the files."""
    package, _, name = info.fetched_by.rpartition(".")
    kind = getattr(import_ogb(package), name)

    def stop(self: Any) -> None:
        raise _FetchedError(self.raw_dir)

    named = {"name": info.name} if "name" in signature(kind).parameters else {}
    # ogb would ask once more above 1 GB.
    asks = patch.object(sys.modules[kind.__module__], "decide_download", bool, create=True)
    try:
        with asks:
            type(name, (kind,), {"_process": stop})(root=str(place), **named)
    except _FetchedError as done:
        raw = Path(str(done))
        return raw if (raw / info.files[0]).is_file() else raw.parent
    raise AssertionError(f"{name} did not process its files")
