"""Loops of scores that are leaky sums of a sender's, a receiver's and an edge's number.

The conventions are those of `_numba_kernels`; node arrays are [N, H] here. `received` and `edge`
may have no rows. An edge whose own number is -inf is barred.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor

from graphtheory.ops.backends import numba_csr as csr
from graphtheory.ops.backends._numba_kernels import first_row
from graphtheory.ops.backends._numba_lanes import MATH
from graphtheory.ops.backends._pages import empty
from graphtheory.ops.backends._turns import next_chunk, take_chunk
from graphtheory.ops.backends._wide import widened


@njit(cache=True, fastmath=MATH)
def edge_sum(sent, received, edge, i, j, e, h):
    """What edge e from j to i adds up to, before the rectifier."""
    z = sent[j, h]
    if received.shape[0] > 0:
        z += received[i, h]
    if edge.shape[0] > 0:
        z += edge[e, h]
    return z


def scores_loop(turns, chunks, indptr, indices, sent, received, edge, slope, out):
    """Write out[e, h] = leaky(sent[j, h] + received[i, h] + edge[e, h])."""
    zero = out.dtype.type(0)
    chunk = take_chunk(turns)
    while chunk < chunks:
        for i in range(first_row(indptr, chunk, chunks), first_row(indptr, chunk + 1, chunks)):
            for e in range(indptr[i], indptr[i + 1]):
                j = indices[e]
                for h in range(sent.shape[1]):
                    z = edge_sum(sent, received, edge, i, j, e, h)
                    if z < zero and z > -np.inf:
                        z *= slope
                    out[e, h] = z
        chunk = next_chunk(turns)


def rows_loop(
    turns, chunks, indptr, indices, sent, received, edge, slope, grad, of_received
):  # fmt: skip
    """Replace the gradient of the scores by that of the sums, and add it up by receiver."""
    zero = grad.dtype.type(0)
    chunk = take_chunk(turns)
    while chunk < chunks:
        for i in range(first_row(indptr, chunk, chunks), first_row(indptr, chunk + 1, chunks)):
            if received.shape[0] > 0:
                of_received[i] = zero
            for e in range(indptr[i], indptr[i + 1]):
                j = indices[e]
                for h in range(sent.shape[1]):
                    z = edge_sum(sent, received, edge, i, j, e, h)
                    g = grad[e, h]
                    if not z > zero:
                        g *= slope
                    grad[e, h] = g
                    if received.shape[0] > 0:
                        of_received[i, h] += g
        chunk = next_chunk(turns)


def columns_loop(turns, chunks, t_indptr, perm, grad, of_sent):
    """Add up the gradient of the sums by sender."""
    chunk = take_chunk(turns)
    while chunk < chunks:
        for j in range(first_row(t_indptr, chunk, chunks), first_row(t_indptr, chunk + 1, chunks)):
            of_sent[j] = 0
            for t in range(t_indptr[j], t_indptr[j + 1]):
                e = perm[t]
                for h in range(grad.shape[1]):
                    of_sent[j, h] += grad[e, h]
        chunk = next_chunk(turns)


def _options(
    sent: Tensor, received: Tensor | None, edge: Tensor | None, slope: float
) -> tuple[Any, ...]:
    """Absent parts as empty arrays, so that one machine code serves all."""
    none = sent.new_empty(0, sent.size(1))
    parts = (received, edge)
    given = (none if t is None else t.detach().to(sent.dtype).contiguous() for t in parts)
    return sent, *given, sent.numpy().dtype.type(slope)


def attention(
    indptr: Tensor, indices: Tensor, value: Tensor, sent: Tensor, received: Tensor | None,
    edge: Tensor | None, slope: float, dropout: float, seed: Tensor | None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Output as `value`, and the weights [E, H] before dropout in the type of the sums."""
    dtype, drawn = value.dtype, 0 if seed is None else int(seed)
    value, sent = widened(value, sent)
    weights = empty((indices.size(0), sent.size(1)), sent)
    options = _options(sent, received, edge, slope)
    chunks = csr.chunks_of(indptr, weights)
    csr.run(scores_loop, 4 * weights.numel(), chunks, indptr, indices, *options, weights)
    csr.softmax_(indptr, weights)
    out = csr.sums(indptr, indices, weights, value, dropout=dropout, seed=drawn)
    return out.to(dtype), weights


def attention_backward(
    indptr: Tensor, indices: Tensor, t_indptr: Tensor, receivers: Tensor, perm: Tensor,
    grad: Tensor, value: Tensor, sent: Tensor, received: Tensor | None, edge: Tensor | None,
    weights: Tensor, slope: float, dropout: float, seed: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of value, sent, received (no rows without it) and the sums [E, H]."""
    dtypes, drawn = (value.dtype, sent.dtype), 0 if seed is None else int(seed)
    grad, value, sent, weights = widened(grad, value, sent, weights)
    of_value = csr.sums(t_indptr, receivers, weights, grad, perm, 1.0, dropout, drawn)
    flow = csr.dot(indptr, indices, grad, value)  # so far the gradient of the weights
    csr.softmax_backward_(indptr, weights, flow, None, 0, dropout, drawn)
    options = _options(sent, received, edge, slope)
    of_received, of_sent = torch.empty_like(options[1]), torch.empty_like(sent)
    chunks, work = csr.chunks_of(indptr, flow), 8 * flow.numel()
    csr.run(rows_loop, work, chunks, indptr, indices, *options, flow, of_received)
    csr.run(columns_loop, work, csr.chunks_of(t_indptr, flow), t_indptr, perm, flow, of_sent)
    return of_value.to(dtypes[0]), of_sent.to(dtypes[1]), of_received.to(dtypes[1]), flow
