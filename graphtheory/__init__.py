"""Graph attention on one sparse message-passing core: tokens are nodes, attention aggregates."""

from importlib import import_module
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
    "warmup",
]

_PARTS = (
    "data", "graph", "integrations", "lab", "models", "nn", "ops", "papers", "patterns",
    "structure", "vision",
)  # fmt: skip

_FUNCTIONS = {
    "accelerate": "integrations.pyg", "bench": "lab.bench.side_by_side",
    "warmup": "integrations.warmup",
}  # fmt: skip

if TYPE_CHECKING:
    from graphtheory.integrations.pyg import accelerate
    from graphtheory.integrations.warmup import warmup
    from graphtheory.lab.bench.side_by_side import bench
else:

    def __getattr__(name: str) -> object:
        """Parts and functions, imported when they are used, since importing PyG takes seconds."""
        if name in _FUNCTIONS:
            if name == "bench":
                import_module("graphtheory.lab").require("graphtheory.bench")
            return getattr(import_module(f"graphtheory.{_FUNCTIONS[name]}"), name)
        if name in _PARTS:
            return import_module(f"graphtheory.{name}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted([*__all__, *_PARTS, "__version__"])
