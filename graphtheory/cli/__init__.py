"""The command line: `graphtheory train | bench | tune | diagnose | datasets`."""

from graphtheory.cli.main import main

__all__ = ["main"]
