"""The command line: `graphtheory train | bench | tune | diagnose | reproduce | datasets`."""

from graphtheory.cli.main import main

__all__ = ["main"]
