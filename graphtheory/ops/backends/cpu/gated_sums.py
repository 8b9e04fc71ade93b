"""Sums of gated values and their gradients, as GatedGCN takes them: one loop over whole rows.

The conventions are those of `attention.rows`; values are [N, H, D], and the terms of the gates'
logits [N or E, D], or a row of zeros. A row is that of a target, or for the gradients of sources of
a source: `mine` and `own` are of the row's node, `theirs` and `other` of the edge's other end.
"""

from __future__ import annotations

import numpy as np
from torch import Tensor

from graphtheory.ops.backends.cpu import launch
from graphtheory.ops.backends.cpu.attention.rows import AHEAD, FAR, edge_of
from graphtheory.ops.backends.cpu.compiling import shared_part
from graphtheory.ops.backends.cpu.gat.attention import apart
from graphtheory.ops.backends.cpu.launch import next_chunk, rows_of, take_chunk
from graphtheory.ops.backends.cpu.memory import empty
from graphtheory.ops.backends.cpu.vector.lanes import (
    add_product,
    clear,
    prefetch_rows,
    sigmoid,
    sigmoid_grad,
)
from graphtheory.ops.call import widened


@shared_part
def _rows(
    first, last, indptr, ends, perm, mine, theirs, edge, other, own, gate, slope, sums, gate_grads,
    edge_grads,
):  # fmt: skip
    width, summed, needed = gate.shape[0], sums.shape[0] > 0, own.shape[0] > 0
    wide, far = other.shape[1] * width, other.nbytes > FAR
    of_mine, of_theirs, of_edge = apart(mine), apart(theirs), apart(edge)
    for i in range(first, last):
        clear(sums, i * wide, wide * summed)
        clear(gate_grads, i * width, width * needed)
        for t in range(indptr[i], indptr[i + 1]):
            if far:
                prefetch_rows(ends, t + AHEAD, t + AHEAD + 1, other, wide)
                prefetch_rows(ends, t + AHEAD, t + AHEAD + 1, theirs, of_theirs)
            j, e = ends[t], edge_of(perm, t)
            sigmoid(gate, 0, mine, i * of_mine, theirs, j * of_theirs, edge, e * of_edge, width)
            clear(slope, 0, width)
            for h in range(other.shape[1]):
                here, there = i * wide + h * width, j * wide + h * width
                add_product(sums, here, gate, 0, other, there, width * summed)
                add_product(slope, 0, own, here, other, there, width * needed)
            sigmoid_grad(gate_grads, i * width, slope, 0, gate, 0, width * needed)
            if edge_grads.shape[0] > 0:
                clear(edge_grads, e * width, width)
                sigmoid_grad(edge_grads, e * width, slope, 0, gate, 0, width)


def gated_loop(
    counters, chunks, indptr, ends, perm, mine, theirs, edge, other, own, sums, gate_grads,
    edge_grads,
):  # fmt: skip
    """Write sums, gradients of `mine` where `own` has rows, and those of `edge` where asked."""
    gate, slope = np.empty(other.shape[2], other.dtype), np.empty(other.shape[2], other.dtype)
    chunk = take_chunk(counters)
    while chunk < chunks:
        first, last = rows_of(indptr, chunk, chunks)
        _rows(
            first, last, indptr, ends, perm, mine, theirs, edge, other, own, gate, slope, sums,
            gate_grads, edge_grads,
        )  # fmt: skip
        chunk = next_chunk(counters)


def gated_sum(
    indptr: Tensor,
    ends: Tensor,
    perm: Tensor | None,
    gates: tuple[Tensor | None, ...],
    other: Tensor,
    own: Tensor | None = None,
    *,
    sums: bool = True,
    of_edge: bool = False,
) -> tuple[Tensor, ...]:
    """Sums [N, H, D] of gate * other; with `own` gradients of the terms of rows and of edges."""
    dtype, (_, *shape), rows = other.dtype, other.shape, indptr.size(0) - 1
    (other,), of_mine = widened(other), rows * (own is not None)
    sizes = (rows * sums, *shape), (of_mine, shape[1]), (len(ends) * of_edge, shape[1])
    found = [empty(size, other) for size in sizes]
    terms = [launch.wide(term, other, zeros=shape[1]) for term in gates]
    launch.run(
        gated_loop, 8 * len(ends) * shape[0] * shape[1], launch.chunks_of(indptr, ends), indptr,
        ends, launch.NO_EDGES if perm is None else perm, *terms, other,
        other[:0] if own is None else launch.wide(own, other), *found,
    )  # fmt: skip
    return tuple(t.to(dtype) for t in found)
