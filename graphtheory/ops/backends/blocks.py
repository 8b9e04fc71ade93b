"""Token sets through torch's scaled_dot_product_attention: complete or causal, equal or ragged.

Which sets loops over edges run faster on a CPU was measured; the constants say by what.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import pad, scaled_dot_product_attention

from graphtheory.graph.content import innermost_transform
from graphtheory.ops import fused_topk
from graphtheory.ops.arguments import BucketedBias
from graphtheory.ops.backend import BACKENDS, Backend
from graphtheory.ops.backends.triton_csr import topk_limits
from graphtheory.ops.call import AttentionCall, Call
from graphtheory.ops.derivatives import first_gradients, needs_grad
from graphtheory.ops.look_up import look_up

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


def learned_on_cpu(values: Tensor) -> bool:
    """Whether a bias needs a gradient on a CPU; what is compiled fuses torch's own formula."""
    return values.is_cpu and needs_grad((values,)) and not torch.compiler.is_compiling()


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
    """Passes a dense kernel's output on; a gradient with one of its own is by torch's formula."""

    @staticmethod
    def forward(
        out: Tensor, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool,
        scale: float,
    ) -> Tensor:  # fmt: skip
        """Return `out`, which the kernel has made."""
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
    sets, heads, dst, src = logit_grad.shape
    places = logit_grad.transpose(0, 1).reshape(heads, sets * dst * src)
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


HALF = (torch.float16, torch.bfloat16)

# (causal, ragged) -> the mean row from which torch's dense attention is faster, forward and
# backward: in float32 and float64, in half precision, with a bias. One thread of a Xeon with
# AVX-512, torch 2.13, 8 heads of 16 / 4 heads of 64, times `numba_csr` takes of what dense takes:
#   ragged, mean row 29: 0.9 / 0.7; 45: 1.0 / 1.0; 56: 1.3 / 1.2; 133: 2.5 / 2.3
#   equal causal, mean row 12: 0.6 / 1.0; 16: 1.1 / 1.5; 100: 1.9 / 2.0
#   ragged causal, mean row 33: 0.7 / 0.7; 67 to 70: 1.0 to 1.1; 102: 1.5 / 1.4
#   bfloat16, causal, mean row 100: 0.6 / 1.1
#   a learned bias, by bucket / by edge, ragged, mean row 152: 1.0 / 0.5 and 1.4 / 1.2; causal, mean
#   row 128: 0.6 / 0.6 and 1.0 / 1.0
# Equal complete sets go to loops of our own, one thread of an EPYC with AVX2, the same ratio:
#   rows of 8: 0.5 / 0.7; of 16: 1.5 / 1.7; of 32: 2.5 / 2.4
#   bfloat16: 0.6 / 1.0; 1.4 / 1.6; 2.1 / 2.3; dropout: 0.6 / 0.8; 1.3 / 1.5; 1.3 / 1.7
#   a learned bias, by bucket: 0.6 / 0.7; 1.4 / 1.7; 2.3 / 2.6; by edge: 0.6 / 0.7; 1.3 / 1.6
SHORTEST_ROW: dict[tuple[bool, bool], tuple[float, float, float]] = {
    (False, False): (12, 12, 12),
    (False, True): (48, 128, 128),
    (True, False): (16, 160, math.inf),
    (True, True): (64, 160, math.inf),
}
# Targets a set, on average: one target of 64 to 4096 sources makes 0.5 to 0.9, four 1.1 to 1.8.
FEWEST_TARGETS = 4

# Sources of an equal set up to which those loops are faster than torch's kernel. Two threads of an
# EPYC, times it takes of what they take, 8 heads of 16 / 4 of 64 / 1 of 128, forward and backward:
# 16 sources 1.4 / 2.4 / 1.9; 64: 1.7 / 1.4 / 1.5; 197: 1.3 / 1.2 / 1.3; 256: 1.4 / 1.2 / 1.1;
# 1024: 1.3 / 1.0 / 0.8; in bfloat16 1.9 / 1.7 / 1.9; 2.3 / 3.2 / 3.2; 3.4 / 5.6 / 5.3;
# 3.8 / 5.8 / 5.4; 4.8 / 5.0 / 4.6. Forward alone the same of 256: 1.1 / 1.1 / 1.0, but in bfloat16
# from 32 sources on 0.5 to 0.9. `benchmarks/sets.py` prints it.
MOST_SOURCES = 256


def blocks_beat_edge_loops(call: AttentionCall) -> bool:
    """Whether `blocks` is faster than `numba_csr` for a call that both can run."""
    nb = call.neighborhood
    count = 0 if nb.sets is None else nb.sets.count
    causal = nb.sets is not None and nb.sets.causal
    ragged = nb.sets is not None and not nb.sets.equal
    plain, half, biased = SHORTEST_ROW[causal, ragged]
    row = half if call.query.dtype in HALF else plain
    if call.bias is not None:
        row = max(row, biased)
    return nb.num_dst >= FEWEST_TARGETS * count and nb.num_edges >= row * nb.num_dst


def own_loops_beat_sdpa(call: AttentionCall) -> bool:
    """Whether loops of our own are faster than torch's kernel for dense sets on a CPU."""
    blocks, on_cpu = call.neighborhood.blocks, call.query.device.type == "cpu"
    if blocks is None or not on_cpu:
        return False
    if blocks[2] <= MOST_SOURCES and call.query.dtype not in HALF:
        return True
    _, _, _, values, *_ = call.tensors
    learned = values is not None and values.requires_grad  # torch's kernel keeps all weights for it
    return needs_grad(call.tensors) and (learned or call.query.dtype in HALF)


