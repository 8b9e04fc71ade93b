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
    Name,
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

DRAWN = ("fig-5-1", "fig-5-2", "fig-5-3", "fig-5-4")  # on graphs of their own
FIGURES = ("fig-3-8", "fig-3-9", "encoding", *DRAWN)


@dataclass(frozen=True)
class Reproduce(Command):
    """Run one study again: its rows, its picture, and what became of the claim.

    fig-3-8: accuracy of models that hear distance z alone beside the learned bias b_z, with a
    control whose query is frozen.

    fig-3-9: accuracy over the number of labels, with encoding, without, GCN.

    encoding: the same configurations with and without the encoding, paired; Cora or minesweeper.

    fig-5-1, fig-5-2: error of GCNs learned on sampled graphs over labels and over neurons, for
    several norms of the effective adjacency. fig-5-3, fig-5-4: the same sampler on targets of
    several effective adjacencies, on an uneven and an even graph. Synthetic, no data set.

    Try:  graphtheory reproduce fig-3-8 --dataset Cora --root DATA
    """

    figure: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ID")] = "fig-3-8"
    """One of the names above."""
    dataset: Name = None
    """Name of a graph; `graphtheory datasets` lists them. Without it Cora; not for figures 5.x."""
    root: Folder = None
    """Folder with the raw files; without it that of $GRAPHTHEORY_DATA. Not for embedded graphs."""
    out: Folder = None
    """Where the results go; without it runs/ID-DATASET."""
    seeds: Count = None
    """How many splits; without it the study's own number."""
    seed: int = 0
    """The first seed of figures 5.x; the others take splits from the first one on."""
    quick: bool = False
    """One seed and few epochs, for a first look."""
    resume: bool = False
    """Take finished runs from the .jsonl file there; otherwise that file is set aside, not lost."""

    def run(self, screen: Screen) -> None:
        """Train, print, write."""
        from graphtheory.data import graphs
        from graphtheory.data.catalogue import key
        from graphtheory.experiments.rows import Environment, write_csv
        from graphtheory.plot import save

        at_least(1, seeds=self.seeds)
        figure = known("ID", self.figure, FIGURES)
        at_least(0, seed=self.seed)
        dataset, root = self._dataset(figure), data_root(self.root)
        named = figure if dataset is None else f"{figure}-{key(dataset)}"
        out = self.out or Path(f"runs/{named}")
        study = _STUDIES[figure](replace(self, dataset=dataset), root)
        kept = out / f"{named}.jsonl"

        def tell() -> None:
            screen.say(f"\nFinished runs are in {kept}; the same command with --resume goes on.")

        with refusing():
            if dataset is not None:
                graphs.load(dataset, root)
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

    def _dataset(self, figure: str) -> str | None:
        """The graph's name; None of a study that draws its own."""
        if figure in DRAWN:
            if self.dataset is not None:
                raise RefusedError(f"--dataset: got {self.dataset}, but {figure} draws its graphs")
            return None
        if self.seed:
            raise RefusedError(f"--seed: got {self.seed}, but {figure} takes splits from 0 on")
        return self.dataset or "Cora"


def _distances(options: Reproduce, root: Path | None) -> Any:
    from graphtheory.experiments.distance_study import DistanceStudy

    assert options.dataset is not None
    study = DistanceStudy(options.dataset, root, seeds=options.seeds or DistanceStudy.seeds)
    return replace(study, seeds=1, epochs=40, patience=15) if options.quick else study


def _labels(options: Reproduce, root: Path | None) -> Any:
    from graphtheory.experiments.label_study import LabelStudy

    assert options.dataset is not None
    study = LabelStudy(options.dataset, root, seeds=options.seeds or LabelStudy.seeds)
    return replace(study, seeds=1, epochs=40) if options.quick else study


def _encoding(options: Reproduce, root: Path | None) -> Any:
    from graphtheory.data.catalogue import key
    from graphtheory.experiments.encoding_study import CASES, EncodingStudy

    assert options.dataset is not None
    cases = tuple(n for n, c in CASES.items() if key(c.dataset) == key(options.dataset))
    if not cases:
        sets = dict.fromkeys(case.dataset for case in CASES.values())
        raise RefusedError(f"--dataset: {options.dataset} has no case, expected {', '.join(sets)}")
    study = EncodingStudy(cases, root, options.seeds)
    return replace(study, cases=cases[:1], seeds=1, epochs=40) if options.quick else study


def _topology(options: Reproduce, root: Path | None) -> Any:
    from graphtheory.experiments.topology_study import STUDIES

    study = replace(STUDIES[options.figure], first=options.seed)
    if options.quick:
        return replace(study, labels=(100, 200), widths=study.widths[:2], seeds=1)
    return replace(study, seeds=options.seeds or study.seeds)


_STUDIES: dict[str, Callable[[Reproduce, Path | None], Any]] = {
    "fig-3-8": _distances,
    "fig-3-9": _labels,
    "encoding": _encoding,
    **dict.fromkeys(DRAWN, _topology),
}


def _report(figure: str, study: Any, rows: list[dict[str, Any]]) -> StudyReport:
    from graphtheory.report import study as reports
    from graphtheory.report.topology import topology

    if figure in DRAWN:
        return topology(figure, study, rows)
    make: dict[str, Callable[..., StudyReport]] = {
        "fig-3-8": reports.distances,
        "fig-3-9": reports.labels,
        "encoding": reports.encoding,
    }
    return make[figure](study, rows)
