"""GPU backend: Triton kernels over rows, no tensor with both an edge axis and a feature axis.

Forward, a program holds a row (or some of few features, or a chunk of a long one) and goes along
its edges, some a step for all heads: keys are gathered, dotted and soft-maxed, values gathered and
added up in float32. Saved are of each row the largest logit and the log of the sum of exponentials
less it, [num_dst, 2, H], and for 16-bit types the output in float32 beside them.

Backward, a first pass over targets computes the weights again, the gradient of the query, and for
every edge the gradient of its logit and its kept weight, two arrays [E, H]. A second pass over
sources, by the cached transposed structure, gathers query and gradient with those two and adds up
the gradients of key and value. A bias table's gradient is added up by fixed shares of the edges.

With H heads of D numbers of b bytes, F = H D b: forward reads 2 F bytes an edge, backward 4 F, and
writes and reads 16 H more. There are no atomics: results are the same bits every time. Long rows
are found when a structure is first seen; after that nothing waits for the device, so that a CUDA
graph can record a call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from graphtheory.ops.backends.triton import attention as attention_kernels
from graphtheory.ops.backends.triton import edges as edge_kernels
from graphtheory.ops.backends.triton import sums as sum_kernels
from graphtheory.ops.backends.triton.feature_calls import attention as edge_attention
from graphtheory.ops.backends.triton.feature_calls import (
    attention_backward as edge_attention_backward,
)
from graphtheory.ops.backends.triton.gat import attention as additive_attention
from graphtheory.ops.backends.triton.gat import attention_backward as additive_attention_backward
from graphtheory.ops.backends.triton.launch import (
    by_bucket,
    merge_softmax,
    norm_like,
    options,
    over_logits,
    over_rows,
    plain,
    sum_type,
)
from graphtheory.ops.backends.triton.relu_sums import relu_sum, relu_sum_backward
from graphtheory.ops.backends.triton.score import score as additive_score
from graphtheory.ops.backends.triton.score import score_backward as additive_score_backward
from graphtheory.ops.backends.triton.topk import attention as topk_blocks
from graphtheory.ops.backends.triton.topk import attention_backward as topk_blocks_backward

__all__ = [
    "additive_attention",
    "additive_attention_backward",
    "additive_score",
    "additive_score_backward",
    "aggregate",
    "attention",
    "attention_backward",
    "edge_attention",
    "edge_attention_backward",
    "edge_dot",
    "edge_softmax",
    "edge_softmax_backward",
    "relu_sum",
    "relu_sum_backward",
    "topk_blocks",
    "topk_blocks_backward",
]


def attention(
    indptr: Tensor, indices: Tensor, query: Tensor, key: Tensor, value: Tensor,
    bias: Tensor | None, bucket: Tensor | None, table: Tensor | None,
    scale: float, dropout: float, seed: Tensor | None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Output as `query`, and the norm of rows: see the kernel `forward`."""
    numbers, constants = options(query, table, scale, dropout, seed)
    out = torch.empty_like(query, memory_format=torch.contiguous_format)
    norm = norm_like(query)
    args = [*plain(indices, query, key, value, bias, bucket, table), *numbers]
    shape = (query.size(1), query.size(2))
    over_rows(
        attention_kernels.forward, indptr, shape, [out, norm], args, merge_softmax,
        NORM=norm.size(1), **constants,
    )  # fmt: skip
    return out, norm


def attention_backward(
    indptr: Tensor, indices: Tensor, t_indptr: Tensor, sources_rows: Tensor, perm: Tensor,
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, norm: Tensor,
    bucket: Tensor | None, num_buckets: int, scale: float, dropout: float, seed: Tensor | None,
    *, out: Tensor, bias: Tensor | None, table: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of query, key, value, the logits and the bias table [num_buckets, H].

    Those of the logits are [E, H] with a bias by edge, and else [0, H].
    """
    numbers, constants = options(query, table, scale, dropout, seed)
    acc, shape = constants["ACC"], (query.size(1), query.size(2))
    grad_query, grad_key, grad_value = (
        torch.empty_like(t, memory_format=torch.contiguous_format) for t in (query, key, value)
    )
    weights, grad_logits = (
        query.new_empty(indices.size(0), query.size(1), dtype=acc) for _ in range(2)
    )
    args = [
        *plain(grad, out, norm), weights, grad_logits,
        *plain(indices, query, key, value, bias, bucket, table), *numbers,
    ]  # fmt: skip
    kernel, constants["NORM"] = attention_kernels.targets, norm.size(1)
    over_rows(kernel, indptr, shape, [grad_query], args, **constants)
    args = [*plain(sources_rows, perm, grad_logits, query, weights, grad), scale]
    over_rows(sum_kernels.weighted, t_indptr, shape, [grad_key, grad_value], args, ACC=acc)
    grad_table = by_bucket(bucket, grad_logits, num_buckets)
    if bias is None:
        grad_logits = grad_logits.new_empty(0, query.size(1))
    return grad_query, grad_key, grad_value, grad_logits, grad_table


def edge_dot(indptr: Tensor, indices: Tensor, query: Tensor, key: Tensor) -> Tensor:
    """Logits [E, H]."""
    out, shape = query.new_empty(indices.size(0), query.size(1)), (query.size(1), query.size(2))
    args = [*plain(indices, query, key), out]
    over_rows(edge_kernels.dot, indptr, shape, [], args, ACC=sum_type(query, key))
    return out


def _rows_of_logits(kernel: Any, indptr: Tensor, inputs: Sequence[Tensor]) -> Tensor:
    out = torch.empty_like(inputs[0], memory_format=torch.contiguous_format)
    over_logits(kernel, indptr, out.size(1), [*plain(*inputs), out], sum_type(*inputs))
    return out


def edge_softmax(indptr: Tensor, logits: Tensor) -> Tensor:
    """Weights [E, H]."""
    return _rows_of_logits(edge_kernels.softmax, indptr, [logits])


def edge_softmax_backward(indptr: Tensor, weights: Tensor, grad: Tensor) -> Tensor:
    """Gradient of the logits [E, H]."""
    return _rows_of_logits(edge_kernels.softmax_backward, indptr, [weights, grad])


def aggregate(
    indptr: Tensor, indices: Tensor, weights: Tensor, value: Tensor, perm: Tensor | None = None
) -> Tensor:
    """Sums [N, H, D]; entry t of a row has the weight of edge perm[t], if `perm` is given."""
    out = value.new_empty(indptr.size(0) - 1, *value.shape[1:])
    args = [*plain(indices, perm, weights, value), None, None, 1.0]
    shape, acc = (value.size(1), value.size(2)), sum_type(weights, value)
    over_rows(sum_kernels.weighted, indptr, shape, [out, None], args, ACC=acc)
    return out
