"""Graph attention on one sparse message-passing core: tokens are nodes, attention aggregates."""

from typing import TYPE_CHECKING

from graphtheory.graph import Neighborhood, bipartite, causal, cliques, neighbor_lists, star
from graphtheory.recording import recorded

__version__ = "0.1.0"
__all__ = [
    "Neighborhood",
    "accelerate",
    "bench",
    "bipartite",
    "causal",
    "cliques",
    "neighbor_lists",
    "recorded",
    "star",
]

if TYPE_CHECKING:
    from graphtheory.integrations.pyg import accelerate
    from graphtheory.lab.bench.compare import compare as bench
else:

    def __getattr__(name: str) -> object:
        """`accelerate` and `bench`, imported when asked for, since importing PyG takes seconds."""
        if name == "accelerate":
            from graphtheory.integrations.pyg import accelerate

            return accelerate
        if name == "bench":
            from graphtheory.lab import require

            require("graphtheory.bench")
            from graphtheory.lab.bench.compare import compare

            return compare
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
