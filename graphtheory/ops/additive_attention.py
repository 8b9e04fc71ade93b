"""GAT attention as one torch op with one backward op."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from graphtheory.graph import Neighborhood
from graphtheory.ops import reference
from graphtheory.ops.backend import BACKENDS, Backend, choose
from graphtheory.ops.call import Call, check_device, check_edges, check_nodes
from graphtheory.ops.dropout import draw_seed, dropout_factor
from graphtheory.ops.fused import read_again, room_to_save
from graphtheory.ops.fused_op import FusedOp
from graphtheory.ops.kernels import neighborhood_of, structure
from graphtheory.ops.plan import kind_of, known, remember


def _fake(a: Any) -> tuple[Tensor, Tensor]:
    out = a.value.new_empty(a.parts[0].size(0) - 1, *a.value.shape[1:])
    return out, room_to_save(out, a.parts[1].size(0), a.backend, additive=True)


def _gradients(kernels: Any, a: Any, grads: Any, kept: Any, needs: Any) -> Any:
    saved, out = kept
    again = {} if out is None else {"out": out}
    return kernels.additive_attention_backward(
        *a.parts, *grads, *a[:4], saved, a.slope, a.dropout, a.seed, **again
    )


def _definition(a: Any) -> Tensor:
    nb = neighborhood_of(a.parts, a.value.size(0))
    call = Call("additive_attention", nb, a[:4], (a.seed, a.slope, a.dropout))
    return _composed(call, BACKENDS[a.backend])


_attention = FusedOp(
    "additive_attention",
    "value:MHD src_score:MH dst_score:NH? edge:EH? seed:any? parts:parts slope:float dropout:float",
    "NHD saved!",
    run=lambda kernels, a: kernels.additive_attention(
        *a.parts[:2], *a[:4], a.slope, a.dropout, a.seed
    ),
    gradients=_gradients,
    definition=_definition,
    kept="saved NHD?",
    keep=lambda a, outputs: (outputs[1], read_again(outputs[0], outputs[1], a.backend)),
    fake=_fake,
    strided=("value",),
)


def run(call: Call, backend: Backend) -> Tensor:
    """Run a checked call on a backend."""
    if not backend.fuses_additive_attention:
        return _composed(call, backend)
    seed, slope, dropout = call.options
    parts = structure(call, backend)
    return _attention(*call.tensors, seed, parts, slope, dropout, backend.name)[0]


def _composed(call: Call, backend: Backend) -> Tensor:
    nb, (value, src_score, dst_score, edge), (seed, slope, dropout) = call[1:]
    assert value is not None and src_score is not None
    logits = reference.additive_logits(src_score, dst_score, edge, nb, slope)
    weights = backend.run(Call("edge_softmax", nb, (logits,)))
    if seed is not None:
        weights = weights * dropout_factor(dropout, seed, weights)
    return backend.run(Call("aggregate", nb, (weights.to(value.dtype), value)))


def additive_attention(
    value: Tensor,
    src_score: Tensor,
    dst_score: Tensor | None,
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
        src_score: s, one value per source node and head.
        dst_score: r, one value per target node and head, or None.
        neighborhood: Who aggregates from whom.
        edge: b, one value per edge and head in the neighborhood's order; -inf excludes the edge.
        negative_slope: Slope of the leaky ReLU below 0 (dimensionless).
        dropout: Probability of dropping a weight, in [0, 1).
        generator: Source of the dropout's seed; None takes torch's global one.
        backend: A name of `ops.backend_names(ops.additive_attention)`; None takes the first that
            can run the call.

    Shapes:
        value [num_src, heads, head_dim], src_score [num_src, heads], dst_score [num_dst, heads],
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
    kind = kind_of(
        "additive_attention", neighborhood, value, src_score, dst_score, edge, negative_slope,
        dropout, backend,
    )  # fmt: skip
    chosen = known(neighborhood, kind)
    if chosen is None:
        check_nodes("value", value, neighborhood, "sources")
        heads = value.size(1)
        _check("src_score", src_score, neighborhood, neighborhood.num_src, heads)
        if dst_score is not None:
            _check("dst_score", dst_score, neighborhood, neighborhood.num_dst, heads)
        if edge is not None:
            check_edges("edge", edge, neighborhood, heads)
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout: got {dropout}, expected a probability in [0, 1)")
    seed = draw_seed(generator, value.device) if dropout > 0 else None
    tensors = (value, src_score, dst_score, edge)
    options = (seed, float(negative_slope), float(dropout))
    call = Call("additive_attention", neighborhood, tensors, options)
    if chosen is None:
        chosen = choose(call, backend)
        remember(neighborhood, kind, chosen)
    return chosen.run(call)


def _check(name: str, tensor: Tensor, nb: Neighborhood, nodes: int, heads: int) -> None:
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name}: got {type(tensor).__name__}, expected a tensor")
    if not tensor.is_floating_point():
        raise TypeError(f"{name}: dtype {tensor.dtype}, expected a floating type")
    if tensor.shape != (nodes, heads):
        raise ValueError(f"{name}: shape {tuple(tensor.shape)}, expected [{nodes}, {heads}]")
    check_device(name, tensor, nb)
