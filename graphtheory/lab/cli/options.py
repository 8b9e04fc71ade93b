"""Kinds of options: what a word of the command line stands for."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import tyro
from tyro.constructors import PrimitiveConstructorSpec

_UNSET = tyro.conf.arg(help_behavior_hint="")
"""An option that may be left out: the help says what then, not "(default: None)"."""


def _optional(metavar: str) -> Any:
    return tyro.conf.arg(metavar=metavar, help_behavior_hint="")


Folder = Annotated[Path | None, _optional("DIR")]
File = Annotated[Path | None, _optional("FILE")]
Name = Annotated[str | None, _optional("NAME")]


def _separated(metavar: str) -> Any:
    """Read words that are separated by commas."""
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar=metavar,
        instance_from_str=lambda words: tuple(filter(None, words[0].split(","))),
        is_instance=lambda value: isinstance(value, tuple),
        str_from_instance=lambda value: [",".join(value)],
    )


Names = Annotated[tuple[str, ...], _separated("NAME,NAME,...")]


def _number(kind: type, metavar: str, expected: str) -> PrimitiveConstructorSpec[Any]:
    """A number; a word that is none is refused in words."""

    def read(words: list[str]) -> Any:
        try:
            return kind(words[0])
        except ValueError:
            raise ValueError(f"got {words[0]!r}, expected {expected}") from None

    return PrimitiveConstructorSpec(
        nargs=1,
        metavar=metavar,
        instance_from_str=read,
        is_instance=lambda value: value is None or isinstance(value, kind),
        str_from_instance=lambda value: [str(value)],
    )


_WHOLE = _number(int, "INT", "a whole number")
Whole = Annotated[int, _WHOLE]
Count = Annotated[int | None, _WHOLE, _UNSET]
Part = Annotated[float | None, _number(float, "FLOAT", "a number"), _UNSET]
Settings = Annotated[tuple[str, ...], _separated("NAME=VALUE,..."), _UNSET]
