"""Rows of few edges in one launch: every edge counts those before it, so nothing is sorted."""

from __future__ import annotations

from itertools import repeat

import torch
import triton
import triton.language as tl
from torch import Tensor

from graphtheory.graph import csr
from graphtheory.ops.backends.triton.bins import _plan, plan, whole_rows
from graphtheory.ops.backends.triton.launch import ceiling, launch

_BLOCK, _STEP = 32, 256  # edges or nodes of a program, and edges that it compares them with at once


@triton.jit(do_not_specialize=("given", "edges", "sources", "targets"))
def by_rank(
    edge_index, found, indptr, indices, perm, t_indptr, ends, t_perm,
    given, edges, sources, targets, BOTH: tl.constexpr, B: tl.constexpr, S: tl.constexpr,
):  # fmt: skip
    """Rows by target of edges [2, E], and by source if BOTH; the ids of edges may be wrong.

    `found` [4], zeros before: edges with an end outside the graph, self-loops among those given
    first, and the longest rows by target and by source. They are whole numbers, whose sums by
    atomics are the same in any order.
    """
    block, of_edges = tl.program_id(0), tl.cdiv(edges, B)
    own = block < of_edges
    item = tl.where(own, block, block - of_edges) * B + tl.arange(0, B)
    if own:
        here = item < edges
        src = tl.load(edge_index + item, mask=here, other=0)
        dst = tl.load(edge_index + edges + item, mask=here, other=0)
        outside = (src < 0) | (src >= sources) | (dst < 0) | (dst >= targets)
        tl.atomic_add(found, tl.sum((here & outside).to(tl.int64), 0), sem="relaxed")
        same = (item < given) & (src == dst)
        tl.atomic_add(found + 1, tl.sum(same.to(tl.int64), 0), sem="relaxed")
        rank = tl.zeros([B], tl.int32)
        t_rank = tl.zeros([B], tl.int32)
        for start in range(0, edges, S):
            other = start + tl.arange(0, S)
            there = (other < edges)[None, :]
            s = tl.load(edge_index + other, mask=other < edges, other=0)[None, :]
            d = tl.load(edge_index + edges + other, mask=other < edges, other=0)[None, :]
            tie = (d == dst[:, None]) & (other[None, :] < item[:, None])
            before = there & ((d < dst[:, None]) | tie)
            rank += tl.sum(before.to(tl.int32), 1)
            if BOTH:  # the edges of a source have the order of the rows
                earlier = there & (s < src[:, None]) | (s == src[:, None]) & before
                t_rank += tl.sum(earlier.to(tl.int32), 1)
        tl.store(indices + rank, src.to(tl.int64), mask=here)
        tl.store(perm + rank, item.to(tl.int64), mask=here)
        if BOTH:
            tl.store(ends + t_rank, dst.to(tl.int64), mask=here)
            tl.store(t_perm + t_rank, rank.to(tl.int64), mask=here)
    else:
        lower = tl.zeros([B], tl.int32)
        length = tl.zeros([B], tl.int32)
        t_lower = tl.zeros([B], tl.int32)
        t_length = tl.zeros([B], tl.int32)
        for start in range(0, edges, S):
            other = start + tl.arange(0, S)
            there = (other < edges)[None, :]
            d = tl.load(edge_index + edges + other, mask=other < edges, other=0)[None, :]
            lower += tl.sum((there & (d < item[:, None])).to(tl.int32), 1)
            length += tl.sum((there & (d == item[:, None])).to(tl.int32), 1)
            if BOTH:
                s = tl.load(edge_index + other, mask=other < edges, other=0)[None, :]
                t_lower += tl.sum((there & (s < item[:, None])).to(tl.int32), 1)
                t_length += tl.sum((there & (s == item[:, None])).to(tl.int32), 1)
        tl.store(indptr + item, lower.to(tl.int64), mask=item <= targets)
        longest = tl.max(tl.where(item < targets, length, 0), 0)
        tl.atomic_max(found + 2, longest.to(tl.int64), sem="relaxed")
        if BOTH:
            tl.store(t_indptr + item, t_lower.to(tl.int64), mask=item <= sources)
            longest = tl.max(tl.where(item < sources, t_length, 0), 0)
            tl.atomic_max(found + 3, longest.to(tl.int64), sem="relaxed")


def rank_edges(
    edge_index: Tensor, num_src: int, num_dst: int, both: bool, loops: int
) -> tuple[list[Tensor], list[Tensor], int, int]:
    """Rows by target and by source, (indptr, indices, perm) each, of which kernels can be planned.

    Also how many edges have an end outside the graph, and self-loops before the last `loops` edges.
    The rows share memory, from addresses that are multiples of 16 bytes on.
    """
    edges = edge_index.size(1)
    parts = [4]  # and what follows each of the others to the next multiple of 16 bytes
    for size in (num_dst + 1, edges, edges, *((num_src + 1, edges, edges) if both else ())):
        parts += size, size % 2
    room = torch.zeros(sum(parts), dtype=torch.int64, device=edge_index.device)
    found, *made = room.split_with_sizes(parts)
    made = made[::2]
    turned = made[3:] if both else repeat(None, 3)
    nodes = 1 + (max(num_src, num_dst) if both else num_dst)
    blocks = ceiling(edges, _BLOCK) + ceiling(nodes, _BLOCK)
    launch(
        by_rank, (blocks,), edge_index, edge_index.contiguous(), room, *made[:3], *turned,
        edges - loops, edges, num_src, num_dst, BOTH=both, B=_BLOCK, S=_STEP,
    )  # fmt: skip
    outside, others, *longest = found.tolist()
    for indptr, most in zip(made[::3], longest, strict=False):
        plan.tell(indptr, whole_rows(indptr, edges, most) or _plan(indptr))
    return made[:3], made[3:], outside, others


csr.rank_edges = rank_edges
