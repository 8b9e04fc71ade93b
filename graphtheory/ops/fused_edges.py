"""Attention with features of edges as one torch op with one backward op.

A kernel sees a row f of D features by edge, a row number by edge, or both: to it a row number r of
R is a vector with 1 in place r, so that queries and sums are [N, H, D + R]. The table is multiplied
outside, which also gives its gradient.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from graphtheory.ops import reference
from graphtheory.ops.backend import BACKENDS, Backend, Sizes
from graphtheory.ops.call import AttentionCall, BucketedBias, check_buckets
from graphtheory.ops.edge_features import EdgeFeatures, check_rows
from graphtheory.ops.fused import sum_type
from graphtheory.ops.kernels import neighborhood_of, structure
from graphtheory.ops.operator import operator
from graphtheory.ops.second import second_gradients


@operator("graphtheory::edge_attention", "NHD MHD MHD EK NHX row EH BH bucket . parts . . . .")
def _attention(
    query: Tensor, key: Tensor, value: Tensor, features: Tensor | None, edge_query: Tensor | None,
    row: Tensor | None, bias: Tensor | None, table: Tensor | None, bucket: Tensor | None,
    seed: Tensor | None, parts: Sequence[Tensor], num_rows: int, scale: float, dropout: float,
    backend: str,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    check_buckets(bucket, 0 if table is None else table.size(0))
    _check(features, edge_query, row, num_rows)
    return BACKENDS[backend].kernels.edge_attention(
        parts[0], parts[1], query, key, value, features, edge_query, _bytes(row), num_rows,
        bias, bucket, table, scale, dropout, seed,
    )  # fmt: skip


def _check(
    features: Tensor | None, query: Tensor | None, row: Tensor | None, num_rows: int
) -> None:
    check_rows(row, num_rows)
    width = num_rows + (0 if features is None else features.size(1))
    if query is not None and query.size(2) != width:
        raise ValueError(f"edges.query: {query.size(2)} features, expected {width}")


def _bytes(row: Tensor | None) -> Tensor | None:
    return None if row is None else row.to(torch.uint8)


@_attention.register_fake
def _(query: Tensor, key: Tensor, value: Tensor, features: Tensor | None, *rest: Any) -> Any:
    parts, num_rows, backend = rest[6], rest[7], rest[-1]
    wide, (rows, heads, _) = sum_type(query.dtype), query.shape
    sizes = Sizes(rows, parts[1].size(0), heads, wide, with_edges=True)
    saved = BACKENDS[backend].saved_shape(sizes)
    width = num_rows + (0 if features is None else features.size(1))
    sums = query.new_empty(rows, heads, width, dtype=wide)
    return query.new_empty(query.shape), sums, sums.new_empty(saved)


@operator(
    "graphtheory::edge_attention_backward",
    "NHD NHX NHD MHD MHD EK NHX row EH NHD NHX EH BH bucket . . . parts . . . .",
)
def _attention_grad(
    grad: Tensor, grad_sums: Tensor, query: Tensor, key: Tensor, value: Tensor,
    features: Tensor | None, edge_query: Tensor | None, row: Tensor | None, saved: Tensor,
    out: Tensor | None, sums: Tensor | None, bias: Tensor | None, table: Tensor | None,
    bucket: Tensor | None, seed: Tensor | None, num_buckets: int, of_features: bool,
    parts: Sequence[Tensor], num_rows: int, scale: float, dropout: float, backend: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    check_buckets(bucket, num_buckets)
    _check(features, edge_query, row, num_rows)
    given = {"out": out, "sums": sums, "bias": bias, "table": table} if saved.dim() == 3 else {}
    again = {name: given.get(name) for name in _again(backend)}
    return BACKENDS[backend].kernels.edge_attention_backward(
        *parts, grad, grad_sums, query, key, value, features, edge_query, _bytes(row), num_rows,
        saved, bucket, num_buckets, of_features, scale, dropout, seed, **again,
    )  # fmt: skip


def _again(backend: str) -> tuple[str, ...]:
    """What the backward pass needs where it computes the weights again."""
    names = BACKENDS[backend].recomputes_from
    return (*names, "sums") if "out" in names else names


@_attention_grad.register_fake
def _(grad: Tensor, grad_sums: Tensor, *rest: Any) -> Any:
    query, key, value, features, edge_query, _, saved, _, _, bias, *others = rest
    _, _, _, num_buckets, of_features, parts, *_ = others
    nodes = [t.new_empty(t.shape) for t in (query, key, value)]
    none = saved.new_empty(0)
    of_query = none if edge_query is None else saved.new_empty(edge_query.shape)
    of_edges = saved.new_empty(features.shape) if of_features else none
    recomputed = saved.dim() == 3 and bias is None
    logits = saved.new_empty(0 if recomputed else parts[1].size(0), query.size(1))
    return *nodes, of_query, of_edges, logits, saved.new_empty(num_buckets, query.size(1))


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    *tensors, bias, table, bucket, seed, parts, num_rows, scale, dropout, backend = inputs
    out, sums, saved = output
    ctx.mark_non_differentiable(saved)
    ctx.set_materialize_grads(False)
    ctx.options = (num_rows, scale, dropout, backend)
    ctx.dtypes = [None if t is None else t.dtype for t in (*tensors[3:5], bias, table)]
    ctx.num_buckets = 0 if table is None else table.size(0)
    recomputed = saved.dim() == 3 and "out" in _again(backend)
    results = (out, sums) if recomputed else (None, None)
    ctx.num_parts, ctx.width = len(parts), sums.shape
    ctx.save_for_backward(*tensors, saved, *results, bias, table, bucket, seed, *parts)


def _backward(
    ctx: Any, grad: Tensor | None, grad_sums: Tensor | None, _saved: Tensor | None
) -> tuple[Any, ...]:
    kept = ctx.saved_tensors  # once: to read them twice is an error under checkpointing
    tensors, bucket, seed, parts = kept[:11], kept[11], kept[12], list(kept[13:])
    nothing = (None, None, [None] * ctx.num_parts, None, None, None, None)
    if grad is None and grad_sums is None:
        return (*[None] * 8, *nothing)
    query, saved = tensors[0], tensors[6]
    grad = query.new_zeros(query.shape) if grad is None else grad
    grad_sums = saved.new_zeros(ctx.width) if grad_sums is None else grad_sums
    needs = ctx.needs_input_grad
    found = _attention_grad(
        grad, grad_sums, *tensors, bucket, seed, ctx.num_buckets, needs[3], parts, *ctx.options
    )
    of_nodes, of_rest = list(found[:3]), [found[4], found[3], *found[5:]]
    if not any(needs[1:3]):
        of_nodes[1] = of_nodes[2] = None
    of_rest = [
        g.to(dtype) if needed and dtype is not None else None
        for g, dtype, needed in zip(of_rest, ctx.dtypes, (*needs[3:5], *needs[6:8]), strict=True)
    ]
    return *of_nodes, *of_rest[:2], None, *of_rest[2:], *nothing


def _save_grad(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *tensors, _, _, _, bias, table, bucket, seed, _, _, parts, rows, scale, dropout, _ = inputs
    ctx.set_materialize_grads(False)
    ctx.options, ctx.num_parts = (rows, scale, dropout), len(parts)
    ctx.save_for_backward(*tensors, bias, table, bucket, seed, *parts)


def _backward_of_grad(ctx: Any, *upstream: Tensor | None) -> tuple[Any, ...]:
    (*grads, query, key, value, features, edge_query, row, bias, table, bucket, seed), parts = (
        ctx.saved_tensors[:12], ctx.saved_tensors[12:],
    )  # fmt: skip
    num_rows, scale, dropout = ctx.options
    nb = neighborhood_of(parts, value.size(0))

    def definition(*given: Any) -> tuple[Tensor, Tensor]:
        query, key, value, features, edge_query, bias, table = given
        bias = bias if table is None else BucketedBias(bucket, table)
        edges = _as_kernels_see(features, edge_query, row, num_rows, query)
        call = AttentionCall(query, key, value, nb, bias, scale, dropout, seed, edges=edges)
        out, sums = reference.attention(call)
        return out, torch.cat([s.to(sum_type(query.dtype)) for s in sums], 2)

    tensors = (query, key, value, features, edge_query, bias, table)
    of_query, of_features = upstream[3:5]
    ups = (*upstream[:3], of_features, of_query, *upstream[5:])
    needed = [*ctx.needs_input_grad[:7], *ctx.needs_input_grad[11:13]]
    above, found = second_gradients(definition, tensors, grads, ups, needed)
    nothing = (None, None, None, None, [None] * ctx.num_parts, None, None, None, None)
    return *above, *found[:5], None, None, None, None, *found[5:], *nothing


def _as_kernels_see(
    features: Tensor | None, query: Tensor | None, row: Tensor | None, num_rows: int, like: Tensor
) -> tuple[EdgeFeatures, ...]:
    """The features of edges of the definition: a row number is a row of the unit matrix."""
    dim, found = 0 if features is None else features.size(1), []
    if features is not None:
        found.append(EdgeFeatures(features, None if query is None else query[..., :dim]))
    if row is not None:
        unit = torch.eye(num_rows, dtype=sum_type(like.dtype), device=like.device)
        found.append(EdgeFeatures(unit, None if query is None else query[..., dim:], row))
    return tuple(found)


_attention.register_autograd(_backward, setup_context=_save)
_attention_grad.register_autograd(_backward_of_grad, setup_context=_save_grad)


def _parts(call: AttentionCall) -> tuple[EdgeFeatures | None, EdgeFeatures | None]:
    """Features by edge, and those with a table."""
    by_edge = [e for e in call.edges if e.row is None]
    tables = [e for e in call.edges if e.row is not None]
    return (*by_edge, None)[0], (*tables, None)[0]


def _queries(call: AttentionCall) -> Tensor | None:
    """Queries of a row of features, then of row numbers, [N, H, D + R]."""
    by_edge, table = _parts(call)
    if all(e.query is None for e in call.edges):
        return None
    if table is None:
        return call.edges[0].query
    wide, (rows, heads, _) = sum_type(call.query.dtype), call.query.shape
    found = []
    for e, width in ((by_edge, 0), (table, table.features.size(0))):
        if e is None:
            continue
        if e.query is None:
            found.append(call.query.new_zeros(rows, heads, width or e.dim, dtype=wide))
        elif e is by_edge:
            found.append(e.query.to(wide))
        else:
            named = "rd" if e.features.dim() == 2 else "rhd"
            found.append(torch.einsum(f"nhd,{named}->nhr", e.query.to(wide), e.features.to(wide)))
    return torch.cat(found, 2)


def attention(call: AttentionCall, backend: Backend) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Run a checked call on the kernels of a backend: the output, and the sums of each features."""
    by_edge, table = _parts(call)
    bias = None if isinstance(call.bias, BucketedBias) else call.bias
    bucket, by_bucket = call.bias if isinstance(call.bias, BucketedBias) else (None, None)
    out, sums, _ = _attention(
        call.query, call.key, call.value, None if by_edge is None else by_edge.features,
        _queries(call), None if table is None else table.row, bias, by_bucket, bucket, call.seed,
        structure(call, backend), 0 if table is None else table.features.size(0),
        call.scale, call.dropout, backend.name,
    )  # fmt: skip
    found, first = [], 0 if by_edge is None else by_edge.dim
    for e in call.edges:
        if e.row is None:
            found.append(sums[..., :first].to(call.query.dtype))
            continue
        named = "rd" if e.features.dim() == 2 else "rhd"
        weights = sums[..., first:]  # those of a row of the table, [N, H, R]
        product = torch.einsum(f"nhr,{named}->nhd", weights, e.features.to(sums.dtype))
        found.append(product.to(call.query.dtype))
    return out, tuple(found)
