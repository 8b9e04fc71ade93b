"""Any-device backend from torch's own ops: one head at a time, sums by segment (no atomics)."""

from __future__ import annotations

import torch
from torch import Tensor

from graphtheory.ops.backends._wide import widened
from graphtheory.ops.dropout import dropout_factor


def _rows(indptr: Tensor, num_edges: int) -> Tensor:
    ids = torch.arange(indptr.size(0) - 1, device=indptr.device)
    return torch.repeat_interleave(ids, indptr.diff(), output_size=num_edges)


def _segment(edge_values: Tensor, indptr: Tensor, reduce: str) -> Tensor:
    initial = 0.0 if reduce == "sum" else -torch.inf
    return torch.segment_reduce(
        edge_values.contiguous(), reduce, offsets=indptr, initial=initial, unsafe=True
    )


def edge_dot(indptr: Tensor, indices: Tensor, query: Tensor, key: Tensor) -> Tensor:
    """Logits [E, H]."""
    dtype, rows = query.dtype, _rows(indptr, indices.size(0))
    query, key = widened(query, key)
    heads = [(query[rows, h] * key[indices, h]).sum(-1) for h in range(query.size(1))]
    return torch.stack(heads, 1).to(dtype) if heads else query.new_empty(len(rows), 0, dtype=dtype)


def edge_softmax(indptr: Tensor, logits: Tensor) -> Tensor:
    """Weights [E, H]."""
    (wide,) = widened(logits)
    rows = _rows(indptr, logits.size(0))
    top = _segment(wide, indptr, "max")
    weight = (wide - torch.where(top == -torch.inf, 0, top)[rows]).exp()
    total = _segment(weight, indptr, "sum")
    return (weight / torch.where(total == 0, 1, total)[rows]).to(logits.dtype)


def edge_softmax_backward(indptr: Tensor, weights: Tensor, grad: Tensor) -> Tensor:
    """Gradient of the logits [E, H]."""
    dtype = weights.dtype
    weights, grad = widened(weights, grad)
    mean = _segment(weights * grad, indptr, "sum")
    return (weights * (grad - mean[_rows(indptr, weights.size(0))])).to(dtype)


def aggregate(
    indptr: Tensor, indices: Tensor, weights: Tensor, value: Tensor, perm: Tensor | None = None
) -> Tensor:
    """Sums [N, H, D]; entry t of a row has the weight of edge perm[t], if `perm` is given."""
    dtype = value.dtype
    weights = weights if perm is None else weights[perm]
    weights, value = widened(weights, value)
    out = value.new_zeros(indptr.size(0) - 1, value.size(1), value.size(2))
    for h in range(value.size(1)):
        out[:, h] = _segment(weights[:, h, None] * value[indices, h], indptr, "sum")
    return out.to(dtype)


def attention(
    indptr: Tensor, indices: Tensor, query: Tensor, key: Tensor, value: Tensor,
    bias: Tensor | None, bucket: Tensor | None, table: Tensor | None,
    scale: float, dropout: float, seed: Tensor | None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Output as `query`, and the weights [E, H] before dropout in the type of the sums."""
    dtype = query.dtype
    query, key, value = widened(query, key, value)
    logits = edge_dot(indptr, indices, query, key) * scale
    if bias is not None:
        logits = logits + bias.detach()
    if bucket is not None and table is not None:
        logits = logits + table.detach()[bucket.long()]
    weights = edge_softmax(indptr, logits.to(query.dtype))
    dropped = weights
    if seed is not None:
        dropped = weights * dropout_factor(dropout, seed, weights)
    return aggregate(indptr, indices, dropped, value).to(dtype), weights


def attention_backward(
    indptr: Tensor, indices: Tensor, t_indptr: Tensor, receivers: Tensor, perm: Tensor,
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, weights: Tensor,
    bucket: Tensor | None, num_buckets: int, scale: float, dropout: float, seed: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of query, key, value, the logits [E, H] and the bias table [num_buckets, H]."""
    dtype = query.dtype
    grad, query, key, value, weights = widened(grad, query, key, value, weights)
    grad_weights, dropped = edge_dot(indptr, indices, grad, value), weights
    if seed is not None:
        factor = dropout_factor(dropout, seed, weights)
        grad_weights, dropped = grad_weights * factor, weights * factor
    grad_logits = edge_softmax_backward(indptr, weights, grad_weights)
    grad_query = scale * aggregate(indptr, indices, grad_logits, key)
    grad_key = scale * aggregate(t_indptr, receivers, grad_logits, query, perm)
    grad_value = aggregate(t_indptr, receivers, dropped, grad, perm)
    grad_table = weights.new_zeros(num_buckets, weights.size(1))
    if bucket is not None:
        by_bucket, order = torch.sort(bucket.long(), stable=True)
        bounds = torch.searchsorted(by_bucket, torch.arange(num_buckets + 1, device=order.device))
        grad_table = _segment(grad_logits[order], bounds, "sum")
    nodes = (t.to(dtype) for t in (grad_query, grad_key, grad_value))
    return (*nodes, grad_logits, grad_table)  # type: ignore[return-value]
