"""Graph attention on one sparse message-passing core: tokens are nodes, attention aggregates."""

from importlib import import_module
from typing import TYPE_CHECKING

from graphtheory.graph import Neighborhood, bipartite, causal, cliques, neighbor_lists, star

__version__ = "0.1.0"
__all__ = [
    "Neighborhood",
    "accelerate",
    "bench",
    "bipartite",
    "causal",
    "cliques",
    "neighbor_lists",
    "star",
]

if TYPE_CHECKING:
    from graphtheory import bench
    from graphtheory.integrations.pyg import accelerate
else:

    def __getattr__(name: str) -> object:
        """`accelerate` and `bench`, imported when asked for, since importing PyG takes seconds."""
        if name == "bench":
            return import_module("graphtheory.bench")
        if name != "accelerate":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from graphtheory.integrations.pyg import accelerate

        return accelerate
