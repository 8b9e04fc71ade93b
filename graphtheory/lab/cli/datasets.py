"""`graphtheory datasets`, which lists graphs and image sets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphtheory.lab.cli.options import Folder
from graphtheory.lab.cli.show import Command, Screen, data_root

if TYPE_CHECKING:
    from graphtheory.lab.bench.table import Table
    from graphtheory.lab.datasets.catalogue import DatasetInfo


@dataclass(frozen=True)
class Datasets(Command):
    """List the graphs and the image sets, their splits, and where their raw files go.

    Nothing is ever downloaded. The files of a set lie in its folder below the root, as published;
    they are checked against their SHA-256 where that is known, and the folder may be read-only. Any
    other TUDataset has its name from its folder TUDataset/NAME/raw.

    Try:  graphtheory datasets --root DATA
    """

    needs = ("torch",)

    root: Folder = None
    """Folder with the raw files, to see which are there; without it that of $GRAPHTHEORY_DATA."""

    def run(self, screen: Screen) -> None:
        from graphtheory.lab.datasets import catalogue

        root = data_root(self.root)
        images = [catalogue.describe(name, task="image") for name in catalogue.names("image")]
        lists = [*_graphs(catalogue.names, catalogue.describe), ("Image sets", images)]
        for title, infos in lists:
            screen.table(_table(infos, title if root is None else f"{title}, root {root}", root))
        screen.result([_plain(info, title, root) for title, infos in lists for info in infos])
        if root is None:
            screen.say("No root: give --root DIR or set GRAPHTHEORY_DATA.")


def _graphs(
    names: Callable[[str], list[str]], describe: Callable[[str], DatasetInfo]
) -> Iterator[tuple[str, list[DatasetInfo]]]:
    """The entries by what is learned on them, each with a heading."""
    yield "Graphs, classes of nodes", list(map(describe, names("node")))
    sets = list(map(describe, names("graph")))
    kinds = (
        ("Sets of graphs, one class each", "multiclass", "graph"),
        ("Sets of graphs, labels that are true or false", "multilabel", "graph"),
        ("Sets of graphs, real values", "regression", "graph"),
        ("Sets of graphs, classes of nodes", "multiclass", "node"),
    )
    for title, kind, level in kinds:
        yield title, [info for info in sets if (info.kind, info.level) == (kind, level)]
    yield "Pairs of graphs to tell apart", list(map(describe, names("pairs")))


def _plain(info: DatasetInfo, kind: str, root: Path | None) -> dict[str, Any]:
    """An entry in plain values; "there" is None where one cannot know."""
    files = _files(info, root)
    return {
        "name": info.name, "kind": kind, "counts": dict(info.counts), "score": info.metric,
        "splits": list(info.splits), "folder": info.folder, "files": list(info.files),
        "there": info.embedded or (None if root is None else files == "there"),
    }  # fmt: skip


def _table(infos: list[DatasetInfo], title: str, root: Path | None) -> Table:
    from graphtheory.lab.bench.table import Table

    rows = [
        (i.name, _size(i), i.metric, ", ".join(i.splits), i.folder, _files(i, root)) for i in infos
    ]
    splits, folder = "splits, the default first", "folder below the root"
    columns = ("name", "size", "score", splits, folder, "files")
    return Table(title, columns, rows, words=6)


def _size(info: DatasetInfo) -> str:
    """How many of what it holds, "" where that is not known."""
    counts = dict(info.counts)
    if "test images" in counts:
        return f"{counts['images']:,} + {counts['test images']:,} images"
    unit = "graphs" if "graphs" in counts else "nodes"
    return f"{counts[unit]:,} {unit}" if unit in counts else ""


def _files(info: DatasetInfo, root: Path | None) -> str:
    """Whether the raw files are there, where one can know."""
    if info.embedded:
        return "embedded"
    if root is None:
        return f"{len(info.files)} needed"
    names = ((file, file.removesuffix(".gz")) for file in info.files)  # MNIST's may be unpacked
    found = sum(any((root / info.folder / name).is_file() for name in pair) for pair in names)
    return "there" if found == len(info.files) else f"{found} of {len(info.files)}"
