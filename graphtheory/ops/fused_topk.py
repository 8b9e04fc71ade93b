"""k-nearest attention as torch ops: the choice of edges on CSR, and all of it on blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from graphtheory.graph import Neighborhood
from graphtheory.ops import fused
from graphtheory.ops.backend import BACKENDS, Backend, Sizes
from graphtheory.ops.call import AttentionCall, BucketedBias, check_buckets
from graphtheory.ops.fused import sum_type
from graphtheory.ops.fused_op import FusedOp
from graphtheory.ops.look_up import bias_per_edge
from graphtheory.ops.operator import operator


def _check_count(k: int) -> None:
    if k < 1:
        raise ValueError(f"k: got {k}, expected 1 or more")


def _parts(call: AttentionCall) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Bias by edge, buckets and table, of which some are absent."""
    if isinstance(call.bias, BucketedBias):
        return None, *call.bias
    return call.bias, None, None


def _by_edge(bias: Tensor | BucketedBias, wide: torch.dtype) -> Tensor:
    """A bias as [E, H], whose gradient is summed in a wide type."""
    if isinstance(bias, BucketedBias):
        bias = BucketedBias(bias.bucket, bias.table.to(wide))
    return bias_per_edge(bias).to(wide)


@operator("graphtheory::top_edges", "NHD MHD EH indptr indices . . .")
def _top_edges(
    query: Tensor, key: Tensor, bias: Tensor | None, indptr: Tensor, indices: Tensor,
    k: int, scale: float, backend: str,
) -> Tensor:  # fmt: skip
    _check_count(k)
    wide = sum_type(query.dtype)
    kernels = BACKENDS[backend].kernels
    logits = kernels.edge_dot(indptr, indices, query.to(wide), key.to(wide)) * scale
    if bias is not None:
        logits += bias.to(wide)
    return kernels.top_edges(indptr, indices, logits, k)


@_top_edges.register_fake
def _(query: Tensor, key: Tensor, bias: Tensor | None, indptr: Tensor, *rest: Any) -> Tensor:
    indices = rest[0]
    return query.new_empty(indices.size(0), query.size(1), dtype=torch.bool)


def on_edges(call: AttentionCall, backend: Backend) -> Tensor:
    """Run a checked call on the CSR kernels of a backend, with a mask on who is not chosen."""
    assert call.k is not None
    nb = call.neighborhood
    nodes = call.query.detach(), call.key.detach()
    bias = None if call.bias is None else _by_edge(call.bias, sum_type(call.query.dtype))
    given = None if bias is None else bias.detach()
    stays = _top_edges(*nodes, given, nb.indptr, nb.indices, call.k, call.scale, backend.name)
    if bias is None:
        bias = torch.zeros_like(stays, dtype=sum_type(call.query.dtype))
    masked = torch.where(stays, bias, -torch.inf)
    return fused.attention(replace(call, bias=masked, k=None), backend)


def _facts(a: Any) -> tuple[tuple[int, ...], torch.dtype]:
    """Shape and type of the facts of each row that the forward pass keeps."""
    (rows, heads, _), (count, dst, src) = a.query.shape, a.blocks
    sizes = Sizes(rows, count * dst * src, heads, sum_type(a.query.dtype), on_blocks=True)
    return BACKENDS[a.backend].saved_shape(sizes), sizes.dtype


def _run(kernels: Any, a: Any) -> tuple[Tensor, Tensor]:
    _check_count(a.k)
    check_buckets(a.bucket, 0 if a.table is None else a.table.size(0))
    return kernels.topk_blocks(*a[:7], a.blocks, a.k, a.scale, a.dropout)


def _fake(a: Any) -> tuple[Tensor, Tensor]:
    shape, dtype = _facts(a)
    return a.query.new_empty(a.query.shape), a.query.new_empty(shape, dtype=dtype)


def _gradients(kernels: Any, a: Any, grads: Any, kept: Any, needs: Any) -> Any:
    check_buckets(a.bucket, 0 if a.table is None else a.table.size(0))
    if kept[0].shape != _facts(a)[0]:
        raise ValueError(f"facts: shape {tuple(kept[0].shape)}, not of the forward pass")
    return kernels.topk_blocks_backward(
        *grads, *a[:7], *kept, a.blocks, needs[3] or needs[4], a.scale, a.dropout
    )


def _definition(a: Any) -> Tensor:
    nb = _edges_of(a.blocks, a.query.device)
    bias = a.bias if a.table is None else BucketedBias(a.bucket, a.table)
    call = AttentionCall(a.query, a.key, a.value, nb, bias, a.scale, a.dropout, a.seed, a.k)
    return on_edges(call, BACKENDS[a.backend])


def _edges_of(blocks: Sequence[int], device: torch.device) -> Neighborhood:
    """The edges of equal complete blocks."""
    count, dst, src = blocks
    indptr = torch.arange(0, count * dst * src + 1, src, device=device)
    indices = torch.arange(count * src, device=device).view(count, 1, src).expand(-1, dst, -1)
    return Neighborhood(indptr, indices.reshape(-1), count * src, validate=False)


_blocks = FusedOp(
    "topk_blocks",
    "query:NHD key:MHD value:MHD bias:EH? bucket:bucket? table:BH? seed:any? blocks:blocks k:int "
    "scale:float dropout:float",
    "NHD any!",
    run=_run,
    gradients=_gradients,
    definition=_definition,
    kept="any",
    keep=lambda a, outputs: outputs[1:],
    fake=_fake,
)


def on_blocks(call: AttentionCall, backend: Backend) -> Tensor:
    """Run a checked call on equal complete blocks by the kernels of a backend for these."""
    assert call.k is not None and call.neighborhood.blocks is not None
    bias, bucket, table = _parts(call)
    out, _ = _blocks(
        call.query, call.key, call.value, bias, bucket, table, call.seed,
        call.neighborhood.blocks, call.k, call.scale, call.dropout, backend.name,
    )  # fmt: skip
    return out
