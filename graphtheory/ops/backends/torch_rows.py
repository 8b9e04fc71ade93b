"""Softmax, sums and maxima of rows from torch's own ops, one head at a time, without atomics."""

from __future__ import annotations

import torch
from torch import Tensor

from graphtheory.ops.backends.precision import widened


def rows_of(indptr: Tensor, num_edges: int) -> Tensor:
    """The row of each edge."""
    ids = torch.arange(indptr.size(0) - 1, device=indptr.device)
    return torch.repeat_interleave(ids, indptr.diff(), output_size=num_edges)


def segment(edge_values: Tensor, indptr: Tensor, reduce: str) -> Tensor:
    """The sum ("sum"), 0 of none, or the largest ("max") of each row's values."""
    initial = 0.0 if reduce == "sum" else -torch.inf
    return torch.segment_reduce(
        edge_values.contiguous(), reduce, offsets=indptr, initial=initial, unsafe=True
    )


def edge_dot(indptr: Tensor, indices: Tensor, query: Tensor, key: Tensor) -> Tensor:
    """Logits [E, H]."""
    dtype, rows = query.dtype, rows_of(indptr, indices.size(0))
    query, key = widened(query, key)
    heads = [(query[rows, h] * key[indices, h]).sum(-1) for h in range(query.size(1))]
    return torch.stack(heads, 1).to(dtype) if heads else query.new_empty(len(rows), 0, dtype=dtype)


def edge_softmax(indptr: Tensor, logits: Tensor) -> Tensor:
    """Weights [E, H]."""
    (wide,) = widened(logits)
    rows = rows_of(indptr, logits.size(0))
    top = segment(wide, indptr, "max")
    weight = (wide - torch.where(top == -torch.inf, 0, top)[rows]).exp()
    total = segment(weight, indptr, "sum")
    return (weight / torch.where(total == 0, 1, total)[rows]).to(logits.dtype)


def edge_softmax_backward(indptr: Tensor, weights: Tensor, grad: Tensor) -> Tensor:
    """Gradient of the logits [E, H]."""
    dtype = weights.dtype
    weights, grad = widened(weights, grad)
    mean = segment(weights * grad, indptr, "sum")
    return (weights * (grad - mean[rows_of(indptr, weights.size(0))])).to(dtype)


def aggregate(
    indptr: Tensor, indices: Tensor, weights: Tensor, value: Tensor, perm: Tensor | None = None
) -> Tensor:
    """Sums [N, H, D]; entry t of a row has the weight of edge perm[t], if `perm` is given."""
    dtype = value.dtype
    weights = weights if perm is None else weights[perm]
    weights, value = widened(weights, value)
    out = value.new_zeros(indptr.size(0) - 1, value.size(1), value.size(2))
    for h in range(value.size(1)):
        out[:, h] = segment(weights[:, h, None] * value[indices, h], indptr, "sum")
    return out.to(dtype)


def relu_sum(
    indptr: Tensor, indices: Tensor, order: Tensor, value: Tensor, features: Tensor
) -> Tensor:
    """Sums [N, H, D] of ReLU(value[j] + features[e]); edge t of a row has row order[t] of these."""
    dtype = value.dtype
    value, features = widened(value, features)
    messages = (value[indices] + _in_rows(features, order)).relu()
    return segment(messages, indptr, "sum").to(dtype)


def relu_sum_backward(
    indptr: Tensor, indices: Tensor, order: Tensor, t_indptr: Tensor, edges: Tensor,
    grad: Tensor, value: Tensor, features: Tensor,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Gradients of value and features; `edges` are the rows of the features of each source."""
    dtype = value.dtype
    grad, value, features = widened(grad, value, features)
    barred = value[indices] + _in_rows(features, order) <= 0
    flow = grad[rows_of(indptr, len(indices))].masked_fill(barred, 0)
    if len(order):
        flow = torch.empty_like(flow).index_copy(0, order.long(), flow)
    return segment(flow[edges], t_indptr, "sum").to(dtype), flow.to(dtype)


def _in_rows(features: Tensor, order: Tensor) -> Tensor:
    return features[order] if len(order) else features


def aggregate_max(indptr: Tensor, indices: Tensor, weights: Tensor, value: Tensor) -> Tensor:
    """Largest weights[e, h] * value[j, h] by row and feature [N, H, D], in the type of sums."""
    weights, value = widened(weights, value)
    out = value.new_zeros(indptr.size(0) - 1, value.size(1), value.size(2))
    empty = (indptr.diff() == 0)[:, None]
    for h in range(value.size(1)):
        found = segment(weights[:, h, None] * value[indices, h], indptr, "max")
        out[:, h] = found.masked_fill(empty, 0)
    return out


def aggregate_max_backward(
    indptr: Tensor, indices: Tensor, t_indptr: Tensor, targets: Tensor, perm: Tensor,
    grad: Tensor, out: Tensor, weights: Tensor, value: Tensor, of_weights: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Gradients of weights ([0] if not asked for) and value; equal edges of a row share it."""
    dtypes, rows = (weights.dtype, value.dtype), rows_of(indptr, indices.size(0))
    grad, out, weights, value = widened(grad, out, weights, value)
    to_weights = torch.zeros_like(weights) if of_weights else weights.new_empty(0)
    to_value = torch.zeros_like(value)
    for h in range(value.size(1)):
        x = value[indices, h]
        hit = (weights[:, h, None] * x == out[rows, h]).to(value.dtype)
        share = grad[:, h] / segment(hit, indptr, "sum").clamp(min=1)
        hit *= share[rows]
        if of_weights:
            to_weights[:, h] = (hit * x).sum(-1)
        by_source = (hit * weights[:, h, None])[perm]
        to_value[:, h] = segment(by_source, t_indptr, "sum")
    return to_weights.to(dtypes[0]), to_value.to(dtypes[1])
