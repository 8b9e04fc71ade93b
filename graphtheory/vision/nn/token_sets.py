"""Neighborhoods of batches of images or sequences, cached per size."""

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import ParamSpec

import torch

from graphtheory.graph import Grid, Neighborhood, Windows, bipartite, causal, cliques, windows

# A network of four stages needs this many for full and last batches in training and validation.
_KEPT = 32
_P = ParamSpec("_P")


def _cached(make: Callable[_P, Neighborhood]) -> Callable[_P, Neighborhood]:
    """Not traced: compiled code would build the neighborhoods in every call."""

    @wraps(make)
    def outside_inference(*args: _P.args, **options: _P.kwargs) -> Neighborhood:
        with torch.inference_mode(False):
            return make(*args, **options)

    return torch.compiler.disable(lru_cache(maxsize=_KEPT)(outside_inference))


@_cached
def token_cliques(count: int, tokens: int, device: torch.device) -> Neighborhood:
    """`count` images of `tokens` nodes; all nodes of an image attend to each other (cached)."""
    return cliques([tokens] * count).to(device)


@_cached
def token_bipartite(count: int, tokens: int, sources: int, device: torch.device) -> Neighborhood:
    """`count` images of `tokens` target and `sources` source nodes, fully connected (cached)."""
    return bipartite([tokens] * count, [sources] * count).to(device)


@_cached
def token_causal(sizes: tuple[int, ...], device: torch.device) -> Neighborhood:
    """Causal attention in sequences: each token attends to itself and earlier ones (cached)."""
    return causal(sizes).to(device)


@lru_cache(maxsize=_KEPT)
def token_windows(grid: Grid, size: int, shift: int, device: torch.device) -> Windows:
    """`graph.windows` with the same arguments, on a device (cached)."""
    with torch.inference_mode(False):
        return windows(grid, size, shift).to(device)