class Blocks(Backend):
    """Attention over sets of nodes of which all, or all that came before, are sources."""

    name = "blocks"
    operations = frozenset({"attention", "topk_attention"})
    records = True

    def unsupported(self, call: Call | AttentionCall) -> list[str]:
        """Other neighborhoods, and on some devices and sets dropout or the k nearest."""
        assert isinstance(call, AttentionCall)
        nb, on_cpu = call.neighborhood, call.query.is_cpu
        reasons = []
        if call.k is not None:
            reasons += _kernels(call).unsupported(call)
            reasons += [] if on_cpu else topk_limits(call)
            if nb.blocks is None:
                reasons.append("the neighborhood is not made of equal complete blocks")
        elif nb.sets is None:
            reasons.append("the neighborhood is not made of complete or causal sets")
        if call.edges:
            reasons.append("dense kernels take no features of edges")
        if call.k is None and call.dropout > 0 and (nb.blocks is None or not on_cpu):
            reasons.append("dropout is drawn by edge and head, which the dense kernel cannot do")
        # Without sets that is said above, and torch.export may leave the number of edges open.
        if nb.sets is not None and nb.num_edges == 0:
            reasons.append("there are no edges")
        return reasons

    def is_slower(self, call: Call | AttentionCall) -> bool:
        """Where loops over edges are faster on a CPU."""
        assert isinstance(call, AttentionCall)
        return call.k is None and call.query.is_cpu and not blocks_beat_edge_loops(call)

    def run(self, call: Call | AttentionCall) -> Tensor:
        assert isinstance(call, AttentionCall)
        return attention(call) if call.k is None else fused_topk.on_blocks(call, _kernels(call))


def _kernels(call: AttentionCall) -> Backend:
    """The backend with kernels for the k nearest of blocks on the device of a call."""
    return BACKENDS["numba_csr" if call.query.is_cpu else "triton_csr"]


def attention(call: AttentionCall) -> Tensor:
    """Attention of every set: equal ones in one call, ragged ones in groups of similar size."""
    blocks, sets = call.neighborhood.blocks, call.neighborhood.sets
    nodes = (call.query, call.key, call.value)
    if blocks is not None and (call.dropout > 0 or own_loops_beat_sdpa(call)):
        return fused_topk.on_blocks(call._replace(k=blocks[2]), _kernels(call))
    if blocks is not None:
        bias = None if call.bias is None else of_edges(call.bias)
        return _dense(*nodes, blocks[0], call.scale, bias, causal=False)
    assert sets is not None
    if sets.equal and call.bias is None:
        return _dense(*nodes, sets.count, call.scale, None, causal=sets.causal)
    return _ragged(call, sets.causal)


def _dense(
    query: Tensor, key: Tensor, value: Tensor, count: int, scale: float,
    bias: BlockBias | Tensor | None, causal: bool,
) -> Tensor:  # fmt: skip
    """Attention of `count` sets of as many nodes each; [count * rows, H, D] in and out."""
    heads, dim = query.shape[1:]
    q, k, v = (
        t.view(count, t.size(0) // count, heads, dim).transpose(1, 2)  # [count, H, rows, D]
        for t in (query, key, value)
    )
    if heads == 0 or dim == 0:  # torch's kernel divides by them, which ends the process in 2.10
        return (q @ k.transpose(-1, -2) @ v).transpose(1, 2).reshape(query.shape)
    if isinstance(bias, BlockBias) and learned_on_cpu(bias.values):
        out = LearnedBias.apply(q, k, v, bias.values, bias.columns, scale)
    else:
        shape = (count, q.size(2), k.size(2))
        mask = bias.mask(shape, q.dtype) if isinstance(bias, BlockBias) else bias
        out = scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal, scale=scale)
        if out.requires_grad and not torch.compiler.is_compiling():
            out = SecondDerivative.apply(out, q, k, v, mask, causal, scale)
    return out.transpose(1, 2).reshape(query.shape)


def _ragged(call: AttentionCall, causal: bool) -> Tensor:
    groups = call.neighborhood.groups()
    targets, sources = [g.targets for g in groups], [g.sources for g in groups]
    parts = zip(
        _take(call.query, targets), _take(call.key, sources), _take(call.value, sources),
        _masks(call, causal), groups, strict=True,
    )  # fmt: skip
    looks_back = causal and call.bias is None  # hides padded sources from every real target
    out = [_dense(q, k, v, g.sets, call.scale, mask, looks_back) for q, k, v, mask, g in parts]
    # What is computed for padded targets goes to one more row, and from there nowhere.
    rows = call.query.new_zeros(len(call.query) + 1, *call.query.shape[1:])
    return rows.index_copy(0, torch.cat([g.rows for g in groups]), torch.cat(out))[:-1]


def _take(rows: Tensor, places: list[Tensor]) -> tuple[Tensor, ...]:
    """The rows that stand in the places of each group; one gather, so one sum of gradients."""
    return rows.index_select(0, torch.cat(places)).split([len(p) for p in places])


def _masks(call: AttentionCall, causal: bool) -> list[BlockBias] | list[Tensor | None]:
    """Of each group, -inf where there is no edge and elsewhere the bias; None where not needed."""
    nb, dtype = call.neighborhood, call.query.dtype
    if call.bias is None:
        return [
            None if causal or g.padded is None
            else torch.zeros(g.padded.shape, dtype=dtype, device=g.padded.device)
            .masked_fill(g.padded, -torch.inf)[:, None, None]
            for g in nb.groups()
        ]  # fmt: skip
    places = nb.edge_places()
    whole, first, parts = of_edges(call.bias, torch.cat(places)), 0, []
    for p in places:
        parts.append(whole.part(first, len(p)))
        first += len(p)
    return parts
