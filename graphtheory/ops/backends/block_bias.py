"""The bias of token sets on dense attention, and its gradient."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import pad, scaled_dot_product_attention

from graphtheory.graph.inference import innermost_transform
from graphtheory.ops.arguments import BucketedBias
from graphtheory.ops.look_up import look_up
from graphtheory.ops.second import first_gradients

_TILE = 2**18  # logits that the backward pass holds at once


class BlockBias(NamedTuple):
    """What is added to the logits of dense sets."""

    values: Tensor  # [H, Z] for a table of buckets, [H, sets * dst * src] for a bias by edge
    columns: Tensor | None  # of `values`, for each place [sets * dst * src]; None if each has one

    def mask(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """The kernel's mask [sets, H, dst, src]."""
        heads, bias = len(self.values), self.values
        if self.columns is not None and bias.is_cpu:
            bias = bias.gather(1, self.columns.expand(heads, -1))
        elif self.columns is not None:
            bias = look_up(bias.t(), self.columns).t().contiguous()
        elif bias.stride(0) == 0 and heads > 1 and not bias.requires_grad:  # the same for all heads
            return bias[:1].view(1, *shape).transpose(0, 1).to(dtype).expand(-1, heads, -1, -1)
        elif not bias.is_cpu:
            bias = bias.contiguous()  # torch's fused kernels on a GPU take no mask with gaps
        return bias.view(heads, *shape).transpose(0, 1).to(dtype)

    def part(self, first: int, places: int) -> BlockBias:
        """The bias of some places."""
        at = slice(first, first + places)
        if self.columns is None:
            return BlockBias(self.values[:, at], None)
        return BlockBias(self.values, self.columns[at])


def learned_on_cpu(bias: Tensor | BucketedBias | None) -> bool:
    """Whether a bias needs a gradient on a CPU; what is compiled fuses torch's own formula."""
    values = bias.table if isinstance(bias, BucketedBias) else bias
    if values is None or torch.compiler.is_compiling() or not torch.is_grad_enabled():
        return False
    return values.is_cpu and values.requires_grad


