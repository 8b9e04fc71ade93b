"""`graphtheory datasets`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from graphtheory.cli.show import Command, Folder, Screen, data_root

if TYPE_CHECKING:
    from graphtheory.data.catalogue import DatasetInfo


@dataclass(frozen=True)
class Datasets(Command):
    """List the graphs, their splits, and where their raw files go.

    Nothing is ever downloaded. The files of a set lie in its folder below the root, as published;
    they are checked against their SHA-256 where that is known, and the folder may be read-only.

    Try:  graphtheory datasets --root DATA
    """

    root: Folder = None
    """Folder with the raw files, to see which are there; without it that of $GRAPHTHEORY_DATA."""

    def run(self, screen: Screen) -> None:
        """Print the list."""
        from graphtheory.data.catalogue import describe, names
        from graphtheory.report.table import Table

        root = data_root(self.root)
        rows = []
        for info in map(describe, names()):
            counts = dict(info.counts)
            unit = "graphs" if "graphs" in counts else "nodes"
            size = f"{counts[unit]:,} {unit}" if unit in counts else ""
            rows.append((info.name, size, ", ".join(info.splits), info.folder, _files(info, root)))
        columns = ("name", "size", "splits, the default first", "folder below the root", "files")
        title = "Data sets" if root is None else f"Data sets, root {root}"
        screen.table(Table(title, columns, rows, words=5))
        if root is None:
            screen.say("No root: give --root DIR or set GRAPHTHEORY_DATA.")


def _files(info: DatasetInfo, root: Path | None) -> str:
    """Whether the raw files are there, where one can know."""
    if info.embedded:
        return "embedded"
    if root is None:
        return f"{len(info.files)} needed"
    found = sum((root / info.folder / file).is_file() for file in info.files)
    return "there" if found == len(info.files) else f"{found} of {len(info.files)}"
