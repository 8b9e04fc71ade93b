"""Files that are whole or absent, and files of torch that nobody vouches for."""

from __future__ import annotations

import glob
import io
import os
import pickletools
import shutil
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch

_OLD = 3_600.0  # seconds
_DEEP = 1_000  # tuples within tuples, more than any graph or checkpoint has
_PICKLES = 5  # that torch's format begins with that came before archives


def replace_file(path: Path, content: bytes | bytearray) -> None:
    """Write beside the file, to the disk, then rename; on failure the old file is intact."""
    draft = _draft_of(path)
    try:
        with draft.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
        if os.name == "posix":  # a folder cannot be opened elsewhere
            folder = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
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


def check_empty(path: Path) -> Path:
    """Raise where something lies in the folder."""
    if path.exists() and any(path.iterdir()):
        raise FileExistsError(f"folder: something lies in {path}, expected an empty one")
    return path


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """A folder to write to, which gets its name when all is written; on failure it goes."""
    path = check_empty(path.absolute())
    draft = _draft_of(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    _sweep(path)
    draft.mkdir()
    try:
        yield draft
        with suppress(FileNotFoundError):
            path.rmdir()  # that an empty one may take its name is not so everywhere
        draft.rename(path)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def name_file(path: Path, name: Path) -> None:
    """Give the file a second name beside it, in one step; a copy where there are no links."""
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


def _sweep(path: Path) -> None:
    """Younger drafts may be another process's, on a disk that machines share."""
    for draft in path.parent.glob(f".{glob.escape(path.name)}.*.draft"):
        with suppress(OSError):
            files = [*draft.iterdir()] if draft.is_dir() else []
            if time.time() - max(file.stat().st_mtime for file in (draft, *files)) > _OLD:
                shutil.rmtree(draft) if draft.is_dir() else draft.unlink()


def load_tensors(content: bytes) -> Any:
    """What `torch.save` stored, by torch's safe loader, on the CPU; deep nests are a ValueError.

    That loader ends the process at a dictionary's key of very many nested tuples, whose hash takes
    more stack than there is, so the nesting is looked at first. Compressed parts, which torch.save
    does not write and which may fill the memory, are a ValueError as well.
    """
    file = io.BytesIO(content)
    if content[:4] == b"PK\3\4":
        with zipfile.ZipFile(file) as archive:
            if any(part.compress_type != zipfile.ZIP_STORED for part in archive.infolist()):
                raise ValueError("compressed parts of an archive")
        file.seek(0)
        _check_depth(io.BytesIO(torch._C.PyTorchFileReader(file).get_record("data.pkl")))
    else:
        for _ in range(_PICKLES):
            _check_depth(file)
    return torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)


def _check_depth(file: io.BytesIO) -> None:
    """Follow one pickle's stack, of which only the depth of nesting of each entry is kept."""
    stack: list[int | None] = []  # None is a mark
    memo: dict[int, int] = {}
    for code, number, _ in pickletools.genops(file):
        if code.name in ("PUT", "BINPUT", "LONG_BINPUT"):
            memo[int(str(number))] = _top(stack)
        elif code.name == "MEMOIZE":
            memo[len(memo)] = _top(stack)
        elif code.name in ("GET", "BINGET", "LONG_BINGET"):
            stack.append(memo[int(str(number))])
        elif code.name == "MARK":
            stack.append(None)
        elif code.name == "DUP":
            stack.append(_top(stack))
        else:
            _apply(code, stack)


def _top(stack: list[int | None]) -> int:
    if not stack or stack[-1] is None:
        raise ValueError("a pickle that takes what is not there")
    return stack[-1]


def _apply(code: pickletools.OpcodeInfo, stack: list[int | None]) -> None:
    """Take what an opcode takes, and leave entries one deeper; lists and dicts hash nothing."""
    taken = [0]
    plain = len(code.stack_before)
    if pickletools.markobject in code.stack_before:
        plain = code.stack_before.index(pickletools.markobject)
        while stack and stack[-1] is not None:
            taken.append(_top(stack))
            stack.pop()
        if not stack:
            raise ValueError("a pickle without a mark")
        stack.pop()
    for _ in range(plain):
        taken.append(_top(stack))
        stack.pop()
    made = code.name in ("APPEND", "APPENDS", "SETITEM", "SETITEMS", "LIST", "DICT")
    depth = 0 if made or len(taken) == 1 else max(taken) + 1
    if depth > _DEEP:
        raise ValueError(f"a pickle of more than {_DEEP} nested tuples")
    stack.extend([depth] * len(code.stack_after))
