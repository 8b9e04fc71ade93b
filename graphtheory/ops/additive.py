"""Attention by additive scores: that of GAT, fused, and the score of GATv2."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from graphtheory.graph import Neighborhood
from graphtheory.ops import reference
from graphtheory.ops.arguments import check_dropout
from graphtheory.ops.backend import BACKENDS, Backend
from graphtheory.ops.bounds import check_arguments
from graphtheory.ops.call import Call, known, run, structure
from graphtheory.ops.dropout import draw_seed, dropout_factor
from graphtheory.ops.fused import saved_first, saved_like
from graphtheory.ops.kernels import has_kernel, neighborhood_of
from graphtheory.ops.operator import FusedOp


def _fake(a: Any) -> tuple[Tensor, Tensor]:
    out = a.value.new_empty(a.parts[0].size(0) - 1, *a.value.shape[1:])
    return out, saved_like(out, a.parts[1].size(0), a.backend, "additive_attention")


def _gradients(kernels: Any, a: Any, grads: Any, kept: Any, needs: Any) -> Any:
    saved, out = kept
    again = {} if out is None else {"out": out}
    return kernels.additive_attention_backward(
        *a.parts, *grads, *a[:4], saved, a.slope, a.dropout, a.seed, **again
    )


def _attention_definition(a: Any) -> Tensor:
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
    definition=_attention_definition,
    kept="saved NHD?",
    keep=saved_first,
    fake=_fake,
)


def run_attention(call: Call, backend: Backend) -> Tensor:
    """Run a checked call on a backend."""
    if not has_kernel(backend.name, "additive_attention"):
        return _composed(call, backend)
    seed, slope, dropout = call.options
    parts = structure(call, backend)
    found = _attention(*call.tensors, seed, parts, slope, dropout, backend.name, plan=call.plan)
    return found[0]


def _composed(call: Call, backend: Backend) -> Tensor:
    nb, (value, src_score, dst_score, edge) = call.neighborhood, call.tensors
    seed, slope, dropout = call.options
    assert value is not None and src_score is not None
    logits = reference.additive_logits(src_score, dst_score, edge, nb, slope)
    weights = backend.run(Call("edge_softmax", nb, (logits,)))
    if seed is not None:
        weights = weights * dropout_factor(dropout, seed, weights)
    return backend.run(Call("aggregate", nb, (weights.to(value.dtype), value), ("sum",)))


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
    tensors = (value, src_score, dst_score, edge)
    given = (*tensors, negative_slope, dropout, backend)
    kind, plan = known("additive_attention", neighborhood, *given)
    if plan is None:
        check_arguments(
            neighborhood, "MHD MH NH? EH?",
            value=value, src_score=src_score, dst_score=dst_score, edge=edge,
        )  # fmt: skip
        check_dropout(dropout)
    seed = draw_seed(generator, value.device) if dropout > 0 else None
    options = (seed, float(negative_slope), float(dropout))
    call = Call("additive_attention", neighborhood, tensors, options, plan)
    return run(call, backend, kind)


def _score_definition(a: Any) -> Tensor:
    nb = neighborhood_of(a.parts, a.source.size(0))
    return reference.additive_score(a.source, a.target, a.att, a.features, a.matrix, a.slope, nb)


score = FusedOp(
    "additive_score",
    "source:MHD target:NHD att:HD features:EK matrix:HKD slope:float parts:parts",
    "EH",
    run=lambda kernels, a: kernels.additive_score(*a.parts[:2], *a[:6]),
    gradients=lambda kernels, a, grads, kept, needs: kernels.additive_score_backward(
        *a.parts, *grads, *a[:6], needs[3]
    ),
    definition=_score_definition,
)


def additive_score(
    source: Tensor,
    target: Tensor,
    att: Tensor,
    neighborhood: Neighborhood,
    *,
    negative_slope: float = 0.2,
    edge_features: Tensor | None = None,
    edge_matrix: Tensor | None = None,
    backend: str | None = None,
) -> Tensor:
    r"""Score of every edge: a vector times the LeakyReLU of source, target and edge features.

    .. math:: s_{e,h} = \Big\langle a_h,\, \operatorname{leaky}\big(
        u_{j,h} + v_{i,h} + M_h f_e \big) \Big\rangle, \qquad e = (j \to i)

    At 0 the slope is `negative_slope`. On a CPU, and on a GPU with Triton, no tensor has both an
    edge axis and a feature axis; torch's own ops compute one in parts, second derivatives as a
    whole.

    Args:
        source: u, one vector per source node and head.
        target: v, one vector per target node and head.
        att: a, one vector per head.
        neighborhood: Who aggregates from whom.
        negative_slope: Slope of the leaky ReLU below 0 (dimensionless).
        edge_features: f, one vector per edge in the neighborhood's order; with `edge_matrix`.
        edge_matrix: M, from features of an edge to those of a head.
        backend: A name of `ops.backend_names(ops.additive_score)`; None takes the first that can.

    Shapes:
        source [num_src, heads, head_dim], target [num_dst, heads, head_dim], att [heads, head_dim],
        edge_features [num_edges, edge_dim], edge_matrix [heads, edge_dim, head_dim]
        -> [num_edges, heads].

    Raises:
        TypeError: If a tensor is not floating.
        ValueError: If shapes do not fit; one of `edge_features` and `edge_matrix` alone.
        NotImplementedError: If `backend` cannot run this call; the message says why.

    Source:
        Brody, Alon and Yahav (2022), eq. (7). Differs: features of edges.

    Example:
        >>> nb = Neighborhood.from_edge_index(torch.tensor([[0, 1], [1, 1]]), num_nodes=2)
        >>> x = torch.tensor([[[1.0]], [[-3.0]]])
        >>> additive_score(x, x, torch.ones(1, 1), nb, negative_slope=0.5).flatten().tolist()
        [-1.0, -3.0]
    """
    if (edge_features is None) != (edge_matrix is None):
        raise ValueError("edge_features: expected together with edge_matrix, got one alone")
    tensors = (source, target, att, edge_features, edge_matrix)
    kind, plan = known("additive_score", neighborhood, *tensors, negative_slope, backend)
    if plan is None:
        check_arguments(
            neighborhood, "MHD NHD HD HKD? EK?",
            source=source, target=target, att=att, edge_matrix=edge_matrix,
            edge_features=edge_features,
        )  # fmt: skip
    if edge_features is None or edge_matrix is None:
        edge_features = source.new_empty(neighborhood.num_edges, 0)
        edge_matrix = source.new_empty(source.size(1), 0, source.size(2))
    tensors = (source, target, att, edge_features, edge_matrix)
    call = Call("additive_score", neighborhood, tensors, (float(negative_slope),), plan)
    return run(call, backend, kind)
