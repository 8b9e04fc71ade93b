"""Finished runs in a file of JSON lines, so that nothing is lost when a long study stops."""

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

Settings = dict[str, Any]
"""All that decides what a run gives, as plain values."""
V = TypeVar("V")


class Finished(Generic[V]):
    """What finished runs gave, by their settings, a line of a file each, or in memory.

    A last line that a crash cut short is dropped; a digest, which older lines lack, guards a line.
    """

    named_by: ClassVar[tuple[str, ...]] = ()
    """Settings that name a run, of which others have to agree; without them all name it."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self._runs: dict[str, tuple[Settings, V]] = {}
        for number, text in enumerate(whole_text(path).splitlines(), 1):
            try:
                settings, value = self.read(verified(json.loads(text)))
                self._runs[self._name(settings)] = settings, value
            except (ValueError, TypeError, KeyError) as error:
                raise ValueError(
                    f"line {number} of {path} is no finished run ({error!r}); mend or delete that "
                    "line, or take another folder"
                ) from error

    def __len__(self) -> int:
        return len(self._runs)

    def __iter__(self) -> Iterator[V]:
        return (value for _, value in self._runs.values())

    def find(self, settings: Settings) -> V | None:
        """What the run with these settings gave; None where there is none yet."""
        name, settings = self._name(settings), _plain(settings)
        there, value = self._runs.get(name, (settings, None))
        for key in {**there, **settings}:
            if there.get(key) != settings.get(key):
                told = ", ".join(f"{part} {settings[part]}" for part in self.named_by)
                raise ValueError(
                    f"{self.path} holds {told} under other settings: {key} {there.get(key)} there, "
                    f"{settings.get(key)} here; expected the same settings or another folder"
                )
        return value

    def add(self, settings: Settings, value: V) -> None:
        """Add a run, which is on the disk before this returns."""
        line = _plain(self.line(settings, value))  # a resumed study sees no other value
        self._runs[self._name(settings)] = _plain(settings), self.read(line)[1]
        if self.path is None:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(signed(line)) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def line(self, settings: Settings, value: V) -> dict[str, Any]:
        """Write a run as an object of plain values."""
        return {"settings": settings, "rows": value}

    def read(self, line: dict[str, Any]) -> tuple[Settings, V]:
        """Read the settings and the value of a line; the inverse of `line`."""
        rows: Any = line["rows"]
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise TypeError(f"rows: got {type(rows).__name__}, expected a list of objects")
        return dict(line["settings"]), rows  # type: ignore[return-value]

    def _name(self, settings: Settings) -> str:
        named = {part: settings[part] for part in self.named_by} or settings
        return json.dumps(named, sort_keys=True)


def _digest(line: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(line, sort_keys=True).encode()).hexdigest()[:16]


def signed(line: dict[str, Any]) -> dict[str, Any]:
    """A line of a file with its digest, by which `verified` notices a change."""
    return line | {"sha256": _digest(line)}


def verified(line: dict[str, Any], always: bool = False) -> dict[str, Any]:
    """A line without its digest, which it has to match if it has one, or `always`."""
    if not isinstance(line, dict):
        raise ValueError("it is no object")
    digest = line.pop("sha256", None)
    if (always or digest is not None) and digest != _digest(line):
        raise ValueError("it does not match its own digest")
    return line


def whole_text(path: Path | None) -> str:
    """What a file holds, after a last line that a crash cut short was cut off; "" without it."""
    if path is None or not path.exists():
        return ""
    content = path.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    if len(whole) < len(content):
        os.truncate(path, len(whole))
    return whole.decode(errors="replace")


def _plain(settings: Settings) -> Settings:
    return json.loads(json.dumps(settings))
