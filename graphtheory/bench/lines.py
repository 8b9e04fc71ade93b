"""Files of JSON lines that survive a crash: every line is on the disk before the next is begun."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def add_line(path: Path, line: dict[str, Any]) -> None:
    """Append an object, on the disk before this returns; the folder is made where it is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
        file.flush()
        os.fsync(file.fileno())


def whole_text(path: Path) -> str:
    """What a file holds, after a last line that a crash cut short was cut off; "" without it."""
    if not path.exists():
        return ""
    content = path.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    if len(whole) < len(content):
        with path.open("r+b") as file:
            file.truncate(len(whole))
    return whole.decode(errors="replace")


def whole_lines(path: Path, fields: set[str]) -> list[dict[str, Any]]:
    """The objects of `whole_text`.

    Raises:
        ValueError: A line that is no JSON object with these fields.
    """
    lines = []
    for number, text in enumerate(whole_text(path).splitlines(), 1):
        try:
            line = json.loads(text)
        except ValueError:
            line = None
        if not isinstance(line, dict) or set(line) != fields:
            raise ValueError(
                f"out: line {number} of {path} is no JSON object of {', '.join(sorted(fields))}; "
                "mend or delete that line, or take another folder"
            )
        lines.append(line)
    return lines
