"""Attention with features of edges as one torch op with one backward op.

A kernel sees a row f of D features by edge, a row number by edge, or both: to it a row number r of
R is a vector with 1 in place r, so that queries and sums are [N, H, D + R]. The table is multiplied
outside, which also gives its gradient.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from graphtheory.ops import reference
from graphtheory.ops.backend import BACKENDS, Backend, Sizes
from graphtheory.ops.call import AttentionCall, BucketedBias, check_buckets
from graphtheory.ops.edge_features import EdgeFeatures, check_rows
from graphtheory.ops.fused import sum_type
from graphtheory.ops.fused_op import FusedOp
from graphtheory.ops.kernels import neighborhood_of, structure


def _check(a: Any) -> None:
    check_rows(a.row, a.num_rows)
    check_buckets(a.bucket, 0 if a.table is None else a.table.size(0))
    width = _width(a)
    if a.edge_query is not None and a.edge_query.size(2) != width:
        raise ValueError(f"edges.query: {a.edge_query.size(2)} features, expected {width}")


def _width(a: Any) -> int:
    return a.num_rows + (0 if a.features is None else a.features.size(1))


def _of_edges(a: Any) -> tuple[Any, ...]:
    """Features, their query, the number of a row as a byte, and how many there are."""
    return a.features, a.edge_query, None if a.row is None else a.row.to(torch.uint8), a.num_rows


def _run(kernels: Any, a: Any) -> tuple[Tensor, Tensor, Tensor]:
    _check(a)
    return kernels.edge_attention(
        *a.parts[:2], a.query, a.key, a.value, *_of_edges(a), a.bias, a.bucket, a.table,
        a.scale, a.dropout, a.seed,
    )  # fmt: skip


def _fake(a: Any) -> tuple[Tensor, Tensor, Tensor]:
    wide, (rows, heads, _) = sum_type(a.query.dtype), a.query.shape
    sizes = Sizes(rows, a.parts[1].size(0), heads, wide, with_edges=True)
    saved = BACKENDS[a.backend].saved_shape(sizes)
    sums = a.query.new_empty(rows, heads, _width(a), dtype=wide)
    return a.query.new_empty(a.query.shape), sums, sums.new_empty(saved)


def _keep(a: Any, outputs: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor | None, ...]:
    out, sums, saved = outputs
    recomputed = saved.dim() == 3 and "out" in BACKENDS[a.backend].backward_needs
    return (saved, out, sums) if recomputed else (saved, None, None)


def _gradients(kernels: Any, a: Any, grads: Any, kept: Any, needs: Any) -> Any:
    _check(a)
    saved, out, sums = kept
    given = {"out": out, "bias": a.bias, "table": a.table} if saved.dim() == 3 else {}
    names = BACKENDS[a.backend].backward_needs
    again = {name: given.get(name) for name in names}
    if "out" in names:
        again["sums"] = sums
    buckets = 0 if a.table is None else a.table.size(0)
    found = kernels.edge_attention_backward(
        *a.parts, *grads, a.query, a.key, a.value, *_of_edges(a), saved, a.bucket, buckets,
        needs[3], a.scale, a.dropout, a.seed, **again,
    )  # fmt: skip
    return *found[:3], found[4], found[3], *found[5:]


def _definition(a: Any) -> tuple[Tensor, Tensor]:
    nb = neighborhood_of(a.parts, a.value.size(0))
    bias = a.bias if a.table is None else BucketedBias(a.bucket, a.table)
    edges = _as_kernels_see(a.features, a.edge_query, a.row, a.num_rows, a.query)
    call = AttentionCall(a.query, a.key, a.value, nb, bias, a.scale, a.dropout, a.seed, edges=edges)
    out, sums = reference.attention(call)
    return out, torch.cat([s.to(sum_type(a.query.dtype)) for s in sums], 2)


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


_attention = FusedOp(
    "edge_attention",
    "query:NHD key:MHD value:MHD features:EK? edge_query:NHX? row:row? bias:EH? table:BH? "
    "bucket:bucket? seed:any? parts:parts num_rows:int scale:float dropout:float",
    "NHD NHX EH!",
    run=_run,
    gradients=_gradients,
    definition=_definition,
    kept="EH NHD? NHX?",
    keep=_keep,
    fake=_fake,
)


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
