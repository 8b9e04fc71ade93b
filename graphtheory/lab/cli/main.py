"""Parses the command line, runs the command and sets the exit code."""

from __future__ import annotations

import dataclasses
import inspect
import io
import os
import re
import shlex
import signal
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout, suppress
from functools import reduce
from importlib import import_module
from importlib.metadata import version
from operator import or_
from typing import Annotated, Any, get_type_hints

import tyro
from docstring_parser.attrdoc import AttributeDocstrings

from graphtheory.lab.by_name import paper
from graphtheory.lab.cli.bench import Bench
from graphtheory.lab.cli.datasets import Datasets, Doctor
from graphtheory.lab.cli.diagnose import Diagnose
from graphtheory.lab.cli.show import (
    Command,
    Output,
    RefusedError,
    Screen,
    console,
    known,
    message_of,
)
from graphtheory.lab.cli.train import Train
from graphtheory.lab.cli.tune import Tune
from graphtheory.lab.signals import exit_on_sigterm, insistent_signals

SHELLS = ("bash", "zsh", "fish")


@dataclasses.dataclass(frozen=True)
class Completion(Command):
    """Print the script that lets a shell complete commands and options: bash, zsh or fish.

    bash  graphtheory completion bash > ~/.local/share/bash-completion/completions/graphtheory
    zsh   graphtheory completion zsh > ~/.zfunc/_graphtheory, with fpath+=~/.zfunc before compinit
    fish  graphtheory completion fish > ~/.config/fish/completions/graphtheory.fish

    Try:  graphtheory completion bash
    """

    shell: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="SHELL")] = "bash"
    """bash, zsh or fish."""

    def run(self, screen: Screen) -> None:
        found = completion_script(known("SHELL", self.shell, SHELLS))
        screen.result({"shell": self.shell, "script": found})
        screen.say(found)


_DESCRIPTION = """Graph transformers with distance encoding, compared with GAT, GCN and MLP.

  graphtheory bench                                five models on an embedded graph, a report
  graphtheory bench --dataset Cora --root DATA     the same on a real one
  graphtheory bench --dataset ENZYMES --root DATA  a set of graphs; molecules and --data FILE alike
  graphtheory train --dataset Actor --model gt --root DATA
  graphtheory diagnose --dataset Cora --root DATA  what a graph offers before training
  graphtheory reproduce fig-3-8 --root DATA        one study of a paper again

  graphtheory COMMAND --help                       every option of a command
  graphtheory COMMAND --json                       one JSON document and nothing else
  graphtheory COMMAND -q (--quiet)                 results alone, no progress
  graphtheory --version                            the version

DATA is a folder with the raw files; $GRAPHTHEORY_DATA may name it instead.

Exit codes: 0 done, 2 wrong usage or input, 130 Ctrl-C, 1 anything else."""

_COMMANDS: dict[str, type[Command]] = {
    "train": Train,
    "bench": Bench,
    "tune": Tune,
    "diagnose": Diagnose,
    "reproduce": paper("command.Reproduce"),
    "datasets": Datasets,
    "doctor": Doctor,
    "completion": Completion,
}
_PLAIN_FLAGS = (tyro.conf.FlagCreatePairsOff,)  # --resume without --no-resume

WRONG_INPUT, INTERRUPTED, FAILED = 2, 130, 1


