"""`graphtheory reproduce`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import tyro

from graphtheory.cli.figure import Asked, Figure
from graphtheory.cli.figures import FIGURES, figure
from graphtheory.cli.show import (
    Command,
    Count,
    Folder,
    Name,
    Screen,
    at_least,
    data_root,
    refusing,
    set_aside,
    told_on_stop,
    write_json,
)


@dataclass(frozen=True)
class Reproduce(Command):
    """Run one study again: its rows, its picture, and what became of the claim.

    `graphtheory reproduce --list` prints every ID, what it shows and what data it needs.

    Try:  graphtheory reproduce fig-3-8 --dataset Cora --root DATA
    """

    figure: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ID")] = "fig-3-8"
    """A figure or table; --list prints them all."""
    dataset: Name = None
    """Name of a graph, which `graphtheory datasets` lists; not for figures that draw their own."""
    root: Folder = None
    """Folder with the raw files; without it that of $GRAPHTHEORY_DATA. Not for embedded graphs."""
    out: Folder = None
    """Where the results go; without it runs/ID-DATASET."""
    seeds: Count = None
    """How many splits or draws; without it the study's own number."""
    seed: int = 0
    """The first seed of figures that draw their data; the others take splits from the first on."""
    quick: bool = False
    """One seed and few epochs, for a first look."""
    resume: bool = False
    """Take finished runs from the .jsonl file there; otherwise that file is set aside, not lost."""
    list: bool = False
    """Print the IDs and stop."""

    def run(self, screen: Screen) -> None:
        """Train, print, write."""
        if self.list:
            return _print_list(screen)
        at_least(1, seeds=self.seeds)
        at_least(0, seed=self.seed)
        chosen, root = figure(self.figure), data_root(self.root)
        asked = chosen.ask(self.dataset, root, self.seeds, self.seed, self.quick)
        self._make(screen, chosen, asked)
        return None

    def _make(self, screen: Screen, chosen: Figure, asked: Asked) -> None:
        from graphtheory.bench.rows import Environment, write_csv
        from graphtheory.data import graphs
        from graphtheory.data.catalogue import key
        from graphtheory.plot import save

        named = "-".join(filter(None, (chosen.name, key(asked.dataset))))
        out = self.out or Path(f"runs/{named}")
        study = chosen.study(asked)
        kept = out / f"{named}.jsonl"

        def tell() -> None:
            screen.say(f"\nFinished runs are in {kept}; the same command with --resume goes on.")

        with refusing():
            if asked.dataset:
                (chosen.find or graphs.load)(asked.dataset, asked.root)
            out.mkdir(parents=True, exist_ok=True)
            if not self.resume:
                set_aside(screen, kept)
            with told_on_stop(tell), screen.steps("run") as steps:
                rows = study.run(steps, kept=kept)
        report = chosen.report(study, rows)
        screen.table(report.table)
        screen.say(report.verdict)
        here = Environment.here()
        write_csv(out / f"{named}.csv", report.rows, here)
        write_json(
            out / f"{named}.json",
            {"command": screen.command, "environment": asdict(here), "study": repr(study),
             "verdict": report.verdict, "rows": rows},
        )  # fmt: skip
        if report.picture is not None:
            save(report.picture, out / f"{named}.png")
        drawn = ", the picture" if report.picture is not None else ""
        screen.say(f"Written to {out}: {named}.csv, {named}.json, {named}.jsonl{drawn}.")


def _print_list(screen: Screen) -> None:
    from graphtheory.report.table import Table

    rows = [(entry.name, entry.summary, entry.data) for entry in FIGURES.values()]
    screen.table(Table("Figures and tables", ("ID", "what it shows", "data"), rows, words=3))
