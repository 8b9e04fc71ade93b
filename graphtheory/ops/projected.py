"""Attention with features of edges on linear maps of x, which the backward pass makes again.

On a CPU, without a copy of the features in the order of rows: edge e of the rows has row order[e]
of the features; an empty order is row e.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear

from graphtheory.graph import Neighborhood
from graphtheory.ops import fused
from graphtheory.ops.arguments import BucketedBias, EdgeFeatures
from graphtheory.ops.backend import BACKENDS
from graphtheory.ops.call import AttentionCall, bias_parts
from graphtheory.ops.kernels import neighborhood_of
from graphtheory.ops.operator import FusedOp

Linear = tuple[Tensor, Tensor | None]  # W and b


def _number(seed: Tensor | None) -> int:
    return 0 if seed is None else int(seed)


def _maps(a: Any) -> list[Linear]:
    """Of queries, keys and values."""
    return [(a.query, a.query_bias), (a.key, a.key_bias), (a.value, a.value_bias)]


def _gradients(kernels: Any, a: Any, grads: Any, kept: Any, needs: Any) -> Any:
    with torch.autocast("cpu", enabled=False):  # the caller's says nothing of the forward pass
        return kernels.projected_attention_backward(
            a.parts, a.order, *grads, a.x_src, a.x_dst, _maps(a), a.matrix, a.features, *kept,
            a.bucket, fused.num_buckets(a), (needs[0], needs[1], needs[9]), a.scale, a.dropout,
            _number(a.seed),
        )  # fmt: skip


def _definition(a: Any) -> Tensor:
    """The same by `ops.attention` on maps and features that are kept."""
    with torch.autocast("cpu", enabled=False):
        query, key, value = (
            linear(x, *one).unflatten(1, (len(a.matrix), -1))
            for x, one in zip((a.x_dst, a.x_src, a.x_src), _maps(a), strict=True)
        )
        nb, bias = neighborhood_of(a.parts, a.x_src.size(0)), fused.bias_of(a)
        rows = a.features if a.order.numel() == 0 else a.features.index_select(0, a.order)
        edges = (EdgeFeatures(rows, torch.einsum("nhc,hdc->nhd", query, a.matrix)),)
        call = AttentionCall(query, key, value, nb, bias, a.scale, a.dropout, a.seed, edges=edges)
        out, (sums,) = fused.attention(call, BACKENDS[a.backend])
        return out + torch.einsum("nhd,hdc->nhc", sums, a.matrix)


_attention = FusedOp(
    "projected_attention",
    "x_src:MI x_dst:NJ query:WJ query_bias:W? key:WI key_bias:W? value:WI value_bias:W? matrix:HKC "
    "features:FK bias:EH? table:BH? bucket:bucket? seed:any? order:order parts:parts scale:float "
    "dropout:float",
    "NHC EH! NHK!",
    run=lambda kernels, a: kernels.projected_attention(
        *a.parts[:2], a.order, a.x_src, a.x_dst, _maps(a), a.matrix, a.features, a.bias, a.bucket,
        a.table, a.scale, a.dropout, _number(a.seed),
    ),
    gradients=_gradients,
    definition=_definition,
)  # fmt: skip


def attention(
    x_src: Tensor, x_dst: Tensor, maps: Sequence[Linear], matrix: Tensor, features: Tensor,
    nb: Neighborhood, order: Tensor | None, bias: Tensor | BucketedBias | None, scale: float,
    dropout: float, seed: Tensor | None,
) -> Tensor:  # fmt: skip
    """Attention of queries W x + b on keys and values W x + b + M' f of edges, [N_dst, H, C].

    Args:
        x_src: [N_src, channels], of which the second and the third map make keys and values.
        x_dst: [N_dst, channels], of which the first makes queries.
        maps: W [H * C, channels] and b [H * C] or None, three times.
        matrix: M of each head, [H, D, C].
        features: f [E, D].
        nb: Who attends to whom.
        order: Edge e of `nb` has row order[e] of the features; None is row e.
        bias: As of `ops.attention`.
        scale: Of the dot products.
        dropout: Probability of dropping a weight.
        seed: Which are dropped.
    """
    nb.check_unchanged()
    t = nb._turned()
    assert t.perm is not None
    return _attention(
        x_src, x_dst, *(t for one in maps for t in one), matrix, features, *bias_parts(bias),
        seed, nb.indptr.new_empty(0) if order is None else order,
        [nb.indptr, nb.indices, t.indptr, t.indices, t.perm], scale, dropout, "numba_csr",
    )[0]  # fmt: skip
