"""Attention, with features of edges or without, as torch ops with their gradients.

A kernel sees a row f of D features by edge, a row number by edge, or both: to it a row number r of
R is a vector with 1 in place r, so that queries and sums are [N, H, D + R]. The table is multiplied
outside, which also gives its gradient.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from graphtheory.graph import Neighborhood
from graphtheory.graph.content import check_lookup
from graphtheory.ops import kernels, reference
from graphtheory.ops.arguments import BucketedBias, EdgeFeatures
from graphtheory.ops.backend import BACKENDS, Backend
from graphtheory.ops.call import AttentionCall, Call, Plan, bias_parts, structure, sum_type
from graphtheory.ops.dropout import draw_seed, dropout_factor
from graphtheory.ops.kernels import neighborhood_of
from graphtheory.ops.look_up import bias_per_edge
from graphtheory.ops.operator import FusedOp


def saved_like(out: Tensor, num_edges: int, backend: str, operation: str) -> Tensor:
    """What an operation with the output [num_dst, H, D] saves beside it, in type and shape."""
    wide, (rows, heads, dim) = sum_type(out), out.shape
    narrow = 0 if out.dtype == wide else dim
    shape = BACKENDS[backend].saved_shape(operation, rows, num_edges, heads, wide, narrow)
    return out.new_empty(shape, dtype=wide)


def saved_first(a: Any, outputs: tuple[Tensor, ...]) -> tuple[Tensor | None, ...]:
    """What was saved, then the output if the backward pass of a backend reads it beside that."""
    out, saved = outputs
    facts = saved.dim() == 3  # of each row, and not the weights [E, H]
    return saved, out if facts and "out" in BACKENDS[a.backend].backward_needs else None


def num_buckets(a: Any) -> int:
    """Rows of the table of a bias by buckets, 0 without one."""
    return 0 if a.table is None else a.table.size(0)


def bias_of(a: Any) -> Tensor | BucketedBias | None:
    """The bias whose parts are arguments of an op."""
    return a.bias if a.table is None else BucketedBias(a.bucket, a.table)


def call_of(a: Any, neighborhood: Any = None, **more: Any) -> AttentionCall:
    """The call that the arguments of an op stand for."""
    nb = neighborhood_of(a.parts, a.value.size(0)) if neighborhood is None else neighborhood
    seen = (a.query, a.key, a.value, nb, bias_of(a), a.scale, a.dropout, a.seed)
    return AttentionCall(*seen, **more)


def _fake(a: Any) -> tuple[Tensor, Tensor]:
    out = a.query.new_empty(a.query.shape)
    return out, saved_like(out, a.parts[1].size(0), a.backend, "attention")


def _gradients(kernels: Any, a: Any, grads: Any, kept: Any, needs: Any) -> Any:
    saved, out = kept
    given = {"out": out, "bias": a.bias, "table": a.table} if saved.dim() == 3 else {}
    again = {name: given.get(name) for name in BACKENDS[a.backend].backward_needs}
    return kernels.attention_backward(
        *a.parts, *grads, a.query, a.key, a.value, saved, a.bucket, num_buckets(a), a.scale,
        a.dropout, a.seed, **again,
    )  # fmt: skip


_attention = FusedOp(
    "attention",
    "query:NHD key:MHD value:MHD bias:EH? table:BH? bucket:bucket? seed:any? parts:parts "
    "scale:float dropout:float",
    "NHD saved!",
    run=lambda kernels, a: kernels.attention(
        *a.parts[:2], a.query, a.key, a.value, a.bias, a.bucket, a.table, a.scale, a.dropout, a.seed
    ),
    gradients=_gradients,
    definition=lambda a: composed(call_of(a), BACKENDS[a.backend]),
    kept="saved NHD?",
    keep=saved_first,
    fake=_fake,
)


def composed(call: AttentionCall, backend: Backend) -> Tensor:
    """A checked call as one primitive after another, differentiable any number of times."""
    nb, wide = call.neighborhood, sum_type(call.query)
    query, key, value = (t.to(wide) for t in (call.query, call.key, call.value))
    logits = call.scale * kernels.edge_dot.of_call(Call("edge_dot", nb, (query, key)), backend)
    if call.bias is not None:
        logits = logits + bias_per_edge(call.bias).to(wide)
    weights = kernels.edge_softmax(Call("edge_softmax", nb, (logits,)), backend)
    if call.seed is not None:
        weights = weights * dropout_factor(call.dropout, call.seed, weights)
    out = kernels.aggregate(Call("aggregate", nb, (weights, value), ("sum",)), backend)
    return out.to(call.query.dtype)


def attention(call: AttentionCall, backend: Backend) -> Any:
    """Run a checked call on the CSR kernels of a backend; with features of edges see below."""
    if call.edges:
        return _with_edges(call, backend)
    return _attention(
        call.query, call.key, call.value, *bias_parts(call.bias), call.seed,
        structure(call, backend), call.scale, call.dropout, backend.name, plan=call.plan,
    )[0]  # fmt: skip


def recorded_attention(
    plan: Plan, query: Tensor, key: Tensor, value: Tensor, nb: Neighborhood,
    bias: Tensor | BucketedBias | None, dropout: float, generator: torch.Generator | None,
) -> Any:  # fmt: skip
    """What attention without features of edges gives by the recorded launches of a plan."""
    assert plan.recorded is not None
    if plan.by_source:
        nb._turned()  # which checks the ids
    by_edge, table, bucket = bias_parts(bias)
    if bucket is not None:
        check_lookup("bias.bucket", bucket, table)
    seed = draw_seed(generator, query.device) if dropout > 0 else None
    tensors = query, key, value, by_edge, table, bucket, seed
    return plan.recorded[_attention](tensors, plan.grad)[0]


def _width(a: Any) -> int:
    return a.num_rows + (0 if a.features is None else a.features.size(1))


def _of_edges(a: Any) -> tuple[Any, ...]:
    """Features, their query, the number of a row as a byte, and how many there are."""
    if a.edge_query is not None and a.edge_query.size(2) != _width(a):
        raise ValueError(f"edges.query: {a.edge_query.size(2)} features, expected {_width(a)}")
    return a.features, a.edge_query, None if a.row is None else a.row.to(torch.uint8), a.num_rows


def _edges_fake(a: Any) -> tuple[Tensor, Tensor, Tensor]:
    (rows, heads, _), wide = a.query.shape, sum_type(a.query)
    shapes = (rows, heads, _width(a)), (a.parts[1].size(0), heads)
    sums, weights = (a.query.new_empty(shape, dtype=wide) for shape in shapes)
    return a.query.new_empty(a.query.shape), sums, weights


def _edges_gradients(kernels: Any, a: Any, grads: Any, kept: Any, needs: Any) -> Any:
    found = kernels.edge_attention_backward(
        *a.parts, *grads, a.query, a.key, a.value, *_of_edges(a), *kept, a.bucket, num_buckets(a),
        needs[3], a.scale, a.dropout, a.seed,
    )  # fmt: skip
    return *found[:3], found[4], found[3], *found[5:]


def _edges_definition(a: Any) -> tuple[Tensor, Tensor]:
    """A row number is a row of the unit matrix."""
    dim, edges, wide = 0 if a.features is None else a.features.size(1), [], sum_type(a.query)
    query = a.edge_query
    if a.features is not None:
        edges.append(EdgeFeatures(a.features, None if query is None else query[..., :dim]))
    if a.row is not None:
        unit = torch.eye(a.num_rows, dtype=wide, device=a.query.device)
        edges.append(EdgeFeatures(unit, None if query is None else query[..., dim:], a.row))
    out, sums = reference.attention(call_of(a, edges=tuple(edges)))
    return out, torch.cat([s.to(wide) for s in sums], 2)


_edge_attention = FusedOp(
    "edge_attention",
    "query:NHD key:MHD value:MHD features:EK? edge_query:NHX? row:row? bias:EH? table:BH? "
    "bucket:bucket? seed:any? parts:parts num_rows:int scale:float dropout:float",
    "NHD NHX EH!",
    run=lambda kernels, a: kernels.edge_attention(
        *a.parts[:2], a.query, a.key, a.value, *_of_edges(a), a.bias, a.bucket, a.table,
        a.scale, a.dropout, a.seed,
    ),
    gradients=_edges_gradients,
    definition=_edges_definition,
    fake=_edges_fake,
)  # fmt: skip


def _product(table: Tensor, by: Tensor, turned: bool = False) -> Tensor:
    """Of vectors [N, H, D] with the rows of a table, [N, H, R]; turned from [N, H, R] back."""
    rows = "rd" if table.dim() == 2 else "rhd"
    said = f"nhr,{rows}->nhd" if turned else f"nhd,{rows}->nhr"
    return torch.einsum(said, by, table.to(by.dtype))


def _queries(call: AttentionCall, edges: list[EdgeFeatures]) -> Tensor | None:
    """Queries of a row of features, then of row numbers, [N, H, D + R]."""
    if all(e.query is None for e in edges):
        return None
    if len(edges) == 1 and edges[0].row is None:
        return edges[0].query
    wide, found = sum_type(call.query), []
    for e in edges:
        if e.query is None:
            width = e.dim if e.row is None else e.features.size(0)
            found.append(call.query.new_zeros(*call.query.shape[:2], width, dtype=wide))
        else:
            query = e.query.to(wide)
            found.append(query if e.row is None else _product(e.features, query))
    return torch.cat(found, 2)


def _with_edges(call: AttentionCall, backend: Backend) -> tuple[Tensor, tuple[Tensor, ...]]:
    """The output, and the sums of each features."""
    edges = sorted(call.edges, key=lambda e: e.row is not None)  # those by edge first
    features = edges[0].features if edges[0].row is None else None
    row, num_rows = edges[-1].row, 0 if edges[-1].row is None else edges[-1].features.size(0)
    out, sums, _ = _edge_attention(
        call.query, call.key, call.value, features, _queries(call, edges), row,
        *bias_parts(call.bias), call.seed, structure(call, backend), num_rows, call.scale,
        call.dropout, backend.name, plan=call.plan,
    )  # fmt: skip
    by_edge, by_row = sums[..., : sums.size(2) - num_rows], sums[..., sums.size(2) - num_rows :]
    found = (
        by_edge if e.row is None else _product(e.features, by_row, turned=True) for e in call.edges
    )
    return out, tuple(one.to(call.query.dtype) for one in found)
