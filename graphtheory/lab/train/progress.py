"""Progress of a run: one moving line on a terminal, a line now and then in a log."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from graphtheory.lab.train.watch import EpochRow, Listener, Watch

Epochs = Callable[..., None]  # of a number, of how many, and "step" where it is no epoch
_LINES = 10  # of a whole run, where the output is not a terminal
_PATIENCE = 2.0  # seconds that need no estimate
_EPOCHS: ContextVar[Epochs | None] = ContextVar("epochs", default=None)


@contextmanager
def report_epochs(listener: Epochs) -> Iterator[None]:
    """Call `listener` after every epoch of every `fit` in the block: its number, of how many."""
    token = _EPOCHS.set(listener)
    try:
        yield
    finally:
        _EPOCHS.reset(token)


def report_step(step: int, steps: int) -> None:
    """Call the listener of `report_epochs`, if there is one, after a step of your own loop."""
    outer = _EPOCHS.get()
    if outer is not None:
        outer(step, steps, "step")


def parent_listeners(epochs: int) -> list[Listener]:
    """Make listeners of one `fit` of so many epochs from that of `report_epochs`."""
    outer = _EPOCHS.get()
    return [] if outer is None else [lambda row: outer(int(row["epoch"]), epochs)]


@contextmanager
def shown(watch: Watch, epochs: int) -> Iterator[Listener]:
    """Show epochs, loss and validation score on the standard error stream."""
    console = Console(stderr=True)
    bar = Progress(
        TextColumn("epoch"), MofNCompleteColumn(), BarColumn(), TextColumn("{task.description}"),
        TimeRemainingColumn(), console=console, disable=not console.is_terminal,
    )  # fmt: skip
    first, began = len(watch.history), time.monotonic()
    line = bar.add_task("", total=epochs, completed=first)

    def show(row: EpochRow) -> None:
        epoch = int(row["epoch"])
        text = f"loss {row['train_loss']:.4f}"
        if watch.best is not None:
            text += f"  val {row['val']:.4f}  best {watch.best['val']:.4f}"
        bar.update(line, completed=epoch, description=text)
        ends = watch.out_of_patience or epoch == epochs
        if not console.is_terminal and (epoch % max(1, epochs // _LINES) == 0 or ends):
            each = (time.monotonic() - began) / (epoch - first)
            left = 0 if ends else each * (epochs - epoch)
            more = f"  at most {left:.0f} s left" if left > _PATIENCE else ""
            console.print(f"epoch {epoch}/{epochs}  {text}{more}", highlight=False)

    with bar:
        yield show
