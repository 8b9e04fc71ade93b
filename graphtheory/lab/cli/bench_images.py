"""`graphtheory bench` on images."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphtheory.lab.cli.bench_runs import say_known, told_where_runs_are, train_all
from graphtheory.lab.cli.show import (
    RefusedError,
    Screen,
    data_root,
    refusing,
    set_aside,
    threads,
    write_json,
)
from graphtheory.lab.cli.train_images import MANY, Finished

if TYPE_CHECKING:
    from graphtheory.lab.bench.image_benchmark import ImageBenchmark
    from graphtheory.lab.cli.bench import Bench

SEEDS = 3


def bench_images(screen: Screen, command: Bench, models: tuple[str, ...]) -> None:
    """Train, print, write."""
    from graphtheory.lab.bench.measure import ACCURACY
    from graphtheory.lab.bench.rows import Environment, write_csv
    from graphtheory.lab.report.image_benchmark import ImageReport
    from graphtheory.lab.train import CheckpointError

    bench, out = _prepared(screen, command, models)
    with (
        told_where_runs_are(screen, bench, out, ", with the run under way from its last epoch"),
        threads(command.threads, MANY),
        refusing(CheckpointError, ValueError, OSError, ImportError),
    ):
        runs = train_all(screen, bench, ACCURACY, ".2f", " of {epoch:.1f} s")
        here = Environment.here()
    report = ImageReport(bench, runs, screen.command, here)
    screen.table(report.table())
    if (against := report.differences()) is not None:
        screen.table(against)
    write_json(out / "results.json", report.results())
    screen.result({"folder": out, **report.results()})
    write_csv(out / "results.csv", report.rows(), here)
    with screen.working("report.html"):
        report.page().save(out / "report.html")
    screen.say(
        f"Written to {out}: report.html, results.json, results.csv, runs.jsonl, and a folder for "
        "each run."
    )


def _prepared(
    screen: Screen, command: Bench, models: tuple[str, ...]
) -> tuple[ImageBenchmark, Path]:
    """The benchmark and its folder, after all that can be refused."""
    from graphtheory.lab.bench.image_benchmark import ImageBenchmark
    from graphtheory.lab.bench.node_benchmark import FinishedRuns
    from graphtheory.lab.bench.options import read_options
    from graphtheory.lab.datasets import image_sets

    for name in ("patience", "distances", "search_log"):
        if getattr(command, name) is not None:
            raise RefusedError(f"--{name.replace('_', '-')}: not for images")
    root, seeds = data_root(command.root), command.seeds or SEEDS
    with refusing():
        with screen.working(f"reading {command.dataset}"):
            info = image_sets.load(command.dataset, root, size=command.image_size).info
        info.known_split(command.split)
        out = command.out or Path(f"runs/bench-{info.name}-images")
        out.mkdir(parents=True, exist_ok=True)
        if not command.resume:
            for earlier in ("runs.jsonl", *(f"{m}-{s}" for m in models for s in range(seeds))):
                set_aside(screen, out / earlier)
        bench = ImageBenchmark(
            command.dataset, models, seeds, root=root, epochs=command.epochs,
            image_size=command.image_size, options=read_options(command.set),
            record=FinishedRuns(out / "runs.jsonl"), kept=_keep(screen),
        )  # fmt: skip
        if told := bench.set_by_hand:
            screen.note(f"Set by hand: {told}.")
        say_known(screen, bench)
    return bench, out


def _keep(screen: Screen) -> Any:
    def keep(trial: Any, images: Any, task: Any, outcome: Any, folder: str) -> None:
        seed = int(folder.rpartition("-")[2])
        Finished(trial, images, task, outcome, seed).write(Path(folder), screen.command)

    return keep
