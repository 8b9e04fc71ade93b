"""What commands do alike: train on graphs and on images, search before a table and alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from graphtheory.lab.cli.show import Screen, refusing, threads, told_on_stop

if TYPE_CHECKING:
    from graphtheory.lab.bench.measure import Measure
    from graphtheory.lab.bench.node_benchmark import Benchmark, Run
    from graphtheory.lab.bench.search import Judged, Search


def say_known(screen: Screen, bench: Benchmark) -> None:
    """How many of the runs are kept from earlier.

    Raises:
        ValueError: If some of them were made under other settings.
    """
    if known_runs := bench.count_known():
        screen.note(f"{known_runs} of {bench.total} runs are known from earlier.")


@contextmanager
def told_where_runs_are(
    screen: Screen, bench: Benchmark, out: Path, more: str = ""
) -> Iterator[None]:
    """Say how far a benchmark came when Ctrl-C or SIGTERM ends the block."""

    def tell() -> None:
        screen.note(
            f"\n{bench.count_known()} of {bench.total} runs are in {out / 'runs.jsonl'}; the same "
            f"command with --resume goes on{more}."
        )

    with told_on_stop(tell):
        yield


def train_all(
    screen: Screen, bench: Benchmark, measure: Measure, score: str, seconds: str
) -> list[Run]:
    """Train what is not known yet, with a line of progress for each run.

    Args:
        screen: Where progress goes.
        bench: What is trained.
        measure: How scores are read.
        score: Format of a score in per cent.
        seconds: Format of the time, of `{whole}` and `{epoch}`.
    """
    from graphtheory.lab.train.score import UndefinedScoreError

    with refusing(UndefinedScoreError), screen.steps("run") as steps:

        def tell(run: Run) -> None:
            each = run.seconds_per_epoch
            time = seconds.format(whole=each * run.epochs, epoch=each)
            steps.finished(
                f"{run.model}, seed {run.seed}: test {measure.short(run.test, score)}, validation "
                f"{measure.short(run.val, score)} after {run.epochs} epochs{time}"
            )

        return replace(bench, finished=tell).run(steps.before)


def search_all(screen: Screen, study: Search, asked: int | None, nodes: int) -> list[Judged]:
    """Judge the candidates of a search, and on a stop say where they are.

    Args:
        screen: Where progress goes.
        study: What is tried.
        asked: Threads, as the user wants them.
        nodes: Those that are computed with at the same time.
    """
    from graphtheory.lab.train.score import UndefinedScoreError

    def tell() -> None:
        screen.note(f"\nWhat was tried is in {study.log}; the same command goes on.")

    with (
        refusing(UndefinedScoreError), told_on_stop(tell), threads(asked, nodes),
        screen.steps("candidate") as steps,
    ):  # fmt: skip
        return study.run(steps)
