"""The additive score of GATv2."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from graphtheory.graph import Neighborhood
from graphtheory.ops import reference
from graphtheory.ops.backend import Backend, choose
from graphtheory.ops.call import Call, check_nodes, check_tensor, edge_dim_of
from graphtheory.ops.fused_op import FusedOp
from graphtheory.ops.kernels import neighborhood_of, structure


def _definition(a: Any) -> Tensor:
    nb = neighborhood_of(a.parts, a.source.size(0))
    return reference.additive_score(a.source, a.target, a.att, a.features, a.matrix, a.slope, nb)


_score = FusedOp(
    "additive_score",
    "source:MHD target:NHD att:HD features:EK matrix:HKD slope:float parts:parts",
    "EH",
    run=lambda kernels, a: kernels.additive_score(*a.parts[:2], *a[:6]),
    gradients=lambda kernels, a, grads, kept, needs: kernels.additive_score_backward(
        *a.parts, *grads, *a[:6], needs[3]
    ),
    definition=_definition,
)


def run(call: Call, backend: Backend) -> Tensor:
    """Scores [E, H] by the kernels of a backend; see `additive_score`."""
    return _score(*call.tensors, *call.options, structure(call, backend), backend.name)


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
        >>> import torch
        >>> nb = Neighborhood.from_edge_index(torch.tensor([[0, 1], [1, 1]]), num_nodes=2)
        >>> x = torch.tensor([[[1.0]], [[-3.0]]])
        >>> additive_score(x, x, torch.ones(1, 1), nb, negative_slope=0.5).flatten().tolist()
        [-1.0, -3.0]
    """
    check_nodes("source", source, neighborhood, "sources")
    check_nodes("target", target, neighborhood, "targets")
    heads, dim = source.shape[1:]
    if target.shape[1:] != source.shape[1:]:
        raise ValueError(
            f"target: shape {tuple(target.shape)}, expected the heads and head_dim of source "
            f"{tuple(source.shape)}"
        )
    if (edge_features is None) != (edge_matrix is None):
        raise ValueError("edge_features: expected together with edge_matrix, got one alone")
    if edge_features is None or edge_matrix is None:
        edge_features = source.new_empty(neighborhood.num_edges, 0)
        edge_matrix = source.new_empty(heads, 0, dim)
    edge_dim = edge_dim_of(edge_matrix)
    check_tensor("att", att, (heads, dim), neighborhood)
    check_tensor("edge_matrix", edge_matrix, (heads, edge_dim, dim), neighborhood)
    check_tensor("edge_features", edge_features, (neighborhood.num_edges, edge_dim), neighborhood)
    tensors = (source, target, att, edge_features, edge_matrix)
    call = Call("additive_score", neighborhood, tensors, (float(negative_slope),))
    return choose(call, backend).run(call)
