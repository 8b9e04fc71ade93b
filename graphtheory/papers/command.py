"""The command `graphtheory reproduce`, which runs one study again."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from graphtheory.lab.cli import show
from graphtheory.lab.cli.options import Count, Folder, Name, Whole
from graphtheory.lab.cli.show import Command, RefusedError, Screen

if TYPE_CHECKING:
    from graphtheory.papers.figure import Figure, Report
    from graphtheory.papers.pivot import Measurements


@dataclass(frozen=True)
class Reproduce(Command):
    """Options of `graphtheory reproduce`, which runs one study again."""

    needs = ("graphtheory.papers.figure",)

    figure: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ID")] = ""
    dataset: Name = None
    root: Folder = None
    out: Folder = None
    seeds: Count = None
    seed: Whole = 0
    quick: bool = False
    resume: bool = False
    list: bool = False

    def check(self) -> None:
        show.at_least(1, seeds=self.seeds)
        show.at_least(0, seed=self.seed)
        show.data_root(self.root)
        if not self.figure and not self.list:
            raise RefusedError(
                "ID: got none, expected one that `graphtheory reproduce --list` prints"
            )

    def run(self, screen: Screen) -> None:
        if self.list:
            _print_list(screen)
            return
        root = show.data_root(self.root)
        figure = _figure(self.figure)
        dataset, name = self._dataset(figure), figure.id
        self._refuse(figure)
        with show.usage_errors():
            if data := figure.data:
                from graphtheory.lab.datasets import graphs, image_sets
                from graphtheory.lab.datasets.catalogue import key

                name += f"-{key(dataset)}"
                with screen.working(f"reading {dataset}"):
                    (data.read or (image_sets if data.images else graphs).load)(dataset, root)
            grid = figure.settings(
                dataset, root, seeds=self.seeds, first=self.seed, quick=self.quick
            )
        out = self.out or Path(f"runs/{name}")
        rows = self._measure(screen, figure, grid, out / f"{name}.jsonl")
        report = figure.report(grid, rows)
        _write(screen, out, name, report, {"grid": repr(grid), "rows": rows})

    def _dataset(self, figure: Figure) -> str:
        """Name of the data set as the catalogue spells it; "" of a figure that draws its data."""
        data = figure.data
        if data is None:
            return ""
        from graphtheory.lab.datasets import graphs, image_sets
        from graphtheory.lab.datasets.catalogue import key

        dataset = self.dataset or data.default
        names = (image_sets if data.images else graphs).names()
        spelled = {key(name): name for name in names}
        if data.only and key(dataset) not in map(key, data.only):
            raise RefusedError(f"--dataset: {figure.id} has no {dataset}, expected {data}")
        return spelled.get(key(dataset), dataset)

    def _refuse(self, figure: Figure) -> None:
        if self.seeds is not None and not figure.random:
            raise RefusedError(f"--seeds: got {self.seeds}, but {figure.id} draws nothing")
        if self.seeds is not None and self.quick:
            raise RefusedError(f"--seeds: got {self.seeds}, but --quick has a number of its own")
        if self.dataset is not None and figure.data is None:
            raise RefusedError(f"--dataset: got {self.dataset}, but {figure.id} draws its data")
        if self.seed and figure.data is not None:
            raise RefusedError(f"--seed: got {self.seed}, but {figure.id} takes splits from 0 on")

    def _measure(self, screen: Screen, figure: Figure, grid: Any, kept: Path) -> Measurements:
        from graphtheory.lab.train.watch import locked
        from graphtheory.papers.grid import under_way

        def tell() -> None:
            screen.note(f"\nFinished runs are in {kept}; the same command with --resume goes on.")

        with show.usage_errors():
            kept.parent.mkdir(parents=True, exist_ok=True)
            with locked(kept.parent, f".{kept.stem}.lock"):
                if not self.resume:
                    show.set_aside(screen, kept, under_way(kept))
                with show.on_interrupt(tell), screen.steps("run") as steps:
                    return grid.measure(figure.run, steps, kept=kept)


def _figure(name: str) -> Figure:
    """The figure of an ID; refuses one that there is not, with the closest that there is."""
    from graphtheory.papers.figure import figure, figures

    if (found := figure(name)) is not None:
        return found
    every = figures()
    return every[show.known("ID", name, tuple(every), "graphtheory reproduce --list")]


def _write(screen: Screen, out: Path, name: str, report: Report, found: dict[str, Any]) -> None:
    from graphtheory.lab.bench.rows import Environment, write_csv
    from graphtheory.lab.plot import save

    screen.table(report.table)
    screen.say(report.verdict)
    here = Environment.here()
    write_csv(out / f"{name}.csv", report.rows, here)
    about = {"command": screen.command, "environment": asdict(here), "verdict": report.verdict}
    show.write_json(out / f"{name}.json", about | found)
    screen.result({"folder": out, **about, **found})
    if report.picture is not None:
        save(report.picture, out / f"{name}.png")
    drawn = ", the picture" if report.picture is not None else ""
    screen.say(f"Written to {out}: {name}.csv, {name}.json, {name}.jsonl{drawn}.")


def _print_list(screen: Screen) -> None:
    from graphtheory.lab.bench.rows import Table
    from graphtheory.papers.figure import figures

    rows = [
        (name, figure.summary, str(figure.data or "draws its own"))
        for name, figure in figures().items()
    ]
    screen.result([dict(zip(("id", "summary", "data"), row, strict=True)) for row in rows])
    screen.table(Table("Figures and tables", ("ID", "what it shows", "data"), rows, words=3))
