"""Rows of a CSR structure sorted by length, and the tile of numbers that a program holds.

Rows of one launch have about the same length, so that no program waits for a longer neighbor:

- at most 8 edges, then at most 16: several rows a program, each whole in one tile;
- at most `CHUNK` edges: one row a program, some edges a step;
- longer rows: one program a chunk; a second kernel merges the chunks of a row in their order.

Rows that all have the same number of edges (up to `EQUAL`) need neither row numbers nor pointers.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from graphtheory.ops.once import Once

WIDTHS = (8, 16)
# Eight steps of 32 edges: a chunk lasts about as long as all short rows together, however long the
# longest row is.
CHUNK = 256
EQUAL = 64

# Numbers of a tile, 32 for each thread of 4 warps: as float32 the gathered key, the gathered value
# and the running sum take 96 registers of a thread, and two loads of 16 kB are under way a program.
_NUMBERS = 4096
# All heads share a program as long as a node has no more numbers than this: a source's row is read
# in one piece of at least 256 bytes, its index once, and [E, H] is written in whole sectors.
_FEATURES = 256
_MOST_EDGES = 64


@dataclass(frozen=True)
class Bin:
    """Rows, or chunks of rows, of one launch.

    Attributes:
        count: How many.
        rows: Row of each, int32 [count]; None is 0..count-1.
        starts: First edge of each chunk, int64 [count]; None when rows are whole.
        width: No row has more edges, and a tile should hold them all; 0 is no limit.
        degree: Edges of every row, where all have the same; otherwise 0.
        chunk: Edges of a chunk; 0 when rows are whole.
    """

    count: int
    rows: Tensor | None = None
    starts: Tensor | None = None
    width: int = 0
    degree: int = 0
    chunk: int = 0


@dataclass(frozen=True)
class Plan:
    """Every row of a structure once.

    Attributes:
        bins: Of whole rows and of chunks.
        long: The rows that were cut into chunks, int32.
        bounds: Chunks bounds[l]..bounds[l+1]-1 make row long[l]; int64.
    """

    bins: tuple[Bin, ...]
    long: Tensor
    bounds: Tensor


@dataclass(frozen=True)
class Tile:
    """What a program holds at a time, powers of two: [rows, edges, heads, dim].

    Attributes:
        whole: Whether `edges` is enough for the longest row, so that one step does.
        warps: Of 32 threads.
    """

    rows: int
    edges: int
    heads: int
    dim: int
    whole: bool
    warps: int


def power(n: int) -> int:
    """The smallest power of two that is at least n and at least 1."""
    return 1 << max(n - 1, 0).bit_length()


def tile(heads: int, dim: int, dtype: torch.dtype, width: int = 0) -> Tile:
    """The tile for rows of at most `width` edges (0: any number) of [heads, dim] numbers."""
    dim = power(dim)
    heads = min(power(heads), max(1, _FEATURES // dim))
    numbers = _NUMBERS // 2 if dtype == torch.float64 else _NUMBERS
    slots = max(1, numbers // (heads * dim))
    whole = 0 < width <= 4 * slots  # up to 16 warps
    edges = width if whole else min(slots, _MOST_EDGES)
    rows = min(max(1, slots // edges), _MOST_EDGES) if whole else 1
    warps = min(max(1, 4 * rows * edges * heads * dim // numbers), 16)
    return Tile(rows, edges, heads, dim, whole, warps)


def _plan(indptr: Tensor) -> Plan:
    degree, device = indptr.diff(), indptr.device
    none = indptr.new_empty(0, dtype=torch.int32)
    if degree.numel() == 0:
        return Plan((), none, indptr.new_zeros(1, dtype=torch.int64))
    kind = torch.bucketize(degree, torch.tensor((*WIDTHS, CHUNK), device=device))
    order = torch.sort(kind, stable=True)[1].int()
    pieces = torch.where(degree > CHUNK, (degree + CHUNK - 1) // CHUNK, 0)
    counts = torch.bincount(kind, minlength=len(WIDTHS) + 2)
    facts = torch.stack([pieces.sum(), *degree.aminmax()])
    *sizes, chunks, least, most = torch.cat([counts, facts]).tolist()  # the one wait for the device
    if least == most and 0 < most <= EQUAL:
        return Plan((Bin(degree.numel(), width=power(most), degree=most),), none, none.long())
    # Copies: the start of a slice may be unaligned, for which Triton compiles another program.
    *groups, long = (rows.clone() for rows in order.split(sizes))
    bins = [
        Bin(len(rows), rows, width=width)
        for rows, width in zip(groups, (*WIDTHS, 0), strict=True)
        if len(rows)
    ]
    bounds = torch.zeros(len(long) + 1, dtype=torch.int64, device=device)
    bounds[1:] = pieces[long].cumsum(0)
    if chunks:
        owner = torch.repeat_interleave(pieces[long], output_size=chunks)
        piece = torch.arange(chunks, device=device) - bounds[owner]
        rows = long[owner]
        bins.insert(0, Bin(chunks, rows, indptr[rows].long() + CHUNK * piece, chunk=CHUNK))
    return Plan(tuple(bins), long, bounds)


plan: Once[Plan] = Once(_plan)
