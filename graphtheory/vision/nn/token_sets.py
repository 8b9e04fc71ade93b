"""Neighborhoods of batches of images or sequences, cached per size."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar

import torch

from graphtheory.graph import Grid, Neighborhood, Windows, bipartite, causal, cliques, windows

# A network of four stages needs this many for full and last batches in training and validation.
_KEPT = 32

_Function = TypeVar("_Function", bound=Callable[..., Any])


def _uncompiled(function: _Function) -> _Function:
    """Not traced: compiled code would build the neighborhoods in every call."""
    return torch.compiler.disable(function)


@_uncompiled
@lru_cache(maxsize=_KEPT)
def token_cliques(count: int, tokens: int, device: torch.device) -> Neighborhood:
    """`count` images of `tokens` nodes each; all nodes of an image attend to each other (cached).

    Args:
        count: Number of images.
        tokens: Nodes per image.
        device: Device of the tensors.
    """
    with torch.inference_mode(False):
        return cliques([tokens] * count).to(device)


@_uncompiled
@lru_cache(maxsize=_KEPT)
def token_bipartite(count: int, tokens: int, sources: int, device: torch.device) -> Neighborhood:
    """`count` images of `tokens` target and `sources` source nodes, fully connected (cached).

    Args:
        count: Number of images.
        tokens: Target nodes per image.
        sources: Source nodes per image.
        device: Device of the tensors.
    """
    with torch.inference_mode(False):
        return bipartite([tokens] * count, [sources] * count).to(device)


@_uncompiled
@lru_cache(maxsize=_KEPT)
def token_causal(sizes: tuple[int, ...], device: torch.device) -> Neighborhood:
    """Causal attention in sequences: each token attends to itself and earlier ones (cached).

    Args:
        sizes: Tokens per sequence.
        device: Device of the tensors.
    """
    with torch.inference_mode(False):
        return causal(sizes).to(device)


@lru_cache(maxsize=_KEPT)
def token_windows(grid: Grid, size: int, shift: int, device: torch.device) -> Windows:
    """`graph.windows` (cached).

    Args:
        grid: Grid of the nodes.
        size: Rows and columns of a window.
        shift: Rows and columns of the first windows.
        device: Device of the tensors.
    """
    with torch.inference_mode(False):
        return windows(grid, size, shift).to(device)
