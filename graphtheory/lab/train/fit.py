"""Train a task and say how well it did."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from math import nan
from os import PathLike
from pathlib import Path
from statistics import median
from typing import Any

import torch
from lightning import Trainer
from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from torch.utils.data import DataLoader

from graphtheory.lab.signals import prompt_signals
from graphtheory.lab.train.checkpoint import RunFolder, SafeCheckpointIO, StudyFolder, next_place
from graphtheory.lab.train.contract import Source, Task, check_at_least
from graphtheory.lab.train.watch import EpochRow, Listener, Watch, borrowed_randomness, shown


@dataclass(frozen=True)
class FitResult:
    """How well a run of `fit` did.

    Args:
        test: Score on the test part at the best epoch, in the metric's own unit (a share 0..1, or
            an error); None where the data have no test part, as `ImageData`.
        val: Score on the validation part at the best epoch; nan of a task without labels.
        best_epoch: The first epoch is 1; of a task without labels it is the last one.
        epochs: How many were run.
        seconds_per_epoch: Median, evaluation included.
        peak_mb: MB (10^6 bytes) that training took at its peak; see `PeakMemory`.
        history: One row an epoch: epoch, train_loss, val_loss, val, test, seconds; without labels
            epoch, train_loss, seconds. The test column is for drawing curves; nothing is chosen by
            it.
    """

    test: float | None
    val: float
    best_epoch: int
    epochs: int
    seconds_per_epoch: float
    peak_mb: float
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
) -> FitResult:
    """Train, and report the test score of the epoch with the best validation score.

    Every epoch ends with one pass that scores validation, and of graphs the test nodes with it; of
    two epochs the one with the better validation score is better, then the one with the lower
    validation loss. Afterwards the task holds the best epoch's parameters, in evaluation mode. A
    task that learns without labels, such as `papers.fusion.contrastive.SimCLR`, is not scored: it
    trains for all epochs, at whose end its step size is 0, and holds the last parameters. The
    result is a function of the model's parameters, the data and the seeds, on one machine with one
    number of threads; the caller's random state is left alone.

    With `out_dir` each epoch leaves `last.ckpt`, the one before it `previous.ckpt`, the best one
    `best.ckpt`, and `history.csv` a line (without test scores). A run that was stopped for any
    reason goes on from there to bitwise the same parameters; resuming a finished run trains nothing
    and gives the same result. Ctrl-C raises KeyboardInterrupt, SIGTERM SystemExit(143), at once;
    the unfinished epoch is lost.

    Args:
        task: What to train.
        datamodule: A `FullGraph`, `SampledGraph`, `GraphSets` or `ImageData`; of a task without
            labels what it says.
        epochs: At most this many, at least 1, with an `ImageTask` those of its recipe. A resumed
            run may have more than it began with, of a task without labels the same number.
        patience: Stop after this many epochs without a better one, at least 1; not of a task
            without labels.
        out_dir: Folder of this run alone, made where it is missing; None writes nothing.
        resume: Go on where `out_dir` stands, from the start where it holds no checkpoint.
        progress: Show a line on the standard error stream, or a function that is given each epoch's
            row, without the test score.
        seed: Of dropout and other draws from global random state, 0 or more.

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
    folder: StudyFolder | None = None
    checkpoint = None
    with ExitStack() as stack:
        if out_dir is not None:
            folder = RunFolder(out_dir, watch)
            stack.enter_context(folder.opened(task, resume=resume))
        elif (place := next_place()) is not None:
            folder = StudyFolder(place, watch)
        if folder is not None:
            run = task.describe(epochs) | {"data": data.describe(), "seed": seed}
            checkpoint = folder.restore(task, run)
        if len(watch.history) < epochs and not watch.out_of_patience:
            if progress is True:
                watch.listener = stack.enter_context(shown(watch, epochs))
            elif progress:
                watch.listener = progress
            _train(task, [watch] if folder is None else [watch, folder], epochs, checkpoint)
    if watch.best is not None:
        task.load_state_dict(watch.best_state)
    task.eval()
    best = watch.best or watch.history[-1]
    return FitResult(
        test=best.get("test"),
        val=best.get("val", nan),
        best_epoch=int(best["epoch"]),
        epochs=len(watch.history),
        seconds_per_epoch=median(row["seconds"] for row in watch.history),
        peak_mb=watch.memory.megabytes,
        history=watch.history,
    )


def _train(task: Task, callbacks: list[Any], epochs: int, checkpoint: Path | None) -> None:
    """Train on one device, without Lightning's files; the first callback is `Watch`."""
    watch = callbacks[0]
    task.train()
    watch.memory.start()
    with borrowed_randomness(), quiet_lightning(), prompt_signals():
        trainer = Trainer(
            accelerator="gpu" if torch.cuda.is_available() else "cpu",
            devices=1,
            max_epochs=epochs,
            callbacks=callbacks,
            # a cluster's environment changes nothing
            plugins=[LightningEnvironment(), SafeCheckpointIO()],
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            num_sanity_val_steps=0,
            limit_val_batches=0,
        )
        trainer.fit(task, datamodule=watch.data, ckpt_path=checkpoint)


@contextmanager
def quiet_lightning() -> Iterator[None]:
    """Keep Lightning's notes on devices, and one warning that it provokes itself, from the user."""
    logger = logging.getLogger("lightning.pytorch")
    level = logger.level
    logger.setLevel(max(level, logging.WARNING))
    with warnings.catch_warnings():
        # Lightning 2.6 builds a LeafSpec, which torch 2.13 deprecates.
        warnings.filterwarnings("ignore", message=r".*LeafSpec.*", category=FutureWarning)
        try:
            yield
        finally:
            logger.setLevel(level)
