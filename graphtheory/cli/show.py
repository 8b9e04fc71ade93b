"""What every command shares: the screen, progress, options of one kind, and refusals."""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table as Grid
from rich.text import Text
from tyro.constructors import PrimitiveConstructorSpec

if TYPE_CHECKING:
    from graphtheory.report.table import Table

SMALL = 5000  # nodes of a small graph
_PLAIN_WIDTH = 160  # characters of a line where the output is a file


def _optional(metavar: str) -> Any:
    """An option that may be left out: the help says what then, not "(default: None)"."""
    return tyro.conf.arg(metavar=metavar, help_behavior_hint="")


Folder = Annotated[Path | None, _optional("DIR")]
File = Annotated[Path | None, _optional("FILE")]
Name = Annotated[str | None, _optional("NAME")]
Count = Annotated[int | None, _optional("INT")]


def _separated(metavar: str) -> Any:
    """Words separated by commas."""
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar=metavar,
        instance_from_str=lambda words: tuple(filter(None, words[0].split(","))),
        is_instance=lambda value: isinstance(value, tuple),
        str_from_instance=lambda value: [",".join(value)],
    )


Names = Annotated[tuple[str, ...], _separated("NAME,NAME,...")]
Settings = Annotated[
    tuple[str, ...],
    _separated("NAME=VALUE,..."),
    tyro.conf.arg(help_behavior_hint=""),
]


class Command(ABC):
    """What `graphtheory NAME` does: a dataclass whose fields are the options."""

    @abstractmethod
    def run(self, screen: Screen) -> None:
        """Do it."""


class RefusedError(Exception):
    """Input that a command cannot use; the message is the one line that its user sees."""


@contextmanager
def refusing(*kinds: type[Exception]) -> Iterator[None]:
    """Turn complaints about input into refusals; without `kinds` those of loading and checking."""
    expected = kinds or (ValueError, TypeError, OSError)
    try:
        yield
    except expected as error:
        raise RefusedError(_said(error)) from error


def _said(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        where = f": {error.filename}" if error.filename else ""
        return f"{error.strerror}{where}"
    return str(error)


def at_least(least: int, **values: int | None) -> None:
    """Refuse a number below `least`; None is none."""
    for name, value in values.items():
        if value is not None and value < least:
            raise RefusedError(f"--{name.replace('_', '-')}: got {value}, expected {least} or more")


def known(what: str, name: str, names: tuple[str, ...]) -> str:
    """The name itself.

    Raises:
        RefusedError: It is not among `names`; the message holds the nearest and all of them.
    """
    import difflib

    if name in names:
        return name
    near = difflib.get_close_matches(name.lower(), names, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise RefusedError(f"{what}: unknown name {name!r}; {hint}known: {', '.join(names)}")


def data_root(root: Path | None) -> Path | None:
    """The folder asked for, else that of $GRAPHTHEORY_DATA, else none.

    Raises:
        RefusedError: It is not there.
    """
    source = "--root"
    if root is None and os.environ.get("GRAPHTHEORY_DATA"):
        root, source = Path(os.environ["GRAPHTHEORY_DATA"]), "$GRAPHTHEORY_DATA"
    if root is not None and not root.is_dir():
        raise RefusedError(f"{source}: {root} is not a folder; expected one with the raw files")
    return root


@contextmanager
def threads(asked: int | None, num_nodes: int) -> Iterator[None]:
    """Compute on so many threads; unasked on one for a small graph, where more only wait."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(asked or (1 if num_nodes <= SMALL else before))
    try:
        yield
    finally:
        torch.set_num_threads(before)


def write_json(path: Path, value: Any) -> None:
    """Indented, with null for what is not finite."""
    from graphtheory.bench.rows import finite

    path.write_text(json.dumps(finite(value), indent=1, default=str) + "\n", encoding="utf-8")


def console(*, stderr: bool = False) -> Console:
    """A stream; the lines of one that is no terminal are as long as a table needs."""
    stream = Console(stderr=stderr)
    return stream if stream.is_terminal else Console(stderr=stderr, width=_PLAIN_WIDTH)


@dataclass(frozen=True)
class Screen:
    """Results go to one stream, progress and complaints to the other.

    Attributes:
        out: The standard output.
        err: The standard error stream.
        command: What was typed, for the reports.
    """

    out: Console
    err: Console
    command: str

    def error(self, message: str, code: int) -> int:
        """One line on the error stream; returns `code`."""
        text = f"graphtheory: {' '.join(message.split())}"
        self.err.print(text, style="bold red", markup=False, highlight=False, soft_wrap=True)
        return code

    def say(self, text: str = "") -> None:
        """One line of the result."""
        self.out.print(text, markup=False, highlight=False, soft_wrap=True)

    def table(self, table: Table) -> None:
        """A table."""
        grid = Grid(title=table.title or None, title_justify="left", title_style="bold")
        grid.show_header = any(table.columns)
        for index, name in enumerate(table.columns):
            grid.add_column(name, justify="left" if index < table.words else "right")
        for row in table.rows:
            grid.add_row(*(Text(entry) for entry in row))
        self.out.print(grid)
        if table.note:
            self.say(table.note)

    @contextmanager
    def steps(self, what: str) -> Iterator[Steps]:
        """Progress over a number of runs, until the block ends."""
        with Progress(
            TextColumn(what),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.description}"),
            console=self.err,
            disable=not self.err.is_terminal,
        ) as bar:
            yield Steps(self.err, what, bar)


class Steps:
    """One moving line on a terminal, a line for each step in a file."""

    def __init__(self, console: Console, what: str, bar: Progress) -> None:
        self.console, self.what, self.bar = console, what, bar
        self.line = bar.add_task("", total=None)
        self.done = self.total = 0

    def __call__(self, name: str, done: int, total: int) -> None:
        """Before a step: its name, how many are done, of how many."""
        self.before(name, done, total)
        self._tell(name)

    def before(self, name: str, done: int, total: int) -> None:
        """The same without a line of its own, for steps that `finished` tells of."""
        self.done, self.total = done, total
        self.bar.update(self.line, completed=done, total=total, description=name)

    def finished(self, text: str) -> None:
        """After a step: what it gave."""
        self.bar.update(self.line, completed=self.done + 1)
        self._tell(text)

    def _tell(self, text: str) -> None:
        if not self.console.is_terminal:
            line = f"{self.what} {self.done + 1}/{self.total}  {text}"
            self.console.print(line, markup=False, highlight=False, soft_wrap=True)


def set_aside(screen: Screen, file: Path) -> None:
    """Give an earlier file a number of its own."""
    if not file.exists():
        return
    number = 1
    while (kept := file.with_name(f"{file.stem}.{number}{file.suffix}")).exists():
        number += 1
    file.rename(kept)
    screen.say(f"Earlier runs are now in {kept}; --resume would have gone on with them.")


@contextmanager
def told_on_stop(tell: Callable[[], None]) -> Iterator[None]:
    """Say where things stand when Ctrl-C or SIGTERM ends the block."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        tell()
        raise
