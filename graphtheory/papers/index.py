"""All figures, found in the chapters: one by its ID, or every one for the list."""

import re
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path

from graphtheory.papers.figure import Figure


def figures() -> dict[str, Figure]:
    """Every figure by its ID, in the order of numbers, those without one last.

    They are the entries of `FIGURES` of the modules `papers/<chapter>/figures*.py`, so that a new
    figure is an entry there, or a new file of that name.
    """
    return dict(sorted(_read(_modules()).items(), key=lambda item: _order(item[0])))


def figure(name: str) -> Figure | None:
    """The figure of an ID, or None; imports the modules alone whose source quotes the ID."""
    return _read(path for path in _modules() if f'"{name}"' in path.read_text("utf-8")).get(name)


def _modules() -> list[Path]:
    return sorted(Path(__file__).parent.glob("*/figures*.py"))


def _read(paths: Iterable[Path]) -> dict[str, Figure]:
    found: dict[str, Figure] = {}
    for path in paths:
        module = import_module(f"graphtheory.papers.{path.parent.name}.{path.stem}")
        for one in module.FIGURES:
            if one.id in found:
                raise ValueError(f"figures: {one.id} stands twice, expected an ID of its own")
            found[one.id] = one
    return found


def _order(name: str) -> tuple[bool, list[tuple[int, str]]]:
    """Numbers before letters, other names last: fig-2-1a, fig-10-1, fig-b-6, theorem-1."""
    kind, *parts = name.split("-")
    numbers = [re.match(r"(\d*)(.*)", part) for part in parts]
    key = [(int(m[1] or 10**6), m[2]) for m in numbers if m]
    return kind not in ("fig", "table", "steps"), [*key, (0, kind)]
