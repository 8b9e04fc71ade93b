"""Data sets and synthetic data models; each module is imported when it is first used.

Example:
    >>> from graphtheory.lab.datasets import graphs
    >>> graphs.describe("Actor").splits
    ('published', 'random-60-20-20')
"""

from importlib import import_module
from types import ModuleType

__all__ = [
    "catalogue",
    "graphs",
    "image_sets",
    "own_graphs",
    "pattern_graph",
    "prompt_tasks",
    "prompts",
    "splits",
]


def __getattr__(name: str) -> ModuleType:
    if name in __all__:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {__all__}")
