"""Neighbourhoods that follow from sizes alone: cliques, bipartite blocks, stars."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from graphtheory.graph.neighborhood import Neighborhood


def _as_sizes(name: str, sizes: Sequence[int] | Tensor) -> Tensor:
    out = torch.as_tensor(sizes)
    if out.numel() == 0:
        return torch.zeros(0, dtype=torch.int64)
    if out.dim() != 1 or out.is_floating_point() or bool((out < 0).any()):
        raise ValueError(f"{name}: got {sizes}, expected a list of counts, each 0 or more")
    return out.long()


def cliques(sizes: Sequence[int] | Tensor) -> Neighborhood:
    """Complete graphs side by side, self included: token sets, batches, global attention.

    Args:
        sizes: Nodes of each clique.

    Example:
        >>> cliques([2, 1]).to_dense().tolist()
        [[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """
    counts = _as_sizes("sizes", sizes)
    return bipartite(counts, counts)


def bipartite(sizes_dst: Sequence[int] | Tensor, sizes_src: Sequence[int] | Tensor) -> Neighborhood:
    """Complete bipartite blocks: receivers of block b aggregate from all its senders.

    Args:
        sizes_dst: Receivers of each block.
        sizes_src: Senders of each block, as many entries; 0 leaves the block's rows empty.

    Raises:
        ValueError: Negative counts, or lists of different length.
    """
    dst, src = _as_sizes("sizes_dst", sizes_dst), _as_sizes("sizes_src", sizes_src)
    if dst.shape != src.shape:
        raise ValueError(
            f"sizes_src: {len(src)} blocks, expected {len(dst)} as many as sizes_dst has"
        )
    degree = src.repeat_interleave(dst)  # [num_dst]
    indptr = torch.cat([degree.new_zeros(1), degree.cumsum(0)])
    first = (src.cumsum(0) - src).repeat_interleave(dst)  # first sender of each receiver's block
    position = torch.arange(int(indptr[-1])) - indptr[:-1].repeat_interleave(degree)
    indices = first.repeat_interleave(degree) + position
    equal = len(dst) > 0 and len(dst.unique()) == 1 and len(src.unique()) == 1
    blocks = (len(dst), int(dst[0]), int(src[0])) if equal else None
    return Neighborhood(indptr, indices, int(src.sum()), blocks=blocks, validate=False)


def star(sizes: Sequence[int] | Tensor) -> Neighborhood:
    """Prompts as stars: receiver b, the query, aggregates from the contexts of prompt b.

    Args:
        sizes: Contexts of each prompt. Receivers are the prompts, senders all contexts.

    Example:
        >>> star([2, 1]).edge_index().tolist()
        [[0, 1, 2], [0, 0, 1]]
    """
    counts = _as_sizes("sizes", sizes)
    return bipartite(torch.ones_like(counts), counts)
