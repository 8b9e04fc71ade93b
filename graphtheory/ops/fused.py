"""Attention as one torch op with one backward op."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from graphtheory.ops import kernels
from graphtheory.ops.backend import BACKENDS, Backend, Sizes
from graphtheory.ops.call import AttentionCall, BucketedBias, Call, check_buckets
from graphtheory.ops.dropout import dropout_factor
from graphtheory.ops.fused_op import FusedOp
from graphtheory.ops.kernels import neighborhood_of, structure
from graphtheory.ops.look_up import bias_per_edge


def sum_type(dtype: torch.dtype) -> torch.dtype:
    """The type in which sums of that type are taken."""
    return torch.promote_types(dtype, torch.float32)


def room_to_save(out: Tensor, num_edges: int, backend: str, *, additive: bool = False) -> Tensor:
    """What attention saves beside its output [num_dst, H, D], in type and shape."""
    wide = sum_type(out.dtype)
    narrow = 0 if out.dtype == wide else out.size(2)
    sizes = Sizes(out.size(0), num_edges, out.size(1), wide, narrow=narrow, additive=additive)
    return out.new_empty(BACKENDS[backend].saved_shape(sizes), dtype=wide)


def read_again(out: Tensor, saved: Tensor, backend: str) -> Tensor | None:
    """The output if the backward pass reads it beside what was saved."""
    recomputed = saved.dim() == 3 and "out" in BACKENDS[backend].backward_needs
    return out if recomputed else None


def _run(kernels: Any, a: Any) -> tuple[Tensor, Tensor]:
    check_buckets(a.bucket, 0 if a.table is None else a.table.size(0))
    return kernels.attention(
        *a.parts[:2], a.query, a.key, a.value, a.bias, a.bucket, a.table, a.scale, a.dropout, a.seed
    )


def _fake(a: Any) -> tuple[Tensor, Tensor]:
    out = a.query.new_empty(a.query.shape)
    return out, room_to_save(out, a.parts[1].size(0), a.backend)


def _gradients(kernels: Any, a: Any, grads: Any, kept: Any, needs: Any) -> Any:
    saved, out = kept
    buckets = 0 if a.table is None else a.table.size(0)
    check_buckets(a.bucket, buckets)
    given = {"out": out, "bias": a.bias, "table": a.table} if saved.dim() == 3 else {}
    again = {name: given.get(name) for name in BACKENDS[a.backend].backward_needs}
    return kernels.attention_backward(
        *a.parts, *grads, a.query, a.key, a.value, saved, a.bucket, buckets, a.scale, a.dropout,
        a.seed, **again,
    )  # fmt: skip


def _definition(a: Any) -> Tensor:
    nb = neighborhood_of(a.parts, a.value.size(0))
    bias = a.bias if a.table is None else BucketedBias(a.bucket, a.table)
    call = AttentionCall(a.query, a.key, a.value, nb, bias, a.scale, a.dropout, a.seed)
    return composed(call, BACKENDS[a.backend])


_attention = FusedOp(
    "attention",
    "query:NHD key:MHD value:MHD bias:EH? table:BH? bucket:bucket? seed:any? parts:parts "
    "scale:float dropout:float",
    "NHD saved!",
    run=_run,
    gradients=_gradients,
    definition=_definition,
    kept="saved NHD?",
    keep=lambda a, outputs: (outputs[1], read_again(outputs[0], outputs[1], a.backend)),
    fake=_fake,
)


def composed(call: AttentionCall, backend: Backend) -> Tensor:
    """A checked call as one primitive after another, differentiable any number of times."""
    nb, wide = call.neighborhood, sum_type(call.query.dtype)
    query, key, value = (t.to(wide) for t in (call.query, call.key, call.value))
    logits = call.scale * kernels.edge_dot(Call("edge_dot", nb, (query, key)), backend)
    if call.bias is not None:
        logits = logits + bias_per_edge(call.bias).to(wide)
    weights = kernels.edge_softmax(Call("edge_softmax", nb, (logits,)), backend)
    if call.seed is not None:
        weights = weights * dropout_factor(call.dropout, call.seed, weights)
    out = kernels.aggregate(Call("aggregate", nb, (weights, value)), backend)
    return out.to(call.query.dtype)


def attention(call: AttentionCall, backend: Backend) -> Tensor:
    """Run a checked call on the CSR kernels of a backend."""
    bias = None if isinstance(call.bias, BucketedBias) else call.bias
    bucket, table = call.bias if isinstance(call.bias, BucketedBias) else (None, None)
    out, _ = _attention(
        call.query, call.key, call.value, bias, table, bucket, call.seed, structure(call, backend),
        call.scale, call.dropout, backend.name,
    )  # fmt: skip
    return out
