"""Neighborhoods of images, made once for a size and kept: building them looks at every edge."""

from __future__ import annotations

from functools import lru_cache

import torch

from graphtheory.graph import Grid, Neighborhood, Windows, bipartite, causal, cliques, windows

# What a network of four stages needs for a full and a last batch, in training and validation.
_KEPT = 32


@torch.compiler.disable  # what is compiled would build them in every call
@lru_cache(maxsize=_KEPT)
def token_cliques(count: int, tokens: int, device: torch.device) -> Neighborhood:
    """`count` images of `tokens` nodes each, all of an image attending to all (kept).

    Args:
        count: Images.
        tokens: Nodes of each.
        device: Where the tensors lie.
    """
    with torch.inference_mode(False):
        return cliques([tokens] * count).to(device)


@torch.compiler.disable  # what is compiled would build them in every call
@lru_cache(maxsize=_KEPT)
def token_bipartite(count: int, tokens: int, senders: int, device: torch.device) -> Neighborhood:
    """`count` images of `tokens` receivers, who attend to all `senders` of theirs (kept).

    Args:
        count: Images.
        tokens: Receivers of each.
        senders: Senders of each.
        device: Where the tensors lie.
    """
    with torch.inference_mode(False):
        return bipartite([tokens] * count, [senders] * count).to(device)


@torch.compiler.disable  # what is compiled would build them in every call
@lru_cache(maxsize=_KEPT)
def token_causal(sizes: tuple[int, ...], device: torch.device) -> Neighborhood:
    """Sequences of so many tokens, each attending to itself and those before it (kept).

    Args:
        sizes: Tokens of each sequence.
        device: Where the tensors lie.
    """
    with torch.inference_mode(False):
        return causal(sizes).to(device)


@lru_cache(maxsize=_KEPT)
def token_windows(grid: Grid, size: int, shift: int, device: torch.device) -> Windows:
    """`graph.windows` (kept).

    Args:
        grid: The nodes.
        size: Rows and columns of a window.
        shift: Rows and columns of the first windows.
        device: Where the tensors lie.
    """
    with torch.inference_mode(False):
        return windows(grid, size, shift).to(device)
