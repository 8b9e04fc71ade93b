"""`graphtheory completion`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import tyro

from graphtheory.lab.cli.show import Command, Screen, known

SHELLS = ("bash", "zsh", "fish")


@dataclass(frozen=True)
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
        """Print."""
        from graphtheory.lab.cli.main import completion_script

        found = completion_script(known("SHELL", self.shell, SHELLS))
        screen.result({"shell": self.shell, "script": found})
        screen.say(found)
