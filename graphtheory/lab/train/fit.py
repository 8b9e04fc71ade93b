"""Train a task: options of Lightning, seeds, memory, scores, the best epoch, and progress."""

import logging
import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from os import PathLike
from statistics import median
from typing import Any

import torch
from lightning import Callback, Trainer
from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from lightning.pytorch.accelerators import AcceleratorRegistry as Accelerators
from lightning.pytorch.callbacks import Checkpoint
from lightning.pytorch.loggers import Logger
from lightning.pytorch.strategies import StrategyRegistry
from lightning.pytorch.strategies.launchers import _MultiProcessingLauncher
from rich.console import Console
from torch.utils.data import DataLoader

from graphtheory.lab.progress import Steps, report_epochs
from graphtheory.lab.signals import prompt_signals
from graphtheory.lab.train.checkpoint import SafeCheckpointIO, next_place
from graphtheory.lab.train.contract import Source, Task, check_at_least
from graphtheory.lab.train.watch import (
    EpochRow,
    Listener,
    RunFolder,
    StudyFolder,
    Watch,
    borrowed_randomness,
)

_PRECISIONS = ("32-true", "bf16-mixed", "16-mixed")
_LOG_EVERY = 50  # steps, Lightning's own number


@dataclass(frozen=True)
class TrainerOptions:
    """Where and how precisely `fit` trains, and what looks on, by Lightning's `Trainer`.

    Several devices take different batches of an epoch, each as large as on one; every device
    evaluates all of validation, or they share it by `evaluation_rows` of the data. One batch with
    the whole graph is the same on all, which saves nothing. Each process runs the whole script;
    only the first one writes and shows progress.

    Args:
        device: "cpu", "cuda", "cuda:1" or "mps"; None is a GPU where there is one, else the CPU.
        devices: How many on each machine, their numbers, or "auto".
        num_nodes: Machines, at least 1.
        strategy: Lightning's name or object of one, such as "ddp".
        precision: "32-true", "bf16-mixed" or "16-mixed"; evaluation has it too.
        accumulate: Batches whose gradients make one step, at least 1.
        callbacks: Callbacks of `lightning.pytorch`, which find train_loss, val_loss and val.
        loggers: Loggers of `lightning.pytorch`, which get them after every epoch.

    Raises:
        ValueError: A number, precision or strategy that is not known, or a device that is not here.
        TypeError: A callback or logger that is none of `lightning.pytorch`.

    Example:
        >>> TrainerOptions(precision="bf16-mixed", accumulate=2).describe()
        {'precision': 'bf16-mixed', 'accumulate': '2'}
    """

    device: str | None = None
    devices: int | str | Sequence[int] = 1
    num_nodes: int = 1
    strategy: Any = "auto"
    precision: str = "32-true"
    accumulate: int = 1
    callbacks: Sequence[Callback] = ()
    loggers: Sequence[Logger] = ()

    def __post_init__(self) -> None:
        check_at_least(1, num_nodes=self.num_nodes, accumulate=self.accumulate)
        if self.precision not in _PRECISIONS:
            expected = f"expected one of {', '.join(_PRECISIONS)}"
            raise ValueError(f"precision: got {self.precision!r}, {expected}")
        here = [n for n in Accelerators if Accelerators[n]["accelerator"].is_available()]
        if self.device is not None and self.device.partition(":")[0] not in here:
            raise ValueError(f"device: got {self.device!r}, expected one of {', '.join(here)}")
        known = ["auto", *StrategyRegistry.available_strategies()]
        if isinstance(self.strategy, str) and self.strategy not in known:
            expected = f"expected one of {', '.join(known)}"
            raise ValueError(f"strategy: got {self.strategy!r}, {expected}")
        for name, given, kind in (
            ("callbacks", self.callbacks, Callback), ("loggers", self.loggers, Logger)
        ):  # fmt: skip
            if wrong := [one for one in given if not isinstance(one, kind)]:
                found = f"{type(wrong[0]).__module__}.{type(wrong[0]).__name__}"
                raise TypeError(f"{name}: got a {found}, expected those of lightning.pytorch")

    def describe(self) -> dict[str, str]:
        """List the options that change what is learned, other than the default."""
        names = ("precision", "accumulate", "devices", "num_nodes")
        given = {name: getattr(self, name) for name in names}
        return {n: str(value) for n, value in given.items() if value != getattr(TrainerOptions, n)}

    def build(self, epochs: int, batches: int) -> Trainer:
        """Make the trainer, without files of its own, for epochs of that many batches."""
        kind, _, number = (self.device or "").partition(":")
        one = self.devices in (1, "1") if isinstance(self.devices, int | str) else self.devices[1:]
        alone = self.num_nodes == 1 and one in (True, [], ())
        trainer = Trainer(
            accelerator=kind or ("gpu" if torch.cuda.is_available() else "cpu"),
            devices=[int(number)] if number else self.devices,  # type: ignore[arg-type]
            num_nodes=self.num_nodes,
            strategy=self.strategy,
            precision=self.precision,  # type: ignore[arg-type]
            accumulate_grad_batches=self.accumulate,
            max_epochs=epochs,
            callbacks=list(self.callbacks),
            # a cluster's environment changes nothing unless several devices are asked for
            plugins=[SafeCheckpointIO(), *([LightningEnvironment()] if alone else [])],
            logger=list(self.loggers) or False,
            log_every_n_steps=min(_LOG_EVERY, batches),
            enable_checkpointing=any(isinstance(one, Checkpoint) for one in self.callbacks),
            enable_progress_bar=False,
            enable_model_summary=False,
            num_sanity_val_steps=0,
            limit_val_batches=0,
        )
        if isinstance(trainer.strategy.launcher, _MultiProcessingLauncher):
            said = "expected one that starts scripts, such as 'ddp'; a notebook has devices=1"
            raise ValueError(f"strategy: {self.strategy!r} forks or spawns processes, {said}")
        return trainer


@contextmanager
def quiet(package: str) -> Iterator[None]:
    """Keep what a package logs from the user, but for its warnings."""
    logger = logging.getLogger(package)
    level = logger.level
    logger.setLevel(max(level, logging.WARNING))
    try:
        yield
    finally:
        logger.setLevel(level)


@contextmanager
def quiet_lightning() -> Iterator[None]:
    """Keep Lightning's notes on devices, and one warning that it provokes itself, from the user."""
    with quiet("lightning.pytorch"), warnings.catch_warnings():
        # Lightning 2.6 builds a LeafSpec, which torch 2.13 deprecates.
        warnings.filterwarnings("ignore", message=r".*LeafSpec.*", category=FutureWarning)
        yield


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
    if not isinstance(task, Task):
        got = f"{task!r:.60}" if isinstance(task, str | int) else f"a {type(task).__name__}"
        raise TypeError(f"task: got {got}, expected one such as NodeTask(model, num_classes=2)")
    if not isinstance(trainer, TrainerOptions):
        raise TypeError(f"trainer: got {trainer!r}, expected TrainerOptions(...)")
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
