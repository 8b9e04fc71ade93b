"""GAT attention as one torch op with one backward op."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from graphtheory.graph import Neighborhood
from graphtheory.ops import reference
from graphtheory.ops.backend import BACKENDS, Backend
from graphtheory.ops.call import Call, check_device, check_edges, check_nodes
from graphtheory.ops.dispatch import choose
from graphtheory.ops.dropout import draw_seed, dropout_factor
from graphtheory.ops.fused import read_again, room_to_save
from graphtheory.ops.kernels import neighborhood_of, structure
from graphtheory.ops.operator import operator
from graphtheory.ops.second import second_gradients

_Grads = tuple[Tensor, Tensor, Tensor, Tensor]


@operator("graphtheory::additive_attention", "MHD MH NH EH . parts . . .")
def _attention(
    value: Tensor, sent: Tensor, received: Tensor | None, edge: Tensor | None,
    seed: Tensor | None, parts: Sequence[Tensor], slope: float, dropout: float,
    backend: str,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    return BACKENDS[backend].kernels.additive_attention(
        parts[0], parts[1], value, sent, received, edge, slope, dropout, seed
    )


@_attention.register_fake
def _(value: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    parts, backend = rest[4], rest[-1]
    out = value.new_empty(parts[0].size(0) - 1, value.size(1), value.size(2))
    return out, room_to_save(out, parts[1].size(0), backend, additive=True)


@operator("graphtheory::additive_attention_backward", "NHD MHD MH NH EH saved NHD . parts . . .")
def _attention_grad(
    grad: Tensor, value: Tensor, sent: Tensor, received: Tensor | None, edge: Tensor | None,
    saved: Tensor, out: Tensor | None, seed: Tensor | None, parts: Sequence[Tensor], slope: float,
    dropout: float, backend: str,
) -> _Grads:  # fmt: skip
    again = {} if out is None else {"out": out}
    return BACKENDS[backend].kernels.additive_attention_backward(
        *parts, grad, value, sent, received, edge, saved, slope, dropout, seed, **again
    )


@_attention_grad.register_fake
def _(grad: Tensor, value: Tensor, sent: Tensor, received: Tensor | None, *rest: Any) -> _Grads:
    saved, parts = rest[1], rest[4]
    rows = 0 if received is None else received.size(0)
    return (
        torch.empty_like(value),
        sent.new_empty(sent.shape),  # in the order of memory that the kernels leave
        sent.new_empty(rows, sent.size(1)),
        saved.new_empty(parts[1].size(0), sent.size(1)),
    )


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    value, sent, received, edge, seed, parts, *ctx.options = inputs
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)
    ctx.num_parts = len(parts)
    out = read_again(*output, ctx.options[-1])
    ctx.save_for_backward(value, sent, received, edge, output[1], out, seed, *parts)


def _backward(ctx: Any, grad: Tensor | None, _saved: Tensor | None) -> tuple[Any, ...]:
    nothing = (None, [None] * ctx.num_parts, None, None, None)
    if grad is None:
        return None, None, None, None, *nothing
    saved = ctx.saved_tensors  # once: to read them twice is an error under checkpointing
    tensors, parts = saved[:7], list(saved[7:])
    of_value, of_sent, of_received, of_edge = _attention_grad(grad, *tensors, parts, *ctx.options)
    received, edge = tensors[2:4]
    return (
        of_value,
        of_sent,
        None if received is None else of_received,
        None if edge is None else of_edge.to(edge.dtype),
        *nothing,
    )


def _save_grad(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *tensors, _, _, seed, parts, slope, dropout, backend = inputs
    ctx.set_materialize_grads(False)
    ctx.options, ctx.num_parts = (slope, dropout, backend), len(parts)
    ctx.save_for_backward(*tensors, seed, *parts)


def _backward_of_grad(ctx: Any, *upstream: Tensor | None) -> tuple[Any, ...]:
    grad, *tensors, seed = ctx.saved_tensors[:6]
    slope, dropout, backend = ctx.options
    nb = neighborhood_of(ctx.saved_tensors[6:], tensors[0].size(0))

    def definition(*given: Any) -> Tensor:
        call = Call("additive_attention", nb, given, (seed, slope, dropout))
        return _composed(call, BACKENDS[backend])

    of_grad, found = second_gradients(
        definition, tensors, (grad,), upstream, ctx.needs_input_grad[:5]
    )
    return *of_grad, *found, None, None, None, [None] * ctx.num_parts, None, None, None


_attention.register_autograd(_backward, setup_context=_save)
_attention_grad.register_autograd(_backward_of_grad, setup_context=_save_grad)


def run(call: Call, backend: Backend) -> Tensor:
    """Run a checked call on a backend."""
    if not backend.fuses_additive_attention:
        return _composed(call, backend)
    seed, slope, dropout = call.options
    parts = structure(call, backend)
    return _attention(*call.tensors, seed, parts, slope, dropout, backend.name)[0]


def _composed(call: Call, backend: Backend) -> Tensor:
    nb, (value, sent, received, edge), (seed, slope, dropout) = call[1:]
    assert value is not None and sent is not None
    logits = reference.additive_logits(sent, received, edge, nb, slope)
    weights = backend.run(Call("edge_softmax", nb, (logits,)))
    if seed is not None:
        weights = weights * dropout_factor(dropout, seed, weights)
    return backend.run(Call("aggregate", nb, (weights.to(value.dtype), value)))


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
    backend: str | None = None,
) -> Tensor:
    r"""GAT attention: softmax over LeakyReLU of source and target scores.

    .. math::
        o_{i,h} = \sum_{j \in T^i} v_{j,h}\,
        \operatorname{softmax}_{j \in T^i} \operatorname{leaky}\big(
        s_{j,h} + r_{i,h} + b_{ij,h} \big)

    An empty row gives zeros and passes no gradient. Compiled backends, on a CPU and on a GPU, make
    no tensor with both an edge and a feature axis.

    Args:
        value: Vectors of the source nodes.
        sent: s, one value per source node and head.
        received: r, one value per target node and head, or None.
        neighborhood: Who aggregates from whom.
        edge: b, one value per edge and head in the neighborhood's order; -inf excludes the edge.
        negative_slope: Slope of the leaky ReLU below 0 (dimensionless).
        dropout: Probability of dropping a weight, in [0, 1).
        generator: Source of the dropout's seed; None takes torch's global one.
        backend: A name of `ops.backend_names(ops.additive_attention)`; None takes the first that
            can run the call.

    Shapes:
        value [num_src, heads, head_dim], sent [num_src, heads], received [num_dst, heads],
        edge [num_edges, heads] -> [num_dst, heads, head_dim].

    Raises:
        TypeError: If a tensor is not floating.
        ValueError: If shapes do not fit the neighborhood; dropout outside [0, 1).
        NotImplementedError: If `backend` cannot run this call; the message says why.

    Source:
        Velickovic et al. (2018), eq. (3) and (4).

    Example:
        >>> nb = Neighborhood.from_edge_index(torch.tensor([[0, 1], [1, 1]]), num_nodes=2)
        >>> value, flat = torch.tensor([[[1.0]], [[3.0]]]), torch.zeros(2, 1)
        >>> additive_attention(value, flat, flat, nb).flatten().tolist()
        [0.0, 2.0]
    """
    check_nodes("value", value, neighborhood, "sources")
    heads = value.size(1)
    _check("sent", sent, neighborhood, neighborhood.num_src, heads)
    if received is not None:
        _check("received", received, neighborhood, neighborhood.num_dst, heads)
    if edge is not None:
        check_edges("edge", edge, neighborhood, heads)
    if not 0 <= dropout < 1:
        raise ValueError(f"dropout: got {dropout}, expected a probability in [0, 1)")
    seed = draw_seed(generator, value.device) if dropout > 0 else None
    tensors, options = (value, sent, received, edge), (seed, float(negative_slope), float(dropout))
    call = Call("additive_attention", neighborhood, tensors, options)
    return choose(call, backend).run(call)


def _check(name: str, tensor: Tensor, nb: Neighborhood, nodes: int, heads: int) -> None:
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name}: got {type(tensor).__name__}, expected a tensor")
    if not tensor.is_floating_point():
        raise TypeError(f"{name}: dtype {tensor.dtype}, expected a floating type")
    if tensor.shape != (nodes, heads):
        raise ValueError(f"{name}: shape {tuple(tensor.shape)}, expected [{nodes}, {heads}]")
    check_device(name, tensor, nb)
