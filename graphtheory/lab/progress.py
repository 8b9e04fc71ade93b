"""Progress over runs, candidates or epochs, on a terminal and in a file, and how long is left."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from rich import progress as rich
from rich.console import Console

PATIENCE = 2.0  # seconds that nothing needs to be said
SILENCE = 10.0  # least seconds between two lines within a step
_KEPT = 0.01  # seconds of a step that was taken from an earlier run, at most
Epochs = Callable[[float, int, str], None]  # how many are over, of how many, "epoch" or "step"
_EPOCHS: ContextVar[tuple[Epochs, ...]] = ContextVar("epochs", default=())


@contextmanager
def report_epochs(listener: Epochs) -> Iterator[None]:
    """Call `listener` after every batch of every `fit` in the block: epochs over, of how many."""
    token = _EPOCHS.set((*_EPOCHS.get(), listener))
    try:
        yield
    finally:
        _EPOCHS.reset(token)


def report_step(step: float, steps: int, unit: str = "step") -> None:
    """Call the listeners of `report_epochs` after a step of your own loop."""
    for listener in _EPOCHS.get():
        listener(step, steps, unit)


@contextmanager
def steps(console: Console, what: str, shown: bool) -> "Iterator[Steps]":
    """Show progress over a number of steps and the epochs of their trainings, in the block."""
    found = Steps(console, what, shown)
    with found.bar, report_epochs(found.epoch):
        yield found


class Steps:
    """One moving line on a terminal, a line for each step in a file."""

    def __init__(self, console: Console, what: str, shown: bool) -> None:
        self.console, self.what, self.shown = console, what, shown
        self.bar = rich.Progress(
            rich.TextColumn(what), rich.BarColumn(), rich.MofNCompleteColumn(),
            rich.TimeElapsedColumn(), rich.TimeRemainingColumn(),
            rich.TextColumn("{task.description}"),
            console=console, disable=not (shown and console.is_terminal),
            get_time=lambda: time.monotonic(), speed_estimate_period=math.inf,
        )  # fmt: skip
        self.line = self.bar.add_task("", total=None)
        self.done = 0
        self.name = ""
        self.step_began = -math.inf
        self.told = time.monotonic()

    def __call__(self, name: str, done: int, total: int | None) -> None:
        """Before a step: its name, how many are done, of how many if that is known."""
        self.before(name, done, total)
        self._tell(name)

    def before(self, name: str, done: int, total: int | None) -> None:
        """The same without a line of its own, for steps that `finished` tells of."""
        now = time.monotonic()
        kept, self.step_began = now - self.step_began < _KEPT, now
        # What was kept tells nothing of what is left.
        change = self.bar.reset if kept else self.bar.update
        change(self.line, completed=done, total=total, description=name)
        self.name, self.done = name, done

    def epoch(self, epoch: float, epochs: int, unit: str = "epoch") -> None:
        """Within a step that trains: how many epochs are over, the last one perhaps in part."""
        part = f" ({epoch % 1:.0%} of it)" if epoch % 1 else ""
        self.within(f"{unit} {math.ceil(epoch):,} of at most {epochs:,}{part}", epoch / epochs)

    def draw(self, drawn: int, draws: int) -> None:
        """Within a step that averages draws: how many of them are done."""
        self.within(f"draw {drawn:,} of {draws:,}", drawn / draws)

    def within(self, text: str, part: float) -> None:
        """Within a step: what share of it is over; in a file now and then."""
        self.bar.update(self.line, completed=self.done + part)
        if time.monotonic() - self.told > SILENCE:
            self._tell(", ".join(filter(None, (self.name, text))))

    def finished(self, text: str) -> None:
        """After a step: what it gave."""
        self.bar.update(self.line, completed=self.done + 1)
        self._tell(text)

    def _tell(self, text: str) -> None:
        self.told = time.monotonic()
        if self.shown and not self.console.is_terminal:
            task = self.bar.tasks[0]
            of = "" if task.total is None else f"/{task.total:.0f}"
            left = task.time_remaining or 0.0
            more = f"  ({duration(left)} left)" if left > PATIENCE else ""
            line = f"{self.what} {self.done + 1}{of}  {text}{more}"
            self.console.print(line, markup=False, highlight=False, soft_wrap=True)


def duration(seconds: float) -> str:
    """A time as people say it, such as "42 s" and "2 h 13 min"."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"
