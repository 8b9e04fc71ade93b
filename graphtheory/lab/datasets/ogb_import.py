"""Imports ogb without its look for newer releases in the network, reads without its output."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType


def import_ogb(name: str) -> ModuleType:
    """A module of ogb, imported without a look for newer releases in the network.

    ogb starts that look in a thread unless the package `outdated` is absent, and `outdated` starts
    one of its own: while ogb is imported, it is.

    Args:
        name: Such as "ogb.nodeproppred".
    """
    before = {"outdated": sys.modules["outdated"]} if "outdated" in sys.modules else {}
    sys.modules["outdated"] = None  # type: ignore[assignment]
    try:
        return import_module(name)
    finally:
        del sys.modules["outdated"]
        sys.modules.update(before)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Nothing is written while ogb reads: it reports every step with print and a progress bar."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        yield
