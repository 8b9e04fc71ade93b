"""Parses the command line, runs the command and sets the exit code."""

import dataclasses
import io
import os
import shlex
import signal
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout, suppress
from importlib import import_module
from importlib.metadata import version
from shutil import get_terminal_size
from textwrap import fill
from typing import Annotated, Any, Literal, get_type_hints

import tyro

from graphtheory.lab.by_name import paper
from graphtheory.lab.cli import show
from graphtheory.lab.cli.bench import Bench, Recipes, Tune
from graphtheory.lab.cli.datasets import Convert, Datasets
from graphtheory.lab.cli.diagnose import Diagnose
from graphtheory.lab.cli.doctor import Doctor, Warmup
from graphtheory.lab.cli.show import Command, RefusedError, Screen
from graphtheory.lab.cli.train import Train
from graphtheory.lab.signals import exit_on_sigterm, insistent_signals


@dataclasses.dataclass(frozen=True)
class Completion(Command):
    """Options of `graphtheory completion`, which writes to the standard output."""

    shell: Annotated[Literal["bash", "zsh", "fish"], tyro.conf.Positional] = "bash"

    def run(self, screen: Screen) -> None:
        script = io.StringIO()
        with redirect_stdout(script), suppress(SystemExit):
            _parsed(("--tyro-write-completion", self.shell, "-"))
        found = script.getvalue().rstrip()
        screen.result({"shell": self.shell, "script": found})
        screen.say(found)


_KINDS: tuple[type[Command], ...] = (
    Train, Bench, Tune, Recipes, Diagnose, paper("command.Reproduce"), Convert, Datasets, Doctor,
    Warmup, Completion,
)  # fmt: skip
_COMMANDS = {kind.__name__.lower(): kind for kind in _KINDS}
# --resume without --no-resume; help is no comment of the source, which tyro would have to read
_PLAIN_FLAGS = tyro.conf.FlagCreatePairsOff, tyro.conf.HelptextFromCommentsOff

WRONG_INPUT, INTERRUPTED, FAILED = 2, 130, 1


def script() -> None:
    """Run `main` as a process, in which a second Ctrl-C while it ends is no error."""
    code = main()
    if code == INTERRUPTED:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.exit(code)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line, without `argv` that of the process, and return its exit code.

    0 done, 2 input that cannot be used, 130 Ctrl-C, 1 a failure with a message. Wrong usage leaves
    through SystemExit(2), SIGTERM through SystemExit(143); a bug through its own exception.
    """
    words = list(sys.argv[1:] if argv is None else argv) or ["--help"]
    if words == ["--version"]:
        print(f"graphtheory {version('pyg-graphtheory')}")
        return 0
    try:
        try:
            return _run(_parsed(words), words)
        except RefusedError as refusal:
            screen = Screen(show.console(), show.console(stderr=True), "")
            return screen.error(str(refusal), WRONG_INPUT)
        finally:
            sys.stdout.flush()  # not left to the end of the process, which nobody can catch
    except BrokenPipeError:  # the reader of the output went away, as `| head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED


def _run(command: Command, words: list[str]) -> int:
    typed = shlex.join(["graphtheory", *words])
    screen = Screen(show.console(), show.console(stderr=True), typed, command.output)
    try:
        with insistent_signals(), exit_on_sigterm():
            command.check()
            with screen.working("loading PyTorch and the models"):
                for name in command.needs:
                    import_module(name)
            command.fetch(screen)
            command.run(screen)
    except KeyboardInterrupt:
        return screen.error("interrupted", INTERRUPTED)
    except BrokenPipeError:
        raise
    except (FloatingPointError, MemoryError, OSError) as failure:  # such as a full disk
        return screen.error(show.message_of(failure), FAILED)
    return 0


def _parsed(words: Sequence[str]) -> Command:
    """The command with its options; help and values of a wrong type leave through SystemExit."""
    if words[0] in ("--help", "-h", "--tyro-write-completion"):
        about, every = show.help_section(__file__, "graphtheory"), _COMMANDS.items()
        summaries = {name: (kind.__doc__ or "").partition("\n")[0] for name, kind in every}
        found: Any = tyro.extras.subcommand_type_from_defaults(
            {name: kind() for name, kind in every}, summaries, prefix_names=False
        )
        return tyro.cli(
            found, prog="graphtheory", description=about, args=words, config=_PLAIN_FLAGS
        )
    kind = _COMMANDS[show.known("command", words[0], tuple(_COMMANDS))]
    name, width = f"graphtheory {words[0]}", get_terminal_size().columns
    parts = (kind.__doc__ or "").partition("\n\nArgs:")[0].split("\n\n")
    # tyro wraps no description, and joins a line to the one before if it begins with a letter
    wrapped = (p if p[:4] == "Try:" else fill(p, width, subsequent_indent=" ") for p in parts)
    command, unknown = tyro.cli(
        kind, prog=name, description="\n\n".join(wrapped), args=words[1:], config=_PLAIN_FLAGS,
        return_unknown_args=True,
    )  # fmt: skip
    if unknown:  # of which tyro names no similar ones here
        what = "option" if unknown[0].startswith("-") else "argument"
        hints, place = get_type_hints(kind, include_extras=True), tyro.conf.Positional
        named = (n for n in kind.helps if place not in getattr(hints[n], "__metadata__", ()))
        options = tuple(f"--{n.replace('_', '-')}" for n in (*named, "json", "quiet"))
        show.known(what, unknown[0], options, f"{name} --help")
    return command
