"""Progress over runs or candidates, on a terminal and in a file, and how long the rest takes."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich import progress as rich
from rich.console import Console

PATIENCE = 2.0  # seconds that nothing needs to be said
SILENCE = 10.0  # least seconds between two lines within a step
_TELLS, _LONG = 0.01, 60.0  # share of all steps, or seconds, that tell how long the rest takes
_KEPT = 0.01  # seconds of a step that was taken from an earlier run, at most


@contextmanager
def steps(console: Console, what: str, shown: bool) -> Iterator[Steps]:
    """Show progress over a number of steps and the epochs of their trainings, in the block."""
    from graphtheory.lab.train.fit import report_epochs  # which imports torch

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
        )  # fmt: skip
        self.line = self.bar.add_task("", total=None)
        self.done = self.first = 0
        self.total: int | None = 0
        self.name = ""
        self.began: float | None = None
        self.step_began = 0.0
        self.told = time.monotonic()

    def __call__(self, name: str, done: int, total: int | None) -> None:
        """Before a step: its name, how many are done, of how many if that is known."""
        self.before(name, done, total)
        self._tell(name, done)

    def before(self, name: str, done: int, total: int | None) -> None:
        """The same without a line of its own, for steps that `finished` tells of."""
        now = time.monotonic()
        if self.began is None or now - self.began < _KEPT * (done - self.first):
            self.began, self.first = now, done  # what was kept tells nothing of what is left
        self.name, self.done, self.total, self.step_began = name, done, total, now
        self.bar.update(self.line, completed=done, total=total, description=name)

    def epoch(self, epoch: float, epochs: int, unit: str = "epoch") -> None:
        """Within a step that trains: how many epochs are over, the last one perhaps in part."""
        part = f" ({epoch % 1:.0%} of it)" if epoch % 1 else ""
        self._within(f"{unit} {math.ceil(epoch):,} of at most {epochs:,}{part}", epoch / epochs)

    def draw(self, drawn: int, draws: int) -> None:
        """Within a step that averages draws: how many of them are done."""
        self._within(f"draw {drawn:,} of {draws:,}", drawn / draws)

    def finished(self, text: str) -> None:
        """After a step: what it gave."""
        self.bar.update(self.line, completed=self.done + 1)
        self._tell(text, self.done + 1)

    def _within(self, text: str, part: float) -> None:
        done = self.done + part
        self.bar.update(self.line, completed=done)
        if time.monotonic() - self.told > SILENCE:
            self._tell(f"{self.name}, {text}", done)

    def _tell(self, text: str, done: float) -> None:
        self.told = time.monotonic()
        if self.shown and not self.console.is_terminal:
            of = f"/{self.total}" if self.total else ""
            line = f"{self.what} {self.done + 1}{of}  {text}{self._left(done)}"
            self.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def _left(self, done: float) -> str:
        """What is left of this step, and of all if they take as long as those until now."""
        if self.began is None or not self.total or not self.first < done < self.total:
            return ""
        spent = time.monotonic() - self.began
        if done - self.first < _TELLS * self.total and spent < _LONG:
            return ""  # mostly what is loaded and compiled once
        left = spent / (done - self.first) * (self.total - done)
        if left <= PATIENCE:
            return ""
        part = done - self.done  # of this step; the others may be of another kind
        if not 0 < part < 1:
            return f"  ({duration(left)} left)"
        own = duration((time.monotonic() - self.step_began) / part * (1 - part))
        last = self.total - self.done == 1
        return f"  ({own} left)" if last else f"  ({own} left of this one, {duration(left)} of all)"


def duration(seconds: float) -> str:
    """A time as people say it, such as "42 s" and "2 h 13 min"."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"
