"""Progress of a run: one moving line on a terminal, a line now and then in a log."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from lightning import Callback, LightningModule, Trainer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from graphtheory.lab.train.watch import EpochRow, Watch

Listener = Callable[[EpochRow], None]
Epochs = Callable[..., None]  # of a number, of how many, and "step" where it is no epoch
_LINES = 10  # of a whole run, where the output is not a terminal
_PATIENCE = 2.0  # seconds that need no estimate
_EPOCHS: ContextVar[Epochs | None] = ContextVar("epochs", default=None)


@contextmanager
def epochs_told_to(listener: Epochs) -> Iterator[None]:
    """Tell `listener` of every epoch of every `fit` in the block: its number, of how many."""
    token = _EPOCHS.set(listener)
    try:
        yield
    finally:
        _EPOCHS.reset(token)


def tell_step(step: int, steps: int) -> None:
    """Tell the listener of `epochs_told_to`, if there is one, of a step of a training by hand."""
    outer = _EPOCHS.get()
    if outer is not None:
        outer(step, steps, "step")


def outer_listener(epochs: int) -> Listener | None:
    """A listener for one `fit` of so many epochs that tells the one of `epochs_told_to`."""
    outer = _EPOCHS.get()
    return None if outer is None else lambda row: outer(int(row["epoch"]), epochs)


class Tell(Callback):
    """Pass on each epoch's row, without the test score. Comes after `Watch`."""

    def __init__(self, watch: Watch, listener: Listener) -> None:
        self.watch, self.listener = watch, listener

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Tell."""
        row = self.watch.history[-1]
        self.listener({name: value for name, value in row.items() if name != "test"})


class Show(Callback):
    """Epochs, loss and validation score on the standard error stream."""

    def __init__(self, watch: Watch, epochs: int, console: Console | None = None) -> None:
        self.watch, self.epochs = watch, epochs
        self.console = console or Console(stderr=True)
        self.bar = Progress(
            TextColumn("epoch"),
            MofNCompleteColumn(),
            BarColumn(),
            TextColumn("{task.description}"),
            TimeRemainingColumn(),
            console=self.console,
            disable=not self.console.is_terminal,
        )

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Begin where a resumed run stands."""
        self.first, self.began = len(self.watch.history), time.monotonic()
        self.line = self.bar.add_task("", total=self.epochs, completed=self.first)
        self.bar.start()

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Move."""
        row, best = self.watch.history[-1], self.watch.best
        text = f"loss {row['train_loss']:.4f}"
        if best is not None:
            text += f"  val {row['val']:.4f}  best {best['val']:.4f}"
        self.bar.update(self.line, completed=row["epoch"], description=text)
        every = max(1, self.epochs // _LINES)
        ends = trainer.should_stop or row["epoch"] == self.epochs
        if not self.console.is_terminal and (row["epoch"] % every == 0 or ends):
            each = (time.monotonic() - self.began) / (row["epoch"] - self.first)
            left = 0 if ends else each * (self.epochs - row["epoch"])
            more = f"  at most {left:.0f} s left" if left > _PATIENCE else ""
            self.console.print(f"epoch {row['epoch']}/{self.epochs}  {text}{more}", highlight=False)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """End."""
        self.bar.stop()

    def on_exception(
        self, trainer: Trainer, pl_module: LightningModule, exception: BaseException
    ) -> None:
        """Leave the terminal as it was found."""
        self.bar.stop()
