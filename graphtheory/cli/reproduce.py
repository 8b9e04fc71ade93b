"""`graphtheory reproduce`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from graphtheory.cli.show import (
    Command,
    Count,
    Folder,
    RefusedError,
    Screen,
    at_least,
    data_root,
    known,
    refusing,
    set_aside,
    told_on_stop,
    write_json,
)

if TYPE_CHECKING:
    from graphtheory.report.study import StudyReport

FIGURES = ("fig-3-8", "fig-3-9", "encoding")


@dataclass(frozen=True)
class Reproduce(Command):
    """Run one study again: its rows, its picture, and what became of the claim.

    fig-3-8   accuracy of models that hear distance z alone beside the learned bias b_z, with a
              control whose query is frozen
    fig-3-9   accuracy over the number of labels: with encoding, without, GCN
    encoding  the same configurations with and without the encoding, paired; Cora or minesweeper

    Try:  graphtheory reproduce fig-3-8 --dataset Cora --root DATA
    """

    figure: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ID")] = "fig-3-8"
    """One of the names above."""
    dataset: str = "Cora"
    """Name of a graph; `graphtheory datasets` lists them."""
    root: Folder = None
    """Folder with the raw files; without it that of $GRAPHTHEORY_DATA. Not for embedded graphs."""
    out: Folder = None
    """Where the results go; without it runs/ID-DATASET."""
    seeds: Count = None
    """How many splits; without it the study's own number."""
    quick: bool = False
    """One seed and few epochs, for a first look."""
    resume: bool = False
    """Take finished runs from the .jsonl file there; otherwise that file is set aside, not lost."""

    def run(self, screen: Screen) -> None:
        """Train, print, write."""
        from graphtheory.data import graphs
        from graphtheory.experiments.rows import Environment, write_csv
        from graphtheory.plot import save

        at_least(1, seeds=self.seeds)
        figure = known("ID", self.figure, FIGURES)
        root = data_root(self.root)
        named = f"{figure}-{self.dataset.lower()}"
        out = self.out or Path(f"runs/{named}")
        study = _STUDIES[figure](self, root)
        kept = out / f"{named}.jsonl"

        def tell() -> None:
            screen.say(f"\nFinished runs are in {kept}; the same command with --resume goes on.")

        with refusing():
            graphs.load(self.dataset, root)
            out.mkdir(parents=True, exist_ok=True)
            if not self.resume:
                set_aside(screen, kept)
            with told_on_stop(tell), screen.steps("run") as steps:
                rows = study.run(steps, kept=kept)
        report = _report(figure, study, rows)
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


def _distances(options: Reproduce, root: Path | None) -> Any:
    from graphtheory.experiments.distance_study import DistanceStudy

    study = DistanceStudy(options.dataset, root, seeds=options.seeds or DistanceStudy.seeds)
    return replace(study, seeds=1, epochs=40, patience=15) if options.quick else study


def _labels(options: Reproduce, root: Path | None) -> Any:
    from graphtheory.experiments.label_study import LabelStudy

    study = LabelStudy(options.dataset, root, seeds=options.seeds or LabelStudy.seeds)
    return replace(study, seeds=1, epochs=40) if options.quick else study


def _encoding(options: Reproduce, root: Path | None) -> Any:
    from graphtheory.experiments.encoding_study import CASES, EncodingStudy

    cases = tuple(n for n, c in CASES.items() if c.dataset.lower() == options.dataset.lower())
    if not cases:
        sets = dict.fromkeys(case.dataset for case in CASES.values())
        raise RefusedError(f"--dataset: {options.dataset} has no case, expected {', '.join(sets)}")
    study = EncodingStudy(cases, root, options.seeds)
    return replace(study, cases=cases[:1], seeds=1, epochs=40) if options.quick else study


_STUDIES: dict[str, Callable[[Reproduce, Path | None], Any]] = {
    "fig-3-8": _distances,
    "fig-3-9": _labels,
    "encoding": _encoding,
}


def _report(figure: str, study: Any, rows: list[dict[str, Any]]) -> StudyReport:
    from graphtheory.report import study as reports

    make: dict[str, Callable[..., StudyReport]] = {
        "fig-3-8": reports.distances,
        "fig-3-9": reports.labels,
        "encoding": reports.encoding,
    }
    return make[figure](study, rows)