def script() -> None:
    """Run `main` as a process, in which a second Ctrl-C while it ends is no error."""
    code = main()
    if code == INTERRUPTED:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.exit(code)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line; without `argv` that of the process.

    Returns:
        The exit code: 0 done, 2 input that cannot be used, 130 Ctrl-C, 1 a failure with a message.
        Wrong usage leaves through SystemExit(2), SIGTERM through SystemExit(143); a bug through its
        own exception.
    """
    words = list(sys.argv[1:] if argv is None else argv) or ["--help"]
    if words == ["--version"]:
        print(f"graphtheory {version('graphtheory')}")
        return 0
    try:
        try:
            return _run(_parsed(words), words)
        except RefusedError as refusal:
            return Screen(console(), console(stderr=True), "").error(str(refusal), WRONG_INPUT)
        finally:
            sys.stdout.flush()  # not left to the end of the process, which nobody can catch
    except BrokenPipeError:  # the reader of the output went away, as `| head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED


def _run(command: Command, words: list[str]) -> int:
    typed = shlex.join(["graphtheory", *words])
    screen = Screen(console(), console(stderr=True), typed, command.output)
    try:
        with insistent_signals(), exit_on_sigterm():
            command.check()
            with screen.working("loading PyTorch and the models"):
                command.check_names()
                for name in command.needs:
                    import_module(name)
            command.run(screen)
    except KeyboardInterrupt:
        return screen.error("interrupted", INTERRUPTED)
    except BrokenPipeError:
        raise
    except (FloatingPointError, MemoryError, OSError) as failure:  # such as a full disk
        return screen.error(message_of(failure), FAILED)
    return 0


def _parsed(words: list[str]) -> Command:
    """The command with its options; help and values of a wrong type leave through SystemExit.

    Raises:
        RefusedError: There is no such command or option.
    """
    if words[0] in ("--help", "-h"):
        return tyro.cli(_either(), prog="graphtheory", description=_DESCRIPTION, args=words)
    kind = _COMMANDS[known("command", words[0], tuple(_COMMANDS))]
    name = f"graphtheory {words[0]}"
    if {"--help", "-h"} & set(words):
        kind = _with_help_that_wraps(kind)
    command, unknown = tyro.cli(
        kind, prog=name, args=words[1:], config=_PLAIN_FLAGS, return_unknown_args=True
    )
    if unknown:
        what = "option" if unknown[0].startswith("-") else "argument"
        known(what, unknown[0], _options(kind), f"{name} --help")
    return command


def _with_help_that_wraps(kind: type[Command]) -> type[Command]:
    """The command with each paragraph on one line, but examples, and the help of each option.

    tyro keeps breaks before signs, and in docstrings of fields, so these become an Args section.
    """
    docs: dict[str, str] = {}
    for one in reversed(kind.__mro__[:-1]):
        docs |= {name: doc for name, (doc, *_) in AttributeDocstrings().get_attr_docs(one).items()}
    paragraphs = inspect.cleandoc(kind.__doc__ or "").split("\n\n")
    text = (p if p.startswith("Try:") else " ".join(p.split()) for p in paragraphs)
    options = (f"    {name}: {' '.join(doc.split())}" for name, doc in docs.items())
    doc = "\n\n".join([*text, "Args:\n" + "\n".join(options)])
    return type(kind.__name__, (kind,), {"__doc__": doc})


def _options(kind: type[Command]) -> tuple[str, ...]:
    """The options that a command takes with two dashes."""
    hints = get_type_hints(kind, include_extras=True)
    names = [field.name for field in dataclasses.fields(kind) if field.name != "output"]
    named = [n for n in names if tyro.conf.Positional not in getattr(hints[n], "__metadata__", ())]
    shown = (field.name for field in dataclasses.fields(Output))
    return tuple(f"--{name.replace('_', '-')}" for name in (*named, *shown))


def completion_script(shell: str) -> str:
    """Write the script that lets a shell complete the commands and their options."""
    script = io.StringIO()
    words = ("--tyro-write-completion", shell, "-")
    with redirect_stdout(script), suppress(SystemExit):
        tyro.cli(_either(), prog="graphtheory", args=words, config=_PLAIN_FLAGS)
    # tyro writes explanations as they stand, and each line of one would become a completion.
    return re.sub(r"(?m)^COMPLETION_SPEC = .*", _on_one_line, script.getvalue().rstrip())


def _on_one_line(spec: re.Match[str]) -> str:
    return spec[0].replace("\\n", " ")


def _either() -> Any:
    """The union of all commands, for tyro."""
    return reduce(or_, (_summarized(name, kind) for name, kind in _COMMANDS.items()))


def _summarized(name: str, kind: type[Command]) -> Any:
    """A command as the list of commands shows it: with the first line of its docstring."""
    summary = (kind.__doc__ or "").partition("\n")[0]
    return Annotated[kind, tyro.conf.subcommand(name, description=summary)]
