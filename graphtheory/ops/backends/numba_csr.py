"""CPU backend: fused loops over rows, no tensor with both an edge axis and a feature axis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphtheory.ops.backends import _numba_kernels as loops
from graphtheory.ops.backends._launch import launch

_SOFTMAX_WORK = 32  # an exponential costs as much as so many multiply-adds


def _run(loop: Callable[..., None], work: int, *args: Any) -> None:
    launch(loop, loops.CHUNKS, work, *(a.numpy() if isinstance(a, Tensor) else a for a in args))


def _wide(*tensors: Tensor) -> list[Tensor]:
    """Contiguous, in the type that sums are taken in: float32, or float64 where a tensor has it."""
    wide = torch.float32
    for t in tensors:
        wide = torch.promote_types(wide, t.dtype)
    return [t.detach().to(wide).contiguous() for t in tensors]


def _work(indices: Tensor, nodes: Tensor) -> int:
    return indices.size(0) * nodes.size(1) * nodes.size(2)


def edge_dot(indptr: Tensor, indices: Tensor, query: Tensor, key: Tensor) -> Tensor:
    """Logits [E, H]."""
    dtype = query.dtype
    query, key = _wide(query, key)
    out = query.new_empty(indices.size(0), query.size(1))
    _run(loops.edge_dot, _work(indices, key), indptr, indices, query, key, out)
    return out.to(dtype)


def edge_softmax(indptr: Tensor, logits: Tensor) -> Tensor:
    """Weights [E, H]."""
    (wide,) = _wide(logits)
    out = torch.empty_like(wide)
    _run(loops.edge_softmax, _SOFTMAX_WORK * wide.numel(), indptr, wide, out)
    return out.to(logits.dtype)


def edge_softmax_backward(indptr: Tensor, weights: Tensor, grad: Tensor) -> Tensor:
    """Gradient of the logits [E, H]."""
    dtype = weights.dtype
    weights, grad = _wide(weights, grad)
    out = torch.empty_like(weights)
    _run(loops.edge_softmax_backward, weights.numel(), indptr, weights, grad, out)
    return out.to(dtype)


def aggregate(indptr: Tensor, indices: Tensor, weights: Tensor, value: Tensor) -> Tensor:
    """Sums [N, H, D]."""
    dtype = value.dtype
    weights, value = _wide(weights, value)
    out = value.new_empty(indptr.size(0) - 1, value.size(1), value.size(2))
    _run(loops.aggregate, _work(indices, value), indptr, indices, weights, value, out)
    return out.to(dtype)


def _bias_arrays(
    bias: Tensor | None, bucket: Tensor | None, table: Tensor | None, like: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Absent parts as empty arrays: numba compiles one signature."""
    none = like.new_empty(0, like.size(1))
    bias = none if bias is None else bias.detach().to(like.dtype).contiguous()
    table = none if table is None else table.detach().to(like.dtype).contiguous()
    return bias, torch.empty(0, dtype=torch.uint8) if bucket is None else bucket.contiguous(), table


def attention(
    indptr: Tensor, indices: Tensor, query: Tensor, key: Tensor, value: Tensor,
    bias: Tensor | None, bucket: Tensor | None, table: Tensor | None,
    scale: float, dropout: float, seed: Tensor | None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Output as `query`, and the weights [E, H] before dropout in the type of the sums."""
    dtype = query.dtype
    query, key, value = _wide(query, key, value)
    bias, bucket, table = _bias_arrays(bias, bucket, table, query)
    out = query.new_empty(query.size(0), query.size(1), value.size(2))
    weights = query.new_empty(indices.size(0), query.size(1))
    real = np.float64 if query.dtype == torch.float64 else np.float32
    _run(
        loops.attention, 2 * _work(indices, key), indptr, indices, query, key, value, bias, bucket,
        table, real(scale), float(dropout), 0 if seed is None else int(seed), out, weights,
    )  # fmt: skip
    return out.to(dtype), weights


def attention_backward(
    indptr: Tensor, indices: Tensor, t_indptr: Tensor, receivers: Tensor, perm: Tensor,
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, weights: Tensor,
    bucket: Tensor | None, num_buckets: int, scale: float, dropout: float, seed: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of query, key, value, the logits [E, H] and the bias table [num_buckets, H]."""
    dtype = query.dtype
    grad, query, key, value, weights = _wide(grad, query, key, value, weights)
    heads = query.size(1)
    _, bucket, _ = _bias_arrays(None, bucket, None, query)
    grad_query, grad_key, grad_value = (torch.empty_like(t) for t in (query, key, value))
    grad_logits = torch.empty_like(weights)
    tables = query.new_empty(loops.CHUNKS if num_buckets else 0, num_buckets, heads)
    real = np.float64 if query.dtype == torch.float64 else np.float32
    options = (real(scale), float(dropout), 0 if seed is None else int(seed))
    work = 2 * _work(indices, key)
    _run(
        loops.attention_backward_rows, work, indptr, indices, grad, query, key, value, weights,
        bucket, *options, grad_query, grad_logits, tables,
    )  # fmt: skip
    _run(
        loops.attention_backward_columns, work, t_indptr, receivers, perm, grad, query, weights,
        grad_logits, *options, grad_key, grad_value,
    )  # fmt: skip
    nodes = (t.to(dtype) for t in (grad_query, grad_key, grad_value))
    return (*nodes, grad_logits, tables.sum(0))  # type: ignore[return-value]
