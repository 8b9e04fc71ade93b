"""k-nearest attention as torch ops: the choice of edges on CSR, and all of it on blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from graphtheory.graph import bipartite
from graphtheory.ops import fused
from graphtheory.ops.arguments import BucketedBias
from graphtheory.ops.backend import BACKENDS, Backend
from graphtheory.ops.call import AttentionCall, bias_parts, sum_type
from graphtheory.ops.look_up import bias_per_edge
from graphtheory.ops.operator import FusedOp, Operator


def _check_count(k: int) -> None:
    if k < 1:
        raise ValueError(f"k: got {k}, expected 1 or more")


def _chosen(
    query: Tensor, key: Tensor, bias: Tensor | None, parts: Sequence[Tensor],
    k: int, scale: float, backend: str,
) -> Tensor:  # fmt: skip
    _check_count(k)
    wide, kernels = sum_type(query), BACKENDS[backend].kernels
    logits = kernels.edge_dot(*parts, query.to(wide), key.to(wide)) * scale
    if bias is not None:
        logits += bias.to(wide)
    return kernels.top_edges(*parts, logits, k)


_top_edges = Operator(
    "graphtheory::top_edges",
    "query:NHD key:MHD bias:EH? parts:parts k:int scale:float backend:str", ["EH"],
    _chosen,
    lambda query, key, bias, parts, *rest: query.new_empty(
        parts[1].size(0), query.size(1), dtype=torch.bool
    ),
)  # fmt: skip


def on_edges(call: AttentionCall, backend: Backend) -> Tensor:
    """Run a checked call on the CSR kernels of a backend, with a mask on who is not chosen."""
    nb, wide = call.neighborhood, sum_type(call.query)
    bias = call.bias
    if isinstance(bias, BucketedBias):  # whose gradient is summed in a wide type
        bias = bias_per_edge(BucketedBias(bias.bucket, bias.table.to(wide)))
    bias = None if bias is None else bias.to(wide)
    given = (t if t is None else t.detach() for t in (call.query, call.key, bias))
    stays = _top_edges(*given, [nb.indptr, nb.indices], call.k, call.scale, backend.name)
    if bias is None:
        bias = torch.zeros_like(stays, dtype=wide)
    masked = torch.where(stays, bias, -torch.inf)
    return fused.attention(call._replace(bias=masked, k=None, plan=None), backend)


def _saved(a: Any) -> Tensor:
    """Facts of each row that the forward pass keeps, in type and shape."""
    count, dst, src = a.blocks
    return fused.saved_like(a.query, count * dst * src, a.backend, "topk_attention")


def _run(kernels: Any, a: Any) -> tuple[Tensor, Tensor]:
    _check_count(a.k)
    return kernels.topk_blocks(
        a.query, a.key, a.value, a.bias, a.bucket, a.table, a.seed, a.blocks, a.k, a.scale,
        a.dropout,
    )  # fmt: skip


def _gradients(kernels: Any, a: Any, grads: Any, kept: Any, needs: Any) -> Any:
    if kept[0].shape != _saved(a).shape:
        raise ValueError(f"facts: shape {tuple(kept[0].shape)}, not of the forward pass")
    return kernels.topk_blocks_backward(
        *grads, a.query, a.key, a.value, a.bias, a.bucket, a.table, a.seed, *kept, a.blocks,
        needs[3] or needs[4], a.scale, a.dropout,
    )  # fmt: skip


def _definition(a: Any) -> Tensor:
    count, dst, src = a.blocks
    edges = bipartite([dst] * count, [src] * count).to(a.query.device)
    call = fused.call_of(a, edges, k=a.k)
    return on_edges(call, BACKENDS[a.backend])


_blocks = FusedOp(
    "topk_blocks",
    "query:NHD key:MHD value:MHD bias:EH? table:BH? bucket:bucket? seed:any? blocks:blocks k:int "
    "scale:float dropout:float",
    "NHD any!",
    run=_run,
    gradients=_gradients,
    definition=_definition,
    fake=lambda a: (a.query.new_empty(a.query.shape), _saved(a)),
)


def on_blocks(call: AttentionCall, backend: Backend) -> Tensor:
    """Run a checked call on equal complete blocks by the kernels of a backend for these."""
    return _blocks(
        call.query, call.key, call.value, *bias_parts(call.bias), call.seed,
        call.neighborhood.blocks, call.k, call.scale, call.dropout, backend.name, plan=call.plan,
    )[0]  # fmt: skip
