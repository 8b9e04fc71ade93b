"""Any-device backend from torch's own ops: one head at a time, sums by segment (no atomics).

The additive score takes some edges at a time, twice for its backward pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from graphtheory.graph import Neighborhood
from graphtheory.ops import reference
from graphtheory.ops.backends.csr import CSRBackend
from graphtheory.ops.call import AttentionCall, Call, widened
from graphtheory.ops.dropout import dropout_factor

# Numbers in one buffer [edges at a time, heads, head_dim].
_BUFFER = 2**22


class TorchCSR(CSRBackend):
    """Every operation on any device but gated sums, which `reference` has."""

    name = "torch_csr"
    operations = CSRBackend.operations - {"gated_sum"}
    reads_ids = False
    module = __name__

    def needs_transpose(self, call: Call | AttentionCall) -> bool:
        """Not for the additive score, whose gradients are added up by edge."""
        return call.operation != "additive_score"


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
    """The logit of each edge, [E, H]."""
    dtype, rows = query.dtype, rows_of(indptr, indices.size(0))
    query, key = widened(query, key)
    heads = [(query[rows, h] * key[indices, h]).sum(-1) for h in range(query.size(1))]
    return torch.stack(heads, 1).to(dtype) if heads else query.new_empty(len(rows), 0, dtype=dtype)


def edge_softmax(indptr: Tensor, logits: Tensor) -> Tensor:
    """The weight of each edge, [E, H]."""
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
    edge_grad = grad[rows_of(indptr, len(indices))].masked_fill(barred, 0)
    if len(order):
        edge_grad = torch.empty_like(edge_grad).index_copy(0, order.long(), edge_grad)
    return segment(edge_grad[edges], t_indptr, "sum").to(dtype), edge_grad.to(dtype)


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


def attention(
    indptr: Tensor, indices: Tensor, query: Tensor, key: Tensor, value: Tensor,
    bias: Tensor | None, bucket: Tensor | None, table: Tensor | None,
    scale: float, dropout: float, seed: Tensor | None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Output as `query`, and the weights [E, H] before dropout in the type of the sums."""
    out, _, weights = edge_attention(
        indptr, indices, query, key, value, None, None, None, 0, bias, bucket, table,
        scale, dropout, seed,
    )  # fmt: skip
    return out, weights


