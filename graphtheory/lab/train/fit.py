"""Train a task: seeds, memory, scores, the best epoch, progress, and the end of each epoch."""

import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from os import PathLike
from statistics import median
from typing import Any

from rich.console import Console
from torch.utils.data import DataLoader

from graphtheory.lab.progress import Steps, report_epochs
from graphtheory.lab.signals import prompt_signals
from graphtheory.lab.train.checkpoint import next_place
from graphtheory.lab.train.contract import Source, Task, check_at_least
from graphtheory.lab.train.trainer import TrainerOptions, quiet_lightning
from graphtheory.lab.train.watch import (
    EpochRow,
    Listener,
    RunFolder,
    StudyFolder,
    Watch,
    borrowed_randomness,
)

_LINES = 10  # of a whole run, where the output is not a terminal


@dataclass(frozen=True)
class FitResult:
    """How well a run of `fit` did."""

    #: Score on the test part at the best epoch, in the metric's own unit (a share 0..1, or an
    #: error); None where the data have no test part, as `ImageData`.
    test: float | None
    val: float  #: Score on the validation part at the best epoch; nan of a task without labels.
    best_epoch: int  #: The first epoch is 1; of a task without labels it is the last one.
    epochs: int  #: How many were run.
    seconds_per_epoch: float  #: Median, evaluation included.
    peak_mb: float  #: MB (10^6 bytes) that training took at its peak, on a GPU of its memory.
    #: One row an epoch: epoch, train_loss, val_loss, val, test, seconds; without labels epoch,
    #: train_loss, seconds. Nothing is chosen by the test column.
    history: list[EpochRow] = field(repr=False)


def fit(
    task: Task,
    datamodule: Source | DataLoader[Any],
    *,
    epochs: int = 200,
    patience: int = 50,
    out_dir: str | PathLike[str] | None = None,
    resume: bool = False,
    progress: bool | Listener = True,
    seed: int = 0,
    trainer: TrainerOptions = TrainerOptions(),
) -> FitResult:
    """Train, and report the test score of the epoch with the best validation score.

    Of two epochs the one with the better validation score is better, then the one with the lower
    validation loss. Afterwards the task holds the best epoch's parameters, in evaluation mode. A
    task without labels, such as `papers.fusion.contrastive.SimCLR`, is not scored: it trains for
    all epochs, at whose end its step size is 0, and holds the last parameters. The result follows
    from the model's parameters, the data and the seeds, on one machine with one number of threads;
    the caller's random state is left alone.

    With `out_dir` each epoch leaves `last.ckpt`, the one before it `previous.ckpt`, the best one
    `best.ckpt`, and `history.csv` a line (without test scores). A run that was stopped for any
    reason goes on from there to bitwise the same parameters; a finished one gives the same result.
    Ctrl-C raises KeyboardInterrupt, SIGTERM SystemExit(143), at once; the unfinished epoch is lost.

    Args:
        task: What to train.
        datamodule: A `Source` such as `FullGraph`; of a task without labels what it says.
        epochs: At most this many, at least 1, with an `ImageTask` those of its recipe. A resumed
            run may have more than it began with, of a task without labels the same number.
        patience: Stop after this many epochs without a better one, at least 1; not of a task
            without labels.
        out_dir: Folder of this run alone, made where it is missing; None writes nothing.
        resume: Go on where `out_dir` stands, from the start where it holds no checkpoint.
        progress: Show a line on the standard error stream, or a function that is given each epoch's
            row, without the test score.
        seed: Of dropout and other draws from global random state, 0 or more.
        trainer: Devices, precision, accumulation, callbacks and loggers, by Lightning.

    Raises:
        ValueError: An argument out of its range, or labels that the task has no class for.
        TypeError: Data that this task cannot train on.
        FloatingPointError: A loss that is not finite.
        CheckpointError: `out_dir` holds a damaged checkpoint or one of another run.
        FileExistsError: `out_dir` holds a run and `resume` is False.
        OSError: `out_dir` cannot be written to, has no space, or is in use.

    Example:
        >>> from graphtheory.lab.datasets import graphs
        >>> from graphtheory.lab.train import FullGraph, NodeTask
        >>> from graphtheory.models import GraphTransformer
        >>> task = NodeTask(GraphTransformer(34, 16, 2, num_layers=1, heads=2), num_classes=2)
        >>> fit(task, FullGraph(graphs.load("karate")), epochs=3, progress=False).epochs
        3
    """
    check_at_least(1, epochs=epochs, patience=patience)
    check_at_least(0, seed=seed)
    if resume and out_dir is None:
        raise ValueError("resume: got True with out_dir=None, expected the folder of a run")
    data = task.source(datamodule)
    if task.num_classes is not None:
        data.check_classes(task.num_classes)
    watch = Watch(data, seed=seed, patience=patience)
    watch.logs = bool(trainer.callbacks or trainer.loggers)
    folder: StudyFolder | None = None
    checkpoint = None
    with ExitStack() as stack:
        stack.enter_context(quiet_lightning())
        lightning = trainer.build(epochs, data.num_batches())
        first = lightning.is_global_zero
        if out_dir is not None:
            folder = RunFolder(out_dir, watch)
            if first:
                stack.enter_context(folder.opened(task, resume=resume))
        elif (place := next_place()) is not None:
            folder = StudyFolder(place, watch)
        if folder is not None:
            run = task.describe(epochs) | {"data": data.describe(), "seed": seed}
            checkpoint = folder.restore(task, run | trainer.describe(), writes=first)
        if len(watch.history) < epochs and not watch.out_of_patience:
            if progress is True and first:
                watch.listener = stack.enter_context(shown(watch, epochs))
            elif callable(progress) and first:
                watch.listener = progress
            callbacks: list[Any] = lightning.callbacks  # type: ignore[attr-defined]
            callbacks[:] = [watch, *callbacks, *([folder] if folder else [])]
            task.train()
            watch.memory.start()
            with borrowed_randomness(), prompt_signals():
                lightning.fit(task, datamodule=data, ckpt_path=checkpoint)
    if watch.best is not None:
        task.load_state_dict(watch.best_state)
    task.eval()
    best = watch.best or watch.history[-1]
    return FitResult(
        test=best.get("test"),
        val=best.get("val", math.nan),
        best_epoch=int(best["epoch"]),
        epochs=len(watch.history),
        seconds_per_epoch=median(row["seconds"] for row in watch.history),
        peak_mb=watch.memory.megabytes,
        history=watch.history,
    )


@contextmanager
def shown(watch: Watch, epochs: int) -> Iterator[Listener]:
    """Show epochs, loss and validation score on the standard error stream."""
    steps = Steps(Console(stderr=True), "epoch", shown=True)

    def show_part(epoch: float, epochs: int, unit: str) -> None:
        if epoch % 1:
            steps.within(f"{epoch % 1:.0%} of it", epoch % 1)

    def show(row: EpochRow) -> None:
        epoch, text = int(row["epoch"]), f"loss {row['train_loss']:.4f}"
        if watch.best is not None:
            text += f"  val {row['val']:.4f}  best {watch.best['val']:.4f}"
        if watch.out_of_patience or epoch % max(1, epochs // _LINES) == 0 or epoch == epochs:
            steps.finished(text)
        steps.before(text, epoch, epochs)

    steps.before("", len(watch.history), epochs)
    with steps.bar, report_epochs(show_part):
        yield show
