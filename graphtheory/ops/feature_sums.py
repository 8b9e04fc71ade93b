"""Dot products with given features of edges, and sums of them, each the gradient of another.

On a CPU, without a copy of the features in the order of rows. Edge e of the rows has row order[e]
of the features; an empty order is row e.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from graphtheory.ops.backend import BACKENDS
from graphtheory.ops.operator import operator


def _kernels() -> Any:
    return BACKENDS["numba_csr"].kernels


@operator("graphtheory::feature_dot")
def feature_dot(query: Tensor, features: Tensor, indptr: Tensor, order: Tensor) -> Tensor:
    """<q_i,h, f_e> for the edges e of every row i: [N, H, D], [E, D] -> [E, H]."""
    return _kernels().feature_dot(indptr, order, query, features)


@operator("graphtheory::feature_sum")
def feature_sum(weights: Tensor, features: Tensor, indptr: Tensor, order: Tensor) -> Tensor:
    """Sums of w_e,h f_e over the edges of every row: [E, H], [E, D] -> [N, H, D]."""
    return _kernels().feature_sum(indptr, order, weights, features)


@operator("graphtheory::feature_outer")
def _outer(
    weights: Tensor, vectors: Tensor, indptr: Tensor, order: Tensor, dtype: torch.dtype
) -> Tensor:
    """Sums of w_e,h g_i,h over the heads: [E, H], [N, H, D] -> [E, D], as the features."""
    return _kernels().feature_outer(indptr, order, weights, vectors, dtype)


@feature_dot.register_fake
def _(query: Tensor, features: Tensor, *rest: Any) -> Tensor:
    return query.new_empty(features.size(0), query.size(1))


@feature_sum.register_fake
def _(weights: Tensor, features: Tensor, indptr: Tensor, order: Tensor) -> Tensor:
    return weights.new_empty(indptr.size(0) - 1, weights.size(1), features.size(1))


@_outer.register_fake
def _(weights: Tensor, vectors: Tensor, *rest: Any) -> Tensor:
    return weights.new_empty(weights.size(0), vectors.size(2), dtype=rest[-1])


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    first, second, *rows = inputs[:4]
    of_first, of_second = ctx.needs_input_grad[:2]
    ctx.dtype = second.dtype
    ctx.save_for_backward(first if of_second else None, second if of_first else None, *rows)


def _dot_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    query, features, *rows = ctx.saved_tensors
    of_query = None if features is None else feature_sum(grad, features, *rows)
    of_features = None if query is None else _outer(grad, query, *rows, ctx.dtype)
    return of_query, of_features, None, None


def _sum_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    weights, features, *rows = ctx.saved_tensors
    of_weights = None if features is None else feature_dot(grad, features, *rows)
    of_features = None if weights is None else _outer(weights, grad, *rows, ctx.dtype)
    return of_weights, of_features, None, None


def _outer_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    weights, vectors, *rows = ctx.saved_tensors
    of_weights = None if vectors is None else feature_dot(vectors, grad, *rows)
    of_vectors = None if weights is None else feature_sum(weights, grad, *rows)
    return of_weights, of_vectors, None, None, None


feature_dot.register_autograd(_dot_backward, setup_context=_save)
feature_sum.register_autograd(_sum_backward, setup_context=_save)
_outer.register_autograd(_outer_backward, setup_context=_save)
