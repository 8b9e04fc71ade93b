"""The screen, usage errors and files that every command shares."""

from __future__ import annotations

import difflib
import inspect
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from threading import Timer
from typing import Annotated, Any, ClassVar

import tyro
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table as Grid
from rich.text import Text

from graphtheory.disk import replace_file
from graphtheory.lab import progress
from graphtheory.lab.bench.rows import Table, as_json
from graphtheory.lab.progress import Steps, steps

_PLAIN_WIDTH = 160  # characters of a line where the output is a file
# Arguments of the library, and the options that give them.
_OPTIONS = {"name": "--dataset", "options": "--set", "p_star": "--p-star"} | {
    argument: f"--{argument}"
    for argument in ("budget", "data", "kind", "metric", "models", "root", "seed", "share", "split")
}


class RefusedError(Exception):
    """Input that a command cannot use; the message is the one line that its user sees."""


@dataclass(frozen=True)
class Output:
    """The options that say what is printed."""

    json: bool = False
    """Print one JSON document to stdout instead of text; notes go to stderr."""
    quiet: Annotated[bool, tyro.conf.arg(aliases=["-q"])] = False
    """Print only results, no progress and no notes."""


@dataclass(frozen=True)
class Command(ABC):
    """What `graphtheory NAME` does: its fields are the options, which `help.md` explains."""

    needs: ClassVar[tuple[str, ...]] = ()  # modules that take seconds to import
    helps: ClassVar[dict[str, str]] = {}  # option -> what `--help` says of it
    output: Annotated[Output, tyro.conf.arg(name="")] = Output()

    def __init_subclass__(cls) -> None:
        section = help_section(inspect.getfile(cls), cls.__name__)
        about, *options = f"\n\n{section}".split("\n\n## ")
        named = (option.partition("\n\n") for option in options)
        cls.helps = cls.helps | {name: " ".join(text.split()) for name, _, text in named}
        if about:
            parts = about.split("\n\n")
            lines = (p if p.startswith("Try:") else " ".join(p.split()) for p in parts)
            arguments = (f"    {name}: {text}" for name, text in cls.helps.items())
            cls.__doc__ = "\n".join(["\n\n".join(lines).strip(), "", "Args:", *arguments])

    def check(self) -> None:
        """Refuse what options and names show, before the modules of `needs` are imported."""
        return

    def fetch(self, screen: Screen) -> None:
        """Download data that are missing, where the user asks for it or agrees."""
        return

    @abstractmethod
    def run(self, screen: Screen) -> None:
        """Do what the command says, and print it."""

    def refuse(self, when: object, why: str, *names: str) -> None:
        """Refuse options that are given where they would do nothing; "{}" of `why` is the value."""
        for name in names if when else ():
            value = getattr(self, name)
            if value != getattr(type(self), name):  # the default
                got = ",".join(value) if isinstance(value, tuple) else value
                raise RefusedError(f"--{name.replace('_', '-')}: {why.format(got)}")


def help_section(module: str, name: str) -> str:
    """The section of that name in `help.md` beside a module; "" where there is none."""
    file = Path(module).with_name("help.md")
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    sections = (part.partition("\n\n") for part in re.split("(?m)^# ", text))
    return {title: section.strip() for title, _, section in sections}.get(name, "")


@contextmanager
def usage_errors(*kinds: type[Exception], **options: str) -> Iterator[None]:
    """Turn errors about input, by default of loading and checking, into refusals, by option."""
    expected = kinds or (ValueError, TypeError, OSError)
    try:
        yield
    except expected as error:
        raise RefusedError(message_of(error, **options)) from error


def message_of(error: Exception, **options: str) -> str:
    """Write an error as the one line that its user sees, with options in place of arguments."""
    text = str(error)
    if isinstance(error, OSError) and error.strerror:
        where = f": {error.filename}" if error.filename else ""
        text = f"{error.strerror}{where}"
    if text.startswith("out_dir"):
        text = "--out" + text.removeprefix("out_dir")
    argument, colon, rest = text.partition(": ")
    return f"{(_OPTIONS | options).get(argument, argument)}{colon}{rest}"


def at_least(least: int, **values: int | None) -> None:
    """Refuse a number below `least`; None is none."""
    for name, value in values.items():
        if value is not None and value < least:
            raise RefusedError(f"--{name.replace('_', '-')}: got {value}, expected {least} or more")


def file_there(option: str, file: Path | None) -> None:
    """Refuse a file that is not there; None is none."""
    if file is not None and not file.is_file():
        raise RefusedError(f"{option}: there is no file {file}")


