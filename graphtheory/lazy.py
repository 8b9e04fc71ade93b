"""Packages whose names are imported when they are first used."""

from __future__ import annotations

import ast
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any


def import_when_used(package: str) -> None:
    """Let a package import when first used the names under `if TYPE_CHECKING` in its `__init__`."""
    module = sys.modules[package]
    tree = ast.parse(Path(str(module.__file__)).read_text("utf-8"))
    tests = {ast.unparse(node.test): node for node in tree.body if isinstance(node, ast.If)}
    if "TYPE_CHECKING" not in tests:
        raise ImportError(f"{package}: got no block, expected `if TYPE_CHECKING:` with its names")
    module.__dict__["_homes"] = {
        alias.asname or alias.name: (node.module, alias.name)
        for node in tests["TYPE_CHECKING"].body
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }
    module.__class__ = _Lazy


class _Lazy(ModuleType):
    _homes: dict[str, tuple[str, str]]  # name -> its module, and what it is called there

    def __getattr__(self, name: str) -> Any:
        if name in self._homes:
            home, original = self._homes[name]
            value = getattr(import_module(home), original)
            super().__setattr__(name, value)
            return value
        if not name.startswith("__"):
            try:
                return import_module(f"{self.__name__}.{name}")
            except ModuleNotFoundError as error:
                if error.name != f"{self.__name__}.{name}":
                    raise
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        # a module of the same name as one of them, as `train.fit` has, stays behind it
        if not (isinstance(value, ModuleType) and name in self._homes):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._homes})
