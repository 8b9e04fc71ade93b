"""Rows of a CSR structure in one launch or two, and the tile of numbers that a program holds.

A program is one warp, so that no warp waits for another and rows may have any length. Rows of more
than a chunk's edges are cut into chunks, which are launched before the other rows; a second kernel
merges the chunks of a row in their order.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

from graphtheory.graph.content import PerTensorCache
from graphtheory.graph.csr import extent

# Steps of 4 to 8 edges: the longest row ends soon after the others. Of 128, 256 and 1024 edges, 256
# took 1.1 and 1024 up to 1.8 times as long on an arxiv-sized graph (H100). A small graph waits for
# its launches, and chunks are 7 more of them in a step, forward and backward.
CHUNK, _OF_SMALL, _SMALL = 128, 512, 2**19  # edges of a chunk, of a small graph's, of a small graph

# Numbers of a tile for each thread of a warp: what it gathers, twice, takes 64 registers as
# float32, and four loads of 16 bytes are under way a thread in bfloat16, eight in float32.
_NUMBERS = 32 * 32
# All heads share a program as long as a node has no more numbers than this: a source's row is read
# in one piece of at least 256 bytes, its index once, and [E, H] is written in whole sectors.
_FEATURES = 256
_MOST = 64  # rows, or edges of a row


@dataclass(slots=True)
class Bin:
    """Rows, or chunks of rows, of one launch."""

    count: int
    edges: int  # of a row or chunk, about: a power of two
    rows: Tensor | None = None  # row of each, int32 [count]; None is 0..count-1
    starts: Tensor | None = None  # first edge of each chunk, int64; None when rows are whole
    chunk: int = 0  # edges of a chunk; 0 when rows are whole
    order: Tensor | None = None  # the same rows, longest first, where some are long; int32 [count]


@dataclass(slots=True)
class Plan:
    """Every row of a structure once."""

    bins: tuple[Bin, ...]
    long: Any = None  # the rows that were cut into chunks, int32; None if there are none
    bounds: Any = None  # chunks bounds[l]..bounds[l+1]-1 make row long[l]; int64


@dataclass(frozen=True)
class Tile:
    """What a program holds at a time, powers of two: [rows, edges, heads x dim]."""

    rows: int
    edges: int
    heads: int
    dim: int
    warps: int  # of 32 threads: one, but for heads of thousands of features


def power(n: int) -> int:
    """The smallest power of two that is at least n and at least 1."""
    return 1 << max(n - 1, 0).bit_length()


@cache  # a launch on a small graph is waited for
def tile(heads: int, dim: int, dtype: torch.dtype, edges: int = _MOST) -> Tile:
    """The tile for rows of about this many edges of [heads, dim] numbers."""
    dim = power(dim)
    heads = min(power(heads), max(1, _FEATURES // dim))
    numbers = _NUMBERS // 2 if dtype == torch.float64 else _NUMBERS
    slots = max(1, numbers // (heads * dim))
    edges = min(slots, edges, _MOST)
    warps = min(max(1, heads * dim // numbers), 16)
    return Tile(min(slots // edges, _MOST), edges, heads, dim, warps)


def whole_rows(indptr: Tensor, edges: int, longest: int) -> Plan | None:
    """The plan of rows none of which is cut, by the length of the longest; None of others."""
    count, order = indptr.numel() - 1, None
    if not count or longest > (CHUNK if edges > _SMALL else _OF_SMALL):
        return None
    if longest > CHUNK:  # a small graph waits for its longest row, which had better begin first
        order = indptr.diff().argsort(descending=True, stable=True).int()
    return Plan((Bin(count, power(edges // count), order=order),))


def _plan(indptr: Tensor) -> Plan:
    count, device = indptr.numel() - 1, indptr.device
    if count < 1:
        return Plan(())
    if indptr.is_cuda and torch.cuda.is_current_stream_capturing():  # which cannot be asked
        return Plan((Bin(count, _MOST),))  # right for rows of any length
    edges, longest = extent(indptr)
    if (found := whole_rows(indptr, edges, longest)) is not None:
        return found
    chunk = CHUNK if edges > _SMALL else _OF_SMALL
    degree = indptr.diff()
    pieces = torch.where(degree > chunk, (degree + chunk - 1) // chunk, 0)
    counts = [pieces.sum(), (pieces > 0).sum(), degree[pieces == 0].sum()]
    chunks, cut, edges = torch.stack(counts).tolist()
    # Copies: the start of a slice may be unaligned, for which Triton compiles another program.
    long, short = (
        rows.clone() for rows in (pieces == 0).int().sort(stable=True)[1].int().tensor_split([cut])
    )
    bounds = torch.zeros(cut + 1, dtype=torch.int64, device=device)
    bounds[1:] = pieces[long].cumsum(0)
    owner = torch.repeat_interleave(pieces[long], output_size=chunks)
    piece = torch.arange(chunks, device=device) - bounds[owner]
    rows = long[owner]
    bins = [Bin(chunks, power(chunk), rows, indptr[rows].long() + chunk * piece, chunk)]
    if len(short):
        bins.append(Bin(len(short), power(edges // len(short)), short))
    return Plan(tuple(bins), long, bounds)


plan: PerTensorCache[Plan] = PerTensorCache(_plan)
