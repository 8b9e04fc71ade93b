"""Data sets and synthetic data models; each module is imported when it is first used.

Example:
    >>> from graphtheory.data import graphs
    >>> graphs.describe("Actor").splits
    ('published', 'random-60-20-20')
"""

from importlib import import_module
from types import ModuleType

__all__ = [
    "catalogue",
    "chain",
    "chain_errors",
    "chain_transitions",
    "graphs",
    "image_groups",
    "image_sets",
    "images",
    "loaders",
    "mixture",
    "pattern_graph",
    "pattern_tasks",
    "prompt_patterns",
    "prompt_tasks",
    "prompts",
    "splits",
    "token_patterns",
    "transforms",
]


def __getattr__(name: str) -> ModuleType:
    if name in __all__:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {__all__}")
