"""What the papers add to commands is found by name, since the lab imports no paper."""

from importlib import import_module
from typing import Any


def paper(name: str) -> Any:
    """The object that `graphtheory.papers` has under a dotted name, such as "figure.figures"."""
    module, _, attribute = name.rpartition(".")
    return getattr(import_module(f"graphtheory.papers.{module}"), attribute)
