"""All figures, found in the chapters."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

from graphtheory.papers.figure import Figure


def figures() -> dict[str, Figure]:
    """Every figure by its ID, in the order of numbers, those without one last.

    They are the entries of `FIGURES` of the modules `papers/<chapter>/figures*.py`, so that a new
    figure is an entry there, or a new file of that name.

    Raises:
        ValueError: If two figures share an ID.
    """
    found: dict[str, Figure] = {}
    for path in sorted(Path(__file__).parent.glob("*/figures*.py")):
        module = import_module(f"graphtheory.papers.{path.parent.name}.{path.stem}")
        for figure in module.FIGURES:
            if figure.id in found:
                raise ValueError(f"figures: {figure.id} stands twice, expected an ID of its own")
            found[figure.id] = figure
    return dict(sorted(found.items(), key=lambda item: _order(item[0])))


def _order(name: str) -> tuple[bool, list[tuple[int, str]]]:
    """Numbers before letters, other names last: fig-2-1a, fig-10-1, fig-b-6, theorem-1."""
    kind, *parts = name.split("-")
    numbers = [re.match(r"(\d*)(.*)", part) for part in parts]
    key = [(int(m[1] or 10**6), m[2]) for m in numbers if m]
    return kind not in ("fig", "table", "steps"), [*key, (0, kind)]
