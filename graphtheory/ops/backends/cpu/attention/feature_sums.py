"""The dot products and sums of `feature_calls` by themselves, of features in any order."""

from __future__ import annotations

import torch
from torch import Tensor

from graphtheory.ops.backends.cpu.attention.feature_calls import EdgeRows
from graphtheory.ops.backends.cpu.memory import empty
from graphtheory.ops.backends.precision import widened


def feature_dot(indptr: Tensor, order: Tensor, query: Tensor, features: Tensor) -> Tensor:
    """Dot products [E, H] of the features of each edge and the query of its row."""
    (wide,) = widened(query)
    out = empty((features.size(0), query.size(1)), wide).zero_()
    EdgeRows.of(features, None, wide, order).add_dots(indptr, wide, out)
    return out.to(query.dtype)


def feature_sum(indptr: Tensor, order: Tensor, weights: Tensor, features: Tensor) -> Tensor:
    """Sums [N, H, D] of the weighted features of each row."""
    (wide,) = widened(weights)
    edges = EdgeRows.of(features, None, wide, order)
    return edges.sums(indptr, wide, features.size(1), 1.0, 0.0, 0).to(weights.dtype)


def feature_outer(
    indptr: Tensor, order: Tensor, weights: Tensor, vectors: Tensor, dtype: torch.dtype
) -> Tensor:
    """Vectors [E, D] in the features' order: sums over the heads of weight times row's vector."""
    weights, vectors = widened(weights, vectors)
    like = vectors.new_empty(weights.size(0), vectors.size(2))
    none = vectors.new_empty(0, *vectors.shape[1:])
    edges = EdgeRows.of(like, None, vectors, order)
    return edges.slopes(indptr, weights, none, 1.0, weights, vectors, 0.0, 0).to(dtype)
