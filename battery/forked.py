"""Functions in processes of their own, forked off one that has imported what they need."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
from collections.abc import Callable
from contextlib import redirect_stdout
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

_IMPORTED = ["battery.bounds", "battery.child", "battery.files", "battery.fuzz", "battery.jobs"]
_SECONDS = 600.0  # after which a process hangs


def start(function: Callable[..., Any], *args: Any) -> BaseProcess:
    """A process that runs a function; what is imported already comes with the fork."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_IMPORTED)
    process = context.Process(target=function, args=args)
    process.start()
    return process


def printed(function: Callable[..., Any], *args: Any) -> tuple[str, int]:
    """What a function prints in a process of its own, and its exit code or minus its signal."""
    with tempfile.TemporaryDirectory() as folder:
        said = Path(folder) / "said"
        process = start(_into, said, function, args)
        process.join(_SECONDS)
        process.kill()
        process.join()
        code = process.exitcode
        process.close()
        assert code is not None
        return said.read_text() if said.exists() else "", code


def _into(said: Path, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    file = os.open(said, os.O_WRONLY | os.O_CREAT)
    os.dup2(file, 1)
    with os.fdopen(1, "w", closefd=False) as out, redirect_stdout(out):
        function(*args)
