"""`graphtheory bench` on images."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphtheory.cli.show import (
    RefusedError,
    Screen,
    data_root,
    refusing,
    set_aside,
    threads,
    told_on_stop,
    write_json,
)
from graphtheory.cli.train_images import MANY, Finished

if TYPE_CHECKING:
    from graphtheory.bench.image_benchmark import ImageBenchmark
    from graphtheory.bench.node_benchmark import Run
    from graphtheory.cli.bench import Bench

SEEDS = 3


def bench_images(screen: Screen, command: Bench, models: tuple[str, ...]) -> None:
    """Train, print, write."""
    from graphtheory.bench.rows import Environment, write_csv
    from graphtheory.report.image_benchmark import ImageReport
    from graphtheory.train import CheckpointError

    bench = _prepared(screen, command, models)
    out = bench.record.path.parent
    with (
        told_on_stop(lambda: _tell(screen, bench)),
        threads(command.threads, MANY),
        refusing(CheckpointError, ValueError, OSError, ImportError),
    ):
        runs = _train(screen, bench)
        here = Environment.here()
    report = ImageReport(bench, runs, screen.command, here)
    screen.table(report.table())
    if (against := report.differences()) is not None:
        screen.table(against)
    write_json(out / "results.json", report.results())
    write_csv(out / "results.csv", report.rows(), here)
    report.page().save(out / "report.html")
    screen.say(
        f"Written to {out}: report.html, results.json, results.csv, runs.jsonl, and a folder for "
        "each run."
    )


def _prepared(screen: Screen, command: Bench, models: tuple[str, ...]) -> ImageBenchmark:
    """The benchmark, after all that can be refused."""
    from graphtheory.bench.image_benchmark import ImageBenchmark
    from graphtheory.bench.record import Record
    from graphtheory.data import image_sets

    for name in ("patience", "distances", "search_log"):
        if getattr(command, name) is not None:
            raise RefusedError(f"--{name.replace('_', '-')}: not for images")
    root, seeds = data_root(command.root), command.seeds or SEEDS
    with refusing():
        info = image_sets.load(command.dataset, root).info
        info.known_split(command.split)
        out = command.out or Path(f"runs/bench-{info.name}-images")
        out.mkdir(parents=True, exist_ok=True)
        if not command.resume:
            for earlier in ("runs.jsonl", *(f"{m}-{s}" for m in models for s in range(seeds))):
                set_aside(screen, out / earlier)
        bench = ImageBenchmark(
            info.name, models, seeds, root=root, epochs=command.epochs,
            record=Record(out / "runs.jsonl"), kept=_keep(screen),
        )  # fmt: skip
        if known_runs := bench.check():
            screen.say(f"{known_runs} of {seeds * len(models)} runs are known from earlier.")
    return bench


def _keep(screen: Screen) -> Any:
    def keep(trial: Any, images: Any, task: Any, outcome: Any, folder: str) -> None:
        Finished(trial, images, task, outcome).write(Path(folder), screen.command)

    return keep


def _train(screen: Screen, bench: ImageBenchmark) -> list[Run]:
    with screen.steps("run") as steps:

        def tell(run: Run) -> None:
            steps.finished(
                f"{run.model}, seed {run.seed}: test {100 * run.test:.2f}, validation "
                f"{100 * run.val:.2f} after {run.epochs} epochs of {run.seconds_per_epoch:.1f} s"
            )

        return replace(bench, finished=tell).run(steps.before)


def _tell(screen: Screen, bench: ImageBenchmark) -> None:
    screen.say(
        f"\n{bench.check()} of {bench.seeds * len(bench.models)} runs are in {bench.record.path}; "
        "the same command with --resume goes on, with the run under way from its last epoch."
    )
