"""The command line, `graphtheory`: a module for each command, and what they share."""

from graphtheory.lab.cli.main import main, script

__all__ = ["main", "script"]
