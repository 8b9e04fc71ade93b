"""`graphtheory convert`: a graph in Parquet files into a folder that loaders read by pages."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from graphtheory.disk import check_empty
from graphtheory.lab.cli import show
from graphtheory.lab.cli.options import Count, Name, Names
from graphtheory.lab.cli.show import Command, Screen


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

        columns = {
            name: getattr(self, name) for name in ("id", "part", "source", "target", "weight")
        }
        to = Path(self.folder)
        with show.usage_errors():
            check_empty(to)
        first = to if self.parts is None else to.with_name(f".{to.name}.unparted")
        with show.usage_errors(ValueError, OSError, ImportError), screen.steps("row") as steps:
            if self.parts is None or not first.exists():
                GraphFolder.from_parquet(
                    self.edges, self.nodes, first, **columns, x=self.x, normalize=self.normalize,
                    memory_limit=self.memory,
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
