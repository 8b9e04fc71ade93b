"""Lines of `Finished` without the class, for studies that do not use it yet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from graphtheory.bench.finished import Finished, add_line

__all__ = ["add_line", "whole_lines"]


class _Lines(Finished[dict[str, Any]]):
    def read(self, line: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        settings, _ = super().read(line)
        return settings, line


def whole_lines(path: Path, fields: set[str]) -> list[dict[str, Any]]:
    """The lines of a file of finished runs, less a last one that was cut short."""
    return list(_Lines(path))