def attention_backward(
    indptr: Tensor, indices: Tensor, t_indptr: Tensor, targets: Tensor, perm: Tensor,
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, weights: Tensor,
    bucket: Tensor | None, num_buckets: int, scale: float, dropout: float, seed: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of query, key, value, the logits [E, H] and the bias table [num_buckets, H]."""
    found = edge_attention_backward(
        indptr, indices, t_indptr, targets, perm, grad, None, query, key, value, None, None, None,
        0, weights, bucket, num_buckets, False, scale, dropout, seed,
    )  # fmt: skip
    return (*found[:3], *found[5:])  # type: ignore[return-value]


def edge_attention(
    indptr: Tensor, indices: Tensor, query: Tensor, key: Tensor, value: Tensor,
    features: Tensor | None, edge_query: Tensor | None, row: Tensor | None, num_rows: int,
    bias: Tensor | None, bucket: Tensor | None, table: Tensor | None,
    scale: float, dropout: float, seed: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Output as `query`; sums [N, H, D + R] of features and row numbers; weights [E, H]."""
    dtype = query.dtype
    query, key, value = widened(query, key, value)
    features, edge_query = _wide(query, features), _wide(query, edge_query)
    logits = edge_dot(indptr, indices, query, key)
    if edge_query is not None:
        logits = logits + _feature_dots(indptr, edge_query, features, row)
    logits = logits * scale
    if bias is not None:
        logits = logits + bias.detach()
    if bucket is not None and table is not None:
        logits = logits + table.detach()[bucket.long()]
    weights = edge_softmax(indptr, logits.to(query.dtype))
    dropped = weights
    if seed is not None:
        dropped = weights * dropout_factor(dropout, seed, weights)
    sums = _feature_sums(indptr, dropped, features, row, num_rows)
    return aggregate(indptr, indices, dropped, value).to(dtype), sums, weights


def edge_attention_backward(
    indptr: Tensor, indices: Tensor, t_indptr: Tensor, targets: Tensor, perm: Tensor,
    grad: Tensor, grad_sums: Tensor | None, query: Tensor, key: Tensor, value: Tensor,
    features: Tensor | None, edge_query: Tensor | None, row: Tensor | None, num_rows: int,
    weights: Tensor, bucket: Tensor | None, num_buckets: int, of_features: bool,
    scale: float, dropout: float, seed: Tensor | None,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Gradients of query, key, value, edge query, features, logits and table; [0] of the absent."""
    dtype = query.dtype
    grad, query, key, value, weights = widened(grad, query, key, value, weights)
    grad_sums, edge_query, features = (_wide(query, t) for t in (grad_sums, edge_query, features))
    grad_weights, dropped = edge_dot(indptr, indices, grad, value), weights
    if grad_sums is not None:
        grad_weights = grad_weights + _feature_dots(indptr, grad_sums, features, row)
    if seed is not None:
        factor = dropout_factor(dropout, seed, weights)
        grad_weights, dropped = grad_weights * factor, weights * factor
    grad_logits = edge_softmax_backward(indptr, weights, grad_weights)
    grad_query = scale * aggregate(indptr, indices, grad_logits, key)
    grad_key = scale * aggregate(t_indptr, targets, grad_logits, query, perm)
    grad_value = aggregate(t_indptr, targets, dropped, grad, perm)
    grad_table = weights.new_zeros(num_buckets, weights.size(1))
    if bucket is not None:
        by_bucket, order = torch.sort(bucket.long(), stable=True)
        bounds = torch.searchsorted(by_bucket, torch.arange(num_buckets + 1, device=order.device))
        grad_table = segment(grad_logits[order], bounds, "sum")
    of_edge_query, of_edges = weights.new_empty(0), weights.new_empty(0)
    if edge_query is not None:
        of_edge_query = scale * _feature_sums(indptr, grad_logits, features, row, num_rows)
    if of_features and features is not None:
        rows, dim = rows_of(indptr, len(features)), features.size(1)
        of_edges = torch.zeros_like(features)
        for part, by in ((edge_query, scale * grad_logits), (grad_sums, dropped)):
            for h in range(0 if part is None else weights.size(1)):
                of_edges += by[:, h, None] * part[rows, h, :dim]
    nodes = (t.to(dtype) for t in (grad_query, grad_key, grad_value))
    return (*nodes, of_edge_query, of_edges, grad_logits, grad_table)


def _wide(like: Tensor, tensor: Tensor | None) -> Any:
    return None if tensor is None else tensor.detach().to(like.dtype).contiguous()


def _feature_dots(
    indptr: Tensor, query: Tensor, features: Tensor | None, row: Tensor | None
) -> Tensor:
    """What features add to the dot products, [E, H]; a row number is a vector with a single 1."""
    num_edges = len(row if features is None else features)  # type: ignore[arg-type]
    rows, dim = rows_of(indptr, num_edges), 0 if features is None else features.size(1)
    out = query.new_zeros(num_edges, query.size(1))
    for h in range(query.size(1)):
        if features is not None:
            out[:, h] = (query[rows, h, :dim] * features).sum(-1)
        if row is not None:
            out[:, h] += query[rows, h, dim + row.long()]
    return out


def _feature_sums(
    indptr: Tensor, weights: Tensor, features: Tensor | None, row: Tensor | None, num_rows: int
) -> Tensor:  # fmt: skip
    """Sums of the features, and of the weights by row number, [N, H, D + R]."""
    num_dst, heads = indptr.size(0) - 1, weights.size(1)
    found = [weights.new_zeros(num_dst, heads, 0)]
    if features is not None:
        sums = features.new_zeros(num_dst, heads, features.size(1))
        for h in range(heads):
            sums[:, h] = segment(weights[:, h, None] * features, indptr, "sum")
        found.append(sums)
    if row is not None:
        place = rows_of(indptr, len(row)) * num_rows + row.long()
        by_place, order = torch.sort(place, stable=True)
        ends = torch.arange(num_dst * num_rows + 1, device=row.device)
        sums = segment(weights[order], torch.searchsorted(by_place, ends), "sum")
        found.append(sums.view(num_dst, num_rows, heads).transpose(1, 2))
    return torch.cat(found, 2)


def top_edges(indptr: Tensor, indices: Tensor, logits: Tensor, k: int) -> Tensor:
    """Whether an entry of [E, H] is among the k largest of its row."""
    nb = Neighborhood(indptr, indices, indptr.size(0), validate=False)  # ids are not looked at
    return reference.largest(logits, nb, k)


def _edge_sums(
    indptr: Tensor, indices: Tensor, source: Tensor, target: Tensor,
    features: Tensor, matrix: Tensor,
) -> Iterator[tuple[slice, Tensor, Tensor, Tensor]]:  # fmt: skip
    """Some edges at a time: their slice, sources, targets and sums [edges, H, C]."""
    num_edges = indices.size(0)
    rows = rows_of(indptr, num_edges)
    step = max(1, _BUFFER // max(1, source[0].numel() if len(source) else 1))
    for first in range(0, num_edges, step):
        part = slice(first, first + step)
        j, i = indices[part], rows[part]
        z = source[j] + target[i]
        if matrix.size(1):
            z += torch.einsum("ef,hfc->ehc", features[part], matrix)
        yield part, j, i, z


def additive_score(
    indptr: Tensor, indices: Tensor, source: Tensor, target: Tensor, att: Tensor,
    features: Tensor, matrix: Tensor, slope: float,
) -> Tensor:  # fmt: skip
    """Scores [E, H] in the dtype of `source`."""
    dtype = source.dtype
    source, target, att, features, matrix = widened(source, target, att, features, matrix)
    out = source.new_empty(indices.size(0), att.size(0))
    for part, _, _, z in _edge_sums(indptr, indices, source, target, features, matrix):
        out[part] = (torch.where(z > 0, z, slope * z) * att).sum(-1)
    return out.to(dtype)


def additive_score_backward(
    indptr: Tensor, indices: Tensor, t_indptr: Tensor, targets: Tensor, perm: Tensor,
    grad: Tensor, source: Tensor, target: Tensor, att: Tensor, features: Tensor, matrix: Tensor,
    slope: float, of_features: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of source, target, att, features ([0] unless asked for) and matrix."""
    dtypes = [t.dtype for t in (source, target, att, features, matrix)]
    grad, source, target, att, features, matrix = widened(
        grad, source, target, att, features, matrix
    )
    of_edges = features if of_features else features.new_empty(0)
    out = [torch.zeros_like(t) for t in (source, target, att, of_edges, matrix)]
    for part, j, i, z in _edge_sums(indptr, indices, source, target, features, matrix):
        up = grad[part, :, None]
        up = torch.where(z > 0, up, slope * up)
        out[2] += (up * z).sum(0)
        z = up * att
        out[0].index_add_(0, j, z)
        out[1].index_add_(0, i, z)
        if of_features:
            out[3][part] = torch.einsum("ehc,hfc->ef", z, matrix)
        out[4] += torch.einsum("ef,ehc->hfc", features[part], z)
    return tuple(g.to(d) for g, d in zip(out, dtypes, strict=True))  # type: ignore[return-value]
