"""Terms of edges, features @ matrix, for loops over rows that make them where they read them.

Those of some edges at a time stay in the first cache, and so do the gradients that come back, from
which those of the matrix and of the features follow. No array has both an edge axis and the other
axis of the matrix. Features of edge e are row order[e], or row e where `order` is empty.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from graphtheory.ops.backends.cpu import launch
from graphtheory.ops.backends.cpu.attention.rows import edge_of
from graphtheory.ops.backends.cpu.compiling import kept_on_disk, part
from graphtheory.ops.backends.cpu.vector.lanes import prefetch_rows, scale_into
from graphtheory.ops.backends.cpu.vector.products import matrices, matrix, multiply

TILE = 48  # edges at a time
_TABLES = 2**22  # numbers of the gradients of the matrix, one of each chunk


@kept_on_disk
def copy_of(given, like):
    """A matrix where products want its rows."""
    rows, columns = given.shape
    copy = matrix(rows, columns, like)
    for i in range(rows):
        scale_into(copy, i * copy.shape[1], copy.dtype.type(1), given, i * columns, columns)
    return copy


@kept_on_disk
def room_for(flat, like):
    """Room for a tile's features and its terms, and a copy of the matrix."""
    dim, width = flat.shape
    terms = matrix(TILE if dim > 0 else 1, width, like)
    return matrix(TILE, dim, like), terms, copy_of(flat, like)


@kept_on_disk
def room_to_turn(turned, like):
    """A copy of the transposed matrix, and room for a tile's gradients."""
    return copy_of(turned, like), matrix(TILE, turned.shape[1], like)


@part
def take_features(low, high, features, order, given):
    """Copy the features of edges low..high-1 to `given`."""
    dim, one = features.shape[1], given.dtype.type(1)
    prefetch_rows(order, high, high + TILE, features, dim)
    for e in range(low, high):
        scale_into(given, (e - low) * given.shape[1], one, features, edge_of(order, e) * dim, dim)


@part
def write_terms(low, high, features, order, given, copy, width, terms):
    """Write the terms of edges low..high-1, where edges have features."""
    if features.shape[1] > 0:
        take_features(low, high, features, order, given)
        multiply(given, copy, terms, high - low, features.shape[1], width, False)


@part
def give_back(
    low, high, sum_grads, order, given, dim, width, turned, needed, found, of_features, table
):
    """Of gradients of terms: add that of the matrix to `table`, write those of features."""
    one = sum_grads.dtype.type(1)
    multiply(given.T, sum_grads, table, dim, high - low, width, True)
    if needed:
        multiply(sum_grads, turned, found, high - low, width, dim, False)
        for e in range(low, high):
            at = edge_of(order, e) * dim
            scale_into(of_features, at, one, found, (e - low) * found.shape[1], dim)


def flat_of(matrix: Tensor) -> Tensor:
    """[heads, edge_dim, dim] as [edge_dim, heads * dim]."""
    return matrix.transpose(0, 1).flatten(1).contiguous()


def turned_of(flat: Tensor, of_features: bool) -> Tensor:
    """Transposed, or without columns where features need no gradient."""
    return flat.T.contiguous() if of_features else flat.new_empty(flat.size(1), 0)


def tables_for(indptr: Tensor, indices: Tensor, matrix: Tensor) -> tuple[int, np.ndarray]:
    """Number of chunks, and zeros for the gradient of the matrix of each."""
    chunks, (heads, edge_dim, dim) = launch.chunks_of(indptr, indices), matrix.shape
    if matrix.numel():
        chunks = min(chunks, max(8, _TABLES // matrix.numel()))
    return chunks, matrices(chunks, edge_dim, heads * dim, matrix.numpy())


def of_matrix(tables: np.ndarray, matrix: Tensor) -> Tensor:
    """The gradient of the matrix from those of the chunks."""
    heads, edge_dim, dim = matrix.shape
    total = torch.from_numpy(tables[:, :edge_dim, : heads * dim].sum(0))
    return total.view(edge_dim, heads, dim).transpose(0, 1).contiguous()
