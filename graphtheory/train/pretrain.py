"""Learn without labels, for a number of epochs; a run that stopped goes on bit by bit."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from os import PathLike
from typing import Any

import torch
from lightning import Callback, LightningModule, Trainer
from torch import Tensor

from graphtheory.signals import prompt_signals
from graphtheory.train.checkpoint import (
    CheckpointError,
    SafeCheckpointIO,
    first_difference,
    read_checkpoint,
    replace_file,
    shapes,
)
from graphtheory.train.contrastive import Pretraining
from graphtheory.train.folder import RunFolder
from graphtheory.train.seeds import borrowed_randomness, derive, seed_all
from graphtheory.train.trainer import lean_trainer, quiet_lightning

Row = dict[str, float]
_COLUMNS = ("epoch", "loss", "seconds")


class Rows:
    """Rows of a tensor in a new order each epoch, in batches of one size; what is left is left out.

    Args:
        of: Anything with a first axis that counts the samples.
        batch_size: Rows a batch; all of them where there are fewer.
        seed: Of the order, 0 or more.
        limit: At most so many batches an epoch; None is all.

    Raises:
        ValueError: A number out of its range.
    """

    def __init__(self, of: Tensor, batch_size: int, seed: int, limit: int | None = None) -> None:
        if batch_size < 1 or seed < 0 or (limit is not None and limit < 1):
            raise ValueError(
                f"batch_size, seed, limit: got {batch_size}, {seed}, {limit}, expected 1, 0, 1 or "
                "more"
            )
        self.of, self.size, self.seed = of, min(batch_size, len(of)), seed
        count = len(of) // self.size
        self.count = count if limit is None else min(limit, count)

    def epoch(self, number: int) -> Iterator[Tensor]:
        """The batches of one epoch; the same for the same number."""
        generator = torch.Generator().manual_seed(derive(self.seed, number))
        order = torch.randperm(len(self.of), generator=generator)
        for rows in order.split(self.size)[: self.count]:
            yield self.of[rows]

    def describe(self) -> dict[str, Any]:
        """What a resumed run must find unchanged."""
        return {
            "shape": list(self.of.shape), "sha256": _digest(self.of),
            "batch": self.size, "batches": self.count, "seed": self.seed,
        }  # fmt: skip


def pretrain(
    task: Pretraining,
    data: Rows,
    *,
    epochs: int = 100,
    out_dir: str | PathLike[str] | None = None,
    resume: bool = False,
    tell: Callable[[Row], None] = lambda row: None,
    seed: int = 0,
) -> list[Row]:
    """Train for a fixed number of epochs, without labels and without choosing an epoch.

    Afterwards the task holds the last parameters, in evaluation mode. The result is a function of
    the parameters, the data and the seeds, on one machine with one number of threads; the caller's
    random state is left alone. With `out_dir` each epoch leaves `last.ckpt` and a line of
    `history.csv`; a run that was stopped goes on from there to bitwise the same parameters. Ctrl-C
    raises KeyboardInterrupt, SIGTERM SystemExit(143), at once; the epoch under way is lost.

    Args:
        task: What to train.
        data: Its batches.
        epochs: So many, at least 1; the cosine of the step size ends there, so that a resumed run
            must have as many.
        out_dir: Folder of this run alone, made where it is missing.
        resume: Go on where `out_dir` stands, from the start where it holds no checkpoint.
        tell: Given each epoch's row.
        seed: Of augmentations, dropout and other draws from global random state, 0 or more.

    Returns:
        One row an epoch: epoch (from 1), loss (nats, mean over the batches), seconds.

    Raises:
        ValueError: A number out of its range, or `resume` without a folder.
        FloatingPointError: A loss that is not finite.
        CheckpointError: `out_dir` holds a damaged checkpoint or one of another run.
        FileExistsError: `out_dir` holds a run and `resume` is False.
        OSError: `out_dir` cannot be written to, has no space, or is in use.
    """
    if epochs < 1 or seed < 0 or (resume and out_dir is None):
        raise ValueError(
            f"epochs, seed, resume: got {epochs}, {seed}, {resume}, expected 1 or more, 0 or more, "
            "and a folder to resume from"
        )
    run = _description(task, data, epochs, seed)
    course = Course(data, run, seed, tell)
    with ExitStack() as around:
        begun = None
        if out_dir is not None:
            folder = course.folder = RunFolder(out_dir)
            around.enter_context(folder.opened(task, resume=resume))
            begun = _restore(folder, run, course)
            replace_file(folder.log, (",".join(_COLUMNS) + "\n").encode())
            course.write_log(course.history)
        if len(course.history) < epochs:
            task.train()
            with borrowed_randomness(), quiet_lightning(), prompt_signals():
                trainer = lean_trainer(epochs, [course], [SafeCheckpointIO()])
                trainer.fit(task, course, ckpt_path=begun)
        elif begun is not None:
            task.load_state_dict(read_checkpoint(begun)["state_dict"])
    task.eval()
    return course.history


def _description(task: Pretraining, data: Rows, epochs: int, seed: int) -> dict[str, Any]:
    return {
        "task": type(task).__name__,
        "parameters": shapes(task.state_dict()),
        "modules": {f"line {i}": s for i, s in enumerate(str(task).splitlines(), start=1)},
        "temperature": str(getattr(task, "temperature", None)),
        "optimizer": str(task.options),
        "data": data.describe(),
        "buffers": _fixed(task),
        "epochs": epochs,
        "seed": seed,
    }


def _fixed(task: Pretraining) -> dict[str, str]:
    """Digests of buffers that no checkpoint keeps, such as the graph that is looked at."""
    kept = task.state_dict()
    return {name: _digest(b) for name, b in task.named_buffers() if name not in kept}


def _digest(tensor: Tensor) -> str:
    parts = [tensor]
    if tensor.layout == torch.sparse_csr:
        parts = [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    whole = hashlib.sha256(str(tuple(tensor.shape)).encode())
    for part in parts:
        whole.update(part.detach().cpu().contiguous().numpy().tobytes())
    return whole.hexdigest()


def _restore(folder: RunFolder, run: dict[str, Any], course: Course) -> Any:
    """The checkpoint to go on from, after the record in it went to `course`."""
    if not folder.last.exists():
        return None
    content = read_checkpoint(folder.last)
    if difference := first_difference(content.get("run", {}), run):
        raise CheckpointError(f"{folder.last}: checkpoint of another run: {difference}")
    course.history = list(content["history"])
    return folder.last


class Course(Callback):
    """Seed each epoch, give its batches, note its loss, keep the run.

    Args:
        data: The batches.
        run: Which run it is.
        seed: Of everything that draws from global random state.
        tell: Given each epoch's row.
    """

    folder: RunFolder | None = None

    def __init__(
        self, data: Rows, run: dict[str, Any], seed: int, tell: Callable[[Row], None]
    ) -> None:
        self.data, self.run, self.seed, self.tell = data, run, seed, tell
        self.history: list[Row] = []
        self._losses: list[Tensor] = []
        self._began = 0.0

    def __len__(self) -> int:
        return self.data.count

    def __iter__(self) -> Iterator[Tensor]:
        yield from self.data.epoch(len(self.history))

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Give the epoch its own randomness."""
        self._began, self._losses = time.perf_counter(), []
        seed_all(derive(self.seed, trainer.current_epoch))

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Remember the loss."""
        self._losses.append(outputs["loss"])

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Note, keep, tell."""
        number, loss = trainer.current_epoch + 1, float(torch.stack(self._losses).mean())
        if not math.isfinite(loss):
            options = getattr(pl_module, "options", None)
            raise FloatingPointError(
                f"epoch {number}: loss {loss}; expected a finite one, which a smaller step than "
                f"that of {options} may give"
            )
        row = {"epoch": number, "loss": loss, "seconds": time.perf_counter() - self._began}
        self.history.append(row)
        if self.folder is not None:
            trainer.save_checkpoint(self.folder.last)
            self.write_log([row])
        self.tell(row)

    def on_save_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Say which run it is, and how it went."""
        checkpoint["run"], checkpoint["history"] = self.run, self.history

    def write_log(self, rows: list[Row]) -> None:
        """Add lines to the log."""
        assert self.folder is not None
        with self.folder.log.open("a", newline="") as file:
            file.writelines(",".join(repr(row[c]) for c in _COLUMNS) + "\n" for row in rows)
