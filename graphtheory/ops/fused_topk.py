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
from graphtheory.ops.look_up import bias_per_edge
from graphtheory.ops.operator import operator
from graphtheory.ops.second import second_gradients


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


@operator("graphtheory::topk_blocks", "NHD MHD MHD EH bucket BH . blocks . . . .")
def _blocks(
    query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, bucket: Tensor | None,
    table: Tensor | None, seed: Tensor | None, blocks: Sequence[int], k: int, scale: float,
    dropout: float, backend: str,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    _check_count(k)
    check_buckets(bucket, 0 if table is None else table.size(0))
    return BACKENDS[backend].kernels.topk_blocks(
        query, key, value, bias, bucket, table, seed, blocks, k, scale, dropout
    )


@_blocks.register_fake
def _(query: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    blocks, backend = rest[6], rest[-1]
    (rows, heads, _), (count, dst, src) = query.shape, blocks
    sizes = Sizes(rows, count * dst * src, heads, sum_type(query.dtype), on_blocks=True)
    facts = query.new_empty(BACKENDS[backend].saved_shape(sizes), dtype=sizes.dtype)
    return query.new_empty(query.shape), facts


@operator("graphtheory::topk_blocks_backward", "NHD NHD MHD MHD EH bucket BH . . blocks . . . . .")
def _blocks_grad(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None,
    bucket: Tensor | None, table: Tensor | None, seed: Tensor | None, facts: Tensor,
    blocks: Sequence[int], with_bias: bool, k: int, scale: float, dropout: float, backend: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    check_buckets(bucket, 0 if table is None else table.size(0))
    (rows, heads, _), (count, dst, src) = query.shape, blocks
    sizes = Sizes(rows, count * dst * src, heads, sum_type(query.dtype), on_blocks=True)
    if facts.shape != BACKENDS[backend].saved_shape(sizes):
        raise ValueError(f"facts: shape {tuple(facts.shape)}, not of the forward pass")
    return BACKENDS[backend].kernels.topk_blocks_backward(
        grad, query, key, value, bias, bucket, table, seed, facts, blocks,
        with_bias, scale, dropout,
    )  # fmt: skip


@_blocks_grad.register_fake
def _(grad: Tensor, *rest: Any) -> Any:
    query, key, value, bias, _, table, _, facts, blocks, with_bias, *_ = rest
    count, dst, src = blocks
    edges, buckets = count * dst * src, 0 if table is None else table.size(0)
    sizes = (edges if with_bias and bias is not None else 0, buckets if with_bias else 0)
    nodes = [t.new_empty(t.shape) for t in (query, key, value)]
    return *nodes, *(facts.new_empty(n, query.size(1)) for n in sizes)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *tensors, blocks, k, scale, dropout, backend = inputs
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)
    ctx.blocks, ctx.options = blocks, (k, scale, dropout, backend)
    ctx.save_for_backward(*tensors, output[1])


def _backward(ctx: Any, grad: Tensor | None, *_: Any) -> tuple[Any, ...]:
    nothing = (None, None, None, None, None)
    if grad is None:
        return None, None, None, None, None, None, None, *nothing
    *tensors, facts = ctx.saved_tensors
    bias, table = tensors[3], tensors[5]
    with_bias = ctx.needs_input_grad[3] or ctx.needs_input_grad[5]
    of_query, of_key, of_value, of_bias, of_table = _blocks_grad(
        grad, *tensors, facts, ctx.blocks, with_bias, *ctx.options
    )
    of_bias = of_bias.to(bias.dtype) if with_bias and bias is not None else None
    of_table = of_table.to(table.dtype) if with_bias and table is not None else None
    return of_query, of_key, of_value, of_bias, None, of_table, None, *nothing


def _save_grad(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *tensors, _facts, ctx.blocks, _, k, scale, dropout, backend = inputs
    ctx.set_materialize_grads(False)
    ctx.options = (k, scale, dropout, backend)
    ctx.save_for_backward(*tensors)


def _backward_of_grad(ctx: Any, *upstream: Tensor | None) -> tuple[Any, ...]:
    grad, query, key, value, bias, bucket, table, seed = ctx.saved_tensors
    k, scale, dropout, backend = ctx.options
    nb = _edges_of(ctx.blocks, query.device)

    def definition(query: Tensor, key: Tensor, value: Tensor, bias: Any, table: Any) -> Tensor:
        bias = bias if table is None else BucketedBias(bucket, table)
        call = AttentionCall(query, key, value, nb, bias, scale, dropout, seed, k)
        return on_edges(call, BACKENDS[backend])

    tensors = (query, key, value, bias, table)
    needed = [ctx.needs_input_grad[k] for k in (0, 1, 2, 3, 4, 6)]
    of_grad, found = second_gradients(definition, tensors, (grad,), upstream, needed)
    of_bias, of_table = found[3:]
    nothing = (None, None, None, None, None, None, None, None)
    return *of_grad, *found[:3], of_bias, None, of_table, *nothing


def _edges_of(blocks: Sequence[int], device: torch.device) -> Neighborhood:
    """The edges of equal complete blocks."""
    count, dst, src = blocks
    indptr = torch.arange(0, count * dst * src + 1, src, device=device)
    indices = torch.arange(count * src, device=device).view(count, 1, src).expand(-1, dst, -1)
    return Neighborhood(indptr, indices.reshape(-1), count * src, validate=False)


_blocks.register_autograd(_backward, setup_context=_save)
_blocks_grad.register_autograd(_backward_of_grad, setup_context=_save_grad)


def on_blocks(call: AttentionCall, backend: Backend) -> Tensor:
    """Run a checked call on equal complete blocks by the kernels of a backend for these."""
    assert call.k is not None and call.neighborhood.blocks is not None
    bias, bucket, table = _parts(call)
    out, _ = _blocks(
        call.query, call.key, call.value, bias, bucket, table, call.seed,
        call.neighborhood.blocks, call.k, call.scale, call.dropout, backend.name,
    )  # fmt: skip
    return out