class LearnedBias(torch.autograd.Function):
    """Attention with a learned bias, a few sets at a time; torch's keeps the weights of all."""

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, values: Tensor, columns: Tensor | None,
        scale: float,
    ) -> Tensor:  # fmt: skip
        """The output of the dense kernel."""
        mask = BlockBias(values, columns).mask(_places(query, key), query.dtype)
        mask = mask.detach()  # with a gradient it would go to the slow kernel after all
        out = scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scale)
        ctx.save_for_backward(query, key, value, values, columns, out)
        ctx.scale = scale
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of the inputs but `columns` and `scale`."""
        (grad,), (query, key, value, values, columns, out) = grads, ctx.saved_tensors
        if _graph_wanted((query, key, value, values)):

            def definition(query: Tensor, key: Tensor, value: Tensor, values: Tensor) -> Tensor:
                mask = BlockBias(values, columns).mask(_places(query, key), query.dtype)
                return _by_formula(query, key, value, mask, False, ctx.scale)

            found = first_gradients(definition, (query, key, value, values), grads)
            return *found, None, None
        whole, of_set = BlockBias(values, columns), query.size(2) * key.size(2)
        at_once = max(1, _TILE // max(1, of_set * len(values)))
        nodes, biases = [], []
        for first in range(0, len(query), at_once):
            tensors = [t[first : first + at_once] for t in (grad, query, key, value, out)]
            bias = whole.part(first * of_set, len(tensors[0]) * of_set)
            of_nodes, logit_grad = _gradients(tensors, bias, ctx.scale)
            nodes.append(of_nodes)
            biases.append(_of_values(logit_grad, bias))
        of_values = torch.cat(biases, 1) if columns is None else torch.stack(biases).sum(0)
        return *(torch.cat(of) for of in zip(*nodes, strict=True)), of_values, None, None


class SecondDerivative(torch.autograd.Function):
    """Passes the output of torch's dense kernel on, with a gradient that has one of its own.

    Where `create_graph` asks for it that is torch's formula, and nothing flows into the kernel.
    """

    @staticmethod
    def forward(
        out: Tensor, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool,
        scale: float,
    ) -> Tensor:  # fmt: skip
        """`out`, the kernel's."""
        return out.view_as(out)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Keep what the kernel keeps."""
        _, *tensors, ctx.causal, ctx.scale = inputs
        ctx.save_for_backward(*tensors)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """To the kernel, or to its inputs."""
        tensors = ctx.saved_tensors
        if not _graph_wanted(tensors):
            return grads[0], None, None, None, None, None, None

        definition = partial(_by_formula, causal=ctx.causal, scale=ctx.scale)
        return None, *first_gradients(definition, tensors, grads), None, None


def _by_formula(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool, scale: float
) -> Tensor:
    with sdpa_kernel(SDPBackend.MATH):
        return scaled_dot_product_attention(
            query, key, value, attn_mask=mask, is_causal=causal, scale=scale
        )


def _graph_wanted(tensors: Sequence[Tensor | None]) -> bool:
    """Whether gradients that are computed now may be differentiated."""
    transform = innermost_transform()
    if transform is None or not torch.is_grad_enabled():
        return torch.is_grad_enabled()
    level = transform.level()  # it always records a graph, used if a tensor has a gradient outside
    outside = (torch._C._functorch._unwrap_for_grad(t, level) for t in tensors if t is not None)
    return any(t.requires_grad for t in outside)


def _places(query: Tensor, key: Tensor) -> tuple[int, int, int]:
    return len(query), query.size(2), key.size(2)


def _gradients(
    tensors: list[Tensor], bias: BlockBias, scale: float
) -> tuple[tuple[Tensor, ...], Tensor]:
    """Of query, key, value, and of the logits: with P the weights, dS = P * (dO V^T - <dO, O>)."""
    dtype = tensors[0].dtype
    wide = torch.promote_types(dtype, torch.float32)
    grad, query, key, value, out = (t.to(wide) for t in tensors)
    shape, query = _places(query, key), scale * query
    logits = (query @ key.transpose(-1, -2)).add_(bias.mask(shape, wide))  # [sets, H, dst, src]
    nothing = logits.amax(-1, keepdim=True) == -torch.inf
    weights = logits.softmax(-1).masked_fill(nothing, 0)
    inner = (grad * out).sum(-1, keepdim=True)
    logit_grad = (grad @ value.transpose(-1, -2)).sub_(inner) * weights
    turned = logit_grad.transpose(-1, -2)
    nodes = (scale * (logit_grad @ key), turned @ query, weights.transpose(-1, -2) @ grad)
    return tuple(t.to(dtype) for t in nodes), logit_grad


def _of_values(logit_grad: Tensor, bias: BlockBias) -> Tensor:
    """Gradient of the values of a bias, given that of the logits [sets, H, dst, src]."""
    places = logit_grad.transpose(0, 1).flatten(1)
    if bias.columns is None:
        return places
    columns = bias.columns.expand(len(bias.values), -1)
    return bias.values.new_zeros(bias.values.shape).scatter_add(1, columns, places)


def of_edges(bias: Tensor | BucketedBias, places: Tensor | None = None) -> BlockBias:
    """The bias, in float32 or wider, of every edge or of those in `places`; -inf at place E."""
    if isinstance(bias, BucketedBias):
        bias.check()
        values, columns = bias.table.t(), bias.bucket.long()
    else:
        values, columns = bias.t(), None
    values = values.to(torch.promote_types(values.dtype, torch.float32))
    if places is None:
        return BlockBias(values, columns)
    barred = values.size(1)
    values = torch.cat([values, values.new_full((len(values), 1), -torch.inf)], 1)
    if columns is None:
        return BlockBias(values.index_select(1, places), None)
    return BlockBias(values, pad(columns, (0, 1), value=barred)[places])
