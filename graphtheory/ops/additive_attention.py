"""The attention of GAT: a softmax of leaky sums, as one torch op with one backward op."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from graphtheory.graph import Neighborhood
from graphtheory.ops import kernels
from graphtheory.ops.call import check_edges, check_nodes
from graphtheory.ops.dropout import draw_seed, dropout_factor
from graphtheory.ops.operator import operator, refuses

_Grads = tuple[Tensor, Tensor, Tensor, Tensor]


def scores(
    sent: Tensor, received: Tensor | None, edge: Tensor | None, nb: Neighborhood, slope: float
) -> Tensor:
    """The definition: leaky(sent + received + edge) as [E, H]; -inf where `edge` is -inf."""
    out = sent.index_select(0, nb.indices)
    if received is not None:
        out = out + received.index_select(0, nb.receivers())
    if edge is None:
        return nn.functional.leaky_relu(out, slope)
    barred = edge == -torch.inf
    out = nn.functional.leaky_relu(out + edge.masked_fill(barred, 0), slope)
    return out.masked_fill(barred, -torch.inf)


@operator("graphtheory::additive_attention")
def _attention(
    value: Tensor, sent: Tensor, received: Tensor | None, edge: Tensor | None,
    seed: Tensor | None, parts: Sequence[Tensor], slope: float, dropout: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    from graphtheory.ops.backends import _numba_sums

    return _numba_sums.attention(
        parts[0], parts[1], value, sent, received, edge, slope, dropout, seed
    )


@_attention.register_fake
def _(
    value: Tensor, sent: Tensor, received: Tensor | None, edge: Tensor | None,
    seed: Tensor | None, parts: Sequence[Tensor], slope: float, dropout: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    wide = torch.promote_types(value.dtype, torch.float32)
    out = value.new_empty(parts[0].size(0) - 1, value.size(1), value.size(2))
    return out, value.new_empty(parts[1].size(0), value.size(1), dtype=wide)


@operator("graphtheory::additive_attention_backward")
def _attention_grad(
    grad: Tensor, value: Tensor, sent: Tensor, received: Tensor | None, edge: Tensor | None,
    weights: Tensor, seed: Tensor | None, parts: Sequence[Tensor], slope: float, dropout: float,
) -> _Grads:  # fmt: skip
    from graphtheory.ops.backends import _numba_sums

    indptr, indices, t_indptr, receivers, perm = parts
    return _numba_sums.attention_backward(
        indptr, indices, t_indptr, receivers, perm, grad, value, sent, received, edge, weights,
        slope, dropout, seed,
    )  # fmt: skip


@_attention_grad.register_fake
def _(
    grad: Tensor, value: Tensor, sent: Tensor, received: Tensor | None, edge: Tensor | None,
    weights: Tensor, seed: Tensor | None, parts: Sequence[Tensor], slope: float, dropout: float,
) -> _Grads:  # fmt: skip
    rows = 0 if received is None else received.size(0)
    return (
        torch.empty_like(value),
        torch.empty_like(sent),
        sent.new_empty(rows, sent.size(1)),
        torch.empty_like(weights),
    )


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    value, sent, received, edge, seed, parts, *ctx.options = inputs
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)
    ctx.num_parts = len(parts)
    ctx.save_for_backward(value, sent, received, edge, output[1], seed, *parts)


def _backward(ctx: Any, grad: Tensor | None, _weights: Tensor | None) -> tuple[Any, ...]:
    nothing = (None, [None] * ctx.num_parts, None, None)
    if grad is None:
        return None, None, None, None, *nothing
    saved = ctx.saved_tensors  # once: to read them twice is an error under checkpointing
    *tensors, seed = saved[:6]
    of_value, of_sent, of_received, of_edge = _attention_grad(
        grad, *tensors, seed, list(saved[6:]), *ctx.options
    )
    received, edge = tensors[2:4]
    return (
        of_value,
        of_sent,
        None if received is None else of_received,
        None if edge is None else of_edge.to(edge.dtype),
        *nothing,
    )


_attention.register_autograd(_backward, setup_context=_save)
_attention_grad.register_autograd(
    refuses(
        "additive_attention: no second derivative on a CPU; edge_softmax and aggregate have one, "
        "and so have GAT layers with return_attention_weights=True"
    )
)


def additive_attention(
    value: Tensor,
    sent: Tensor,
    received: Tensor | None,
    neighborhood: Neighborhood,
    *,
    edge: Tensor | None = None,
    negative_slope: float = 0.2,
    dropout: float = 0.0,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""Softmax attention whose logits are leaky sums of one number of each end.

    .. math::
        o_{i,h} = \sum_{j \in T^i} v_{j,h}\,
        \operatorname{softmax}_{j \in T^i} \operatorname{leaky}\big(
        s_{j,h} + r_{i,h} + b_{ij,h} \big)

    An empty row gives zeros and passes no gradient. Differentiable once on a CPU, where nothing but
    weights has an edge axis.

    Args:
        value: Senders' vectors.
        sent: s, one number a sender and head.
        received: r, one number a receiver and head, or None.
        neighborhood: Who aggregates from whom.
        edge: b, one number an edge and head in the neighbourhood's order; -inf bars the edge.
        negative_slope: Of the leaky rectifier, below 0 (dimensionless).
        dropout: Probability with which a weight is dropped, in [0, 1).
        generator: Source of the dropout's seed; None takes torch's global one.

    Shapes:
        value [num_src, heads, head_dim], sent [num_src, heads], received [num_dst, heads],
        edge [num_edges, heads] -> [num_dst, heads, head_dim].

    Raises:
        TypeError: A tensor that is not floating.
        ValueError: Shapes that do not fit the neighbourhood; dropout outside [0, 1).

    Source:
        Velickovic et al. (2018), eq. (3) and (4).

    Example:
        >>> nb = Neighborhood.from_edge_index(torch.tensor([[0, 1], [1, 1]]), num_nodes=2)
        >>> value, flat = torch.tensor([[[1.0]], [[3.0]]]), torch.zeros(2, 1)
        >>> additive_attention(value, flat, flat, nb).flatten().tolist()
        [0.0, 2.0]
    """
    check_nodes("value", value, neighborhood, "senders")
    heads = value.size(1)
    _check("sent", sent, neighborhood.num_src, heads)
    if received is not None:
        _check("received", received, neighborhood.num_dst, heads)
    if edge is not None:
        check_edges("edge", edge, neighborhood, heads)
    if not 0 <= dropout < 1:
        raise ValueError(f"dropout: got {dropout}, expected a probability in [0, 1)")
    seed = draw_seed(generator, value.device) if dropout > 0 else None
    if value.device.type == "cpu":
        parts = kernels.structure(neighborhood, value, sent, received, edge)
        return _attention(
            value, sent, received, edge, seed, parts, float(negative_slope), float(dropout)
        )[0]
    logits = scores(sent, received, edge, neighborhood, negative_slope)
    weights = kernels.edge_softmax(logits, neighborhood)
    if seed is not None:
        weights = weights * dropout_factor(dropout, seed, weights)
    return kernels.aggregate(weights.to(value.dtype), value, neighborhood)


def _check(name: str, tensor: Tensor, nodes: int, heads: int) -> None:
    if not tensor.is_floating_point():
        raise TypeError(f"{name}: dtype {tensor.dtype}, expected a floating type")
    if tensor.shape != (nodes, heads):
        raise ValueError(f"{name}: shape {tuple(tensor.shape)}, expected [{nodes}, {heads}]")
