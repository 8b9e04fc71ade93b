"""`graphtheory datasets` and `convert`: which data are at hand, and a graph in files of pages."""

import hashlib
import shutil
from dataclasses import dataclass
from glob import glob
from pathlib import Path
from typing import Annotated

import tyro

from graphtheory.disk import check_empty
from graphtheory.lab.bench.rows import Table
from graphtheory.lab.cli import show
from graphtheory.lab.cli.options import Count, Folder, Name, Names, fetch_missing
from graphtheory.lab.cli.show import Command, Screen
from graphtheory.lab.datasets.catalogue import DatasetInfo, describe, names

_SETS: dict[str, dict[str, str]] = {  # heading -> what its entries have in common
    "Graphs, classes of nodes": {"task": "node"},
    "Sets of graphs, one class each": {"task": "graph", "kind": "multiclass", "level": "graph"},
    "Sets of graphs, labels that are true or false": {"task": "graph", "kind": "multilabel"},
    "Sets of graphs, real values": {"task": "graph", "kind": "regression"},
    "Sets of graphs, classes of nodes": {"task": "graph", "level": "node"},
    "Pairs of graphs to tell apart": {"task": "pairs"},
    "Image sets": {"task": "image"},
}


@dataclass(frozen=True)
class Datasets(Command):
    """Options of `graphtheory datasets`, which downloads a set that is named."""

    root: Folder = None
    download: Name = None

    def run(self, screen: Screen) -> None:
        root, found = show.data_root(self.root), []
        if self.download is not None:
            fetch_missing(screen, self.download, root, True, "--download")
            files = _files(describe(self.download, root), root)
            screen.result({"name": self.download, "files": files})
            return screen.say(f"{self.download}: its files are {files}.")
        every = [describe(name) for name in names()]
        every += [describe(name, task="image") for name in names("image")]
        columns = ("name", "size", "score", "splits, the default first", "folder below the root",
                   "files", "get them")  # fmt: skip
        for title, common in _SETS.items():
            rows = []
            for i in (one for one in every if common.items() <= vars(one).items()):
                files, how = _files(i, root), "" if i.embedded else i.how
                way = how.partition(" from ")[0]
                rows.append((i.name, _size(i), i.metric, ", ".join(i.splits), i.folder, files, way))
                found.append({
                    "name": i.name, "kind": title, "counts": dict(i.counts), "score": i.metric,
                    "splits": list(i.splits), "folder": i.folder, "files": list(i.files),
                    "how": how,  # and of what is there, None where one cannot know
                    "there": i.embedded or (None if root is None else files == "there"),
                })  # fmt: skip
            where = "" if root is None else f", root {root}"
            screen.table(Table(f"{title}{where}", columns, rows, words=7))
        screen.result(found)
        if root is None:
            screen.say("No root: give --root DIR or set GRAPHTHEORY_DATA.")


def _size(info: DatasetInfo) -> str:
    counts = dict(info.counts)
    if "test images" in counts:
        return f"{counts['images']:,} + {counts['test images']:,} images"
    unit = "graphs" if "graphs" in counts else "nodes"
    return f"{counts[unit]:,} {unit}" if unit in counts else ""


def _files(info: DatasetInfo, root: Path | None) -> str:
    from graphtheory.lab.datasets.files import folder_of

    if info.embedded:
        return "embedded"
    if root is None:
        return f"{len(info.files)} needed"
    names = ((file, file.removesuffix(".gz")) for file in info.files)  # MNIST's may be unpacked
    folder = folder_of(info, root) or root / info.folder
    found = sum(any((folder / name).is_file() for name in pair) for pair in names)
    return "there" if found == len(info.files) else f"{found} of {len(info.files)}"


@dataclass(frozen=True)
class Convert(Command):
    """Options of `graphtheory convert`, which goes on after an interruption."""

    needs = ("graphtheory.data.loaders",)

    edges: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="EDGES")] = ""
    nodes: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="NODES")] = ""
    folder: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="FOLDER")] = ""
    id: str = "id"
    part: Name = None
    source: str = "source"
    target: str = "target"
    weight: Name = None
    edge_attributes: Names = ()
    x: Names = ()
    normalize: bool = False
    parts: Count = None
    memory: str = "2GB"

    def check(self) -> None:
        for name in ("edges", "nodes", "folder"):
            if not getattr(self, name):
                raise show.RefusedError(f"{name.upper()}: missing, expected EDGES NODES FOLDER")
        show.at_least(1, parts=self.parts)
        self.refuse(self.part is not None, "got {}, expected none with --part", "parts")

    def run(self, screen: Screen) -> None:
        from graphtheory.data.loaders import GraphFolder, edge_cut, fennel

        columns = {k: getattr(self, k) for k in ("id", "part", "source", "target", "weight")}
        to = Path(self.folder)
        with show.usage_errors():
            check_empty(to)
        first = to
        if self.parts is not None:  # whose name tells of what it is made
            files = [Path(p) for one in (self.edges, self.nodes) for p in sorted(glob(one))]  # noqa: PTH207
            dated = [(p.absolute(), p.stat().st_size, p.stat().st_mtime_ns) for p in files]
            made_of = repr([dated, columns, self.x, self.normalize, self.edge_attributes])
            digest = hashlib.sha256(made_of.encode()).hexdigest()
            first = to.with_name(f".{to.name}.unparted-{digest[:12]}")
        with show.usage_errors(ValueError, OSError, ImportError), screen.steps("row") as steps:
            if self.parts is None or not first.exists():
                GraphFolder.from_parquet(
                    self.edges, self.nodes, first, **columns, x=self.x, normalize=self.normalize,
                    edge_attributes=self.edge_attributes, memory_limit=self.memory,
                    progress=lambda what, done, rows: steps(what, max(done - 1, 0), rows),
                )  # fmt: skip
            kept, cut = GraphFolder(first), None
            if self.parts is not None:
                part = fennel(kept, self.parts)
                kept, cut = GraphFolder.write(kept, to, part), edge_cut(kept, part)
                shutil.rmtree(first)
        nodes, edges = kept.graph.num_dst, kept.graph.num_edges
        said = "" if cut is None else f", {self.parts} parts that cut {cut:.1%} of the edges"
        screen.result({"folder": str(to), "nodes": nodes, "edges": edges, "edge_cut": cut})
        screen.say(f"{to}: {nodes:,} nodes, {edges:,} edges{said}")