def known(what: str, name: str, names: tuple[str, ...], listing: str = "") -> str:
    """The name itself; one that is not among `names` is refused with the nearest and a list."""
    if name in names:
        return name
    near = difflib.get_close_matches(name.lower(), names, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    every = f"expected one that `{listing}` lists" if listing else f"known: {', '.join(names)}"
    raise RefusedError(f"{what}: unknown name {name!r}; {hint}{every}")


def data_root(root: Path | None) -> Path | None:
    """The folder asked for, else that of $GRAPHTHEORY_DATA, else none; it has to be there."""
    source = "--root"
    if root is None and os.environ.get("GRAPHTHEORY_DATA"):
        root, source = Path(os.environ["GRAPHTHEORY_DATA"]), "$GRAPHTHEORY_DATA"
    if root is not None and not root.is_dir():
        raise RefusedError(f"{source}: {root} is not a folder; expected one with the raw files")
    return root


def write_json(path: Path, value: Any) -> None:
    """Write a value as a file of JSON."""
    replace_file(path, as_json(value).encode())


def console(*, stderr: bool = False) -> Console:
    """Open a stream; the lines of one that is no terminal are as long as a table needs."""
    stream = Console(stderr=stderr)
    return stream if stream.is_terminal else Console(stderr=stderr, width=_PLAIN_WIDTH)


@dataclass(frozen=True)
class Screen:
    """Results go to one stream, progress and complaints to the other."""

    out: Console
    err: Console
    command: str  # what was typed, for the reports
    output: Output = Output()

    def error(self, message: str, code: int) -> int:
        """Print one line on the error stream; returns `code`."""
        text = f"graphtheory: {' '.join(message.split())}"
        self.err.print(text, style="bold red", markup=False, highlight=False, soft_wrap=True)
        return code

    def say(self, text: str, wrap: bool = False) -> None:
        """Print a line of the result, at words into the width of a terminal; none beside JSON."""
        if not self.output.json:
            whole = not (wrap and self.out.is_terminal)
            self.out.print(text, markup=False, highlight=False, soft_wrap=whole)

    def note(self, text: str) -> None:
        """Print a note on the way, unless the output is quiet."""
        if self.progress:
            stream = self.err if self.output.json else self.out
            stream.print(text, markup=False, highlight=False, soft_wrap=True)

    def result(self, found: Any) -> None:
        """Print the whole result in plain values, where JSON is asked for."""
        if self.output.json:
            self.out.file.write(as_json(found))

    def table(self, table: Table) -> None:
        """Print a table; none beside JSON."""
        if self.output.json:
            return
        grid = Grid(title=table.title or None, title_justify="left", title_style="bold")
        grid.show_header = any(table.columns)
        for index, name in enumerate(table.columns):
            grid.add_column(name, justify="left" if index < table.words else "right")
        for row in table.rows:
            grid.add_row(*map(Text, row))
        self.out.print(grid)
        if table.note:
            self.say(table.note, wrap=True)

    @property
    def progress(self) -> bool:
        """Whether progress is to be shown."""
        return not self.output.quiet

    def steps(self, what: str) -> AbstractContextManager[Steps]:
        """Progress over a number of steps and the epochs of their trainings, in the block."""
        return steps(self.err, what, self.progress)

    @contextmanager
    def working(self, what: str) -> Iterator[None]:
        """A line with the time of a block; in a file only if it takes long."""
        if self.err.is_terminal or not self.progress:
            with Progress(
                SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn(),
                console=self.err, disable=not self.progress, transient=True,
            ) as bar:  # fmt: skip
                bar.add_task(what, total=None)
                yield
            return
        text = f"{what} ..."
        late = Timer(progress.PATIENCE, lambda: self.err.print(text, markup=False, highlight=False))
        late.start()
        try:
            yield
        finally:
            late.cancel()
            late.join()


def set_aside(screen: Screen, *earlier: Path) -> None:
    """Rename earlier files and folders with a number, the same for all."""

    def numbered(path: Path, number: int) -> Path:
        return path.with_name(f"{path.stem}.{number}{path.suffix}")

    there = [path for path in earlier if path.exists() or path.is_symlink()]
    if not there:
        return
    free = next(n for n in count(1) if not any(numbered(path, n).exists() for path in earlier))
    names = " and ".join(str(path.rename(numbered(path, free))) for path in there)
    screen.note(f"Earlier runs are now in {names}; --resume would have continued them.")


@contextmanager
def on_interrupt(say: Callable[[], None]) -> Iterator[None]:
    """Say where things stand when Ctrl-C or SIGTERM ends the block."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        say()
        raise


def refuse_earlier(screen: Screen, out: Path, resume: bool) -> None:
    """Refuse a folder with a run that was not asked to go on; say where there is none to go on."""
    there = (out / "last.ckpt").exists()
    if resume and not there:
        screen.note(f"No checkpoint in {out}, so training starts from the first epoch.")
    if there and not resume:
        raise RefusedError(f"--out: {out} holds an earlier run; add --resume to continue it")
