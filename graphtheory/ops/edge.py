"""The three primitives of aggregation over a neighborhood, differentiable any number of times."""

from __future__ import annotations

from typing import Literal, get_args

from torch import Tensor

from graphtheory.graph import Neighborhood
from graphtheory.ops.backend import choose
from graphtheory.ops.call import Call, check_edges, check_nodes

Reduction = Literal["sum", "mean", "max", "min"]


def edge_dot(
    query: Tensor, key: Tensor, neighborhood: Neighborhood, *, backend: str | None = None
) -> Tensor:
    r"""Dot product of target and source node on every edge, per head.

    .. math:: s_{e,h} = \langle q_{i,h}, k_{j,h} \rangle, \qquad e = (j \to i)

    Args:
        query: Vectors of the target nodes.
        key: Vectors of the source nodes.
        neighborhood: Who aggregates from whom.
        backend: A name of `ops.backend_names(ops.edge_dot)`; None takes the first that can.

    Shapes:
        query [num_dst, heads, head_dim], key [num_src, heads, head_dim] -> [num_edges, heads].

    Returns:
        Logits in the neighborhood's edge order; no tensor with an edge axis and a feature axis is
        built.

    Raises:
        TypeError: If a tensor is not floating, or dtypes differ.
        ValueError: If shapes do not fit the neighborhood.
        NotImplementedError: If `backend` cannot run this call; the message says why.

    Source:
        Li (2024), eq. (3.1): the inner product of W_K x_s and W_Q x_n.

    Example:
        >>> import torch
        >>> nb = Neighborhood.from_edge_index(torch.tensor([[0, 1], [1, 1]]), num_nodes=2)
        >>> x = torch.tensor([[[1.0, 2.0]], [[3.0, 4.0]]])
        >>> edge_dot(x, x, nb).flatten().tolist()
        [11.0, 25.0]
    """
    check_nodes("query", query, neighborhood, "targets")
    check_nodes("key", key, neighborhood, "sources")
    if query.shape[1:] != key.shape[1:]:
        raise ValueError(
            f"key: shape {tuple(key.shape)}, "
            f"expected heads and head_dim of query {tuple(query.shape)}"
        )
    if query.dtype != key.dtype:
        raise TypeError(f"key: dtype {key.dtype}, expected {query.dtype} as query has")
    call = Call("edge_dot", neighborhood, (query, key))
    return choose(call, backend).run(call)


def edge_softmax(
    logits: Tensor, neighborhood: Neighborhood, *, backend: str | None = None
) -> Tensor:
    r"""Normalize edge logits over the source nodes of each target node.

    .. math:: w_e = \exp(s_e) \Big/ \sum_{e' \in T^i} \exp(s_{e'}), \qquad e \in T^i

    An empty row has no weights. A row in which every logit is -inf gets zeros, with zero gradient.

    Args:
        logits: Scores in the neighborhood's edge order (dimensionless).
        neighborhood: Row i lists T^i.
        backend: A name of `ops.backend_names(ops.edge_softmax)`; None takes the first that can.

    Shapes:
        [num_edges, heads] -> [num_edges, heads].

    Raises:
        TypeError: If logits are not floating.
        ValueError: If there is not one row per edge.
        NotImplementedError: If `backend` cannot run this call; the message says why.

    Source:
        Li (2024), eq. (3.1): softmax_n.

    Example:
        >>> import torch
        >>> nb = Neighborhood.from_edge_index(torch.tensor([[0, 1, 1], [0, 0, 1]]), num_nodes=3)
        >>> edge_softmax(torch.zeros(3, 1), nb).flatten().tolist()
        [0.5, 0.5, 1.0]
    """
    check_edges("logits", logits, neighborhood)
    call = Call("edge_softmax", neighborhood, (logits,))
    return choose(call, backend).run(call)


def aggregate(
    weights: Tensor | None,
    value: Tensor,
    neighborhood: Neighborhood,
    reduce: Reduction = "sum",
    *,
    backend: str | None = None,
) -> Tensor:
    r"""Sum, mean, largest or smallest of the weighted values of the source nodes, per target node.

    .. math:: o_{i,h} = \operatorname{reduce}_{e = (j \to i)} w_{e,h}\, v_{j,h}

    The mean divides the sum by the number of edges of the row, not by their weights. The largest
    and the smallest are taken feature by feature; if several edges of a row have it, they share the
    gradient equally, as in torch's ``segment_reduce``; its ``scatter_reduce``, which PyG uses,
    counts one more where the result is 0. An empty row gives zeros and passes no gradient. The
    output has the dtype of `value`. No tensor with an edge axis and a feature axis is built on a
    CPU, nor for sums and means on a GPU with Triton.

    Args:
        weights: One value per edge and head; None takes ``neighborhood.weight``, or ones without
            it.
        value: Vectors of the source nodes.
        neighborhood: Who aggregates from whom.
        reduce: "sum", "mean", "max" or "min".
        backend: A name of `ops.backend_names(ops.aggregate)`; None takes the first that can.

    Shapes:
        weights [num_edges, heads], value [num_src, heads, head_dim] -> [num_dst, heads, head_dim].

    Raises:
        TypeError: If a tensor is not floating.
        ValueError: If shapes do not fit; if `reduce` has another value.
        NotImplementedError: If `backend` cannot run this call; the message says why.

    Example:
        >>> import torch
        >>> nb = Neighborhood.from_edge_index(torch.tensor([[0, 1], [1, 1]]), num_nodes=2)
        >>> value = torch.tensor([[[1.0]], [[2.0]]])
        >>> [aggregate(None, value, nb, reduce=r)[1].item() for r in ("sum", "mean", "max", "min")]
        [3.0, 1.5, 2.0, 1.0]
    """
    check_nodes("value", value, neighborhood, "sources")
    if reduce not in get_args(Reduction):
        raise ValueError(f"reduce: got {reduce!r}, expected one of {get_args(Reduction)}")
    if weights is None:
        one = neighborhood.weight
        if one is None:
            one = value.new_ones(neighborhood.num_edges)
        weights = one.to(value.dtype)[:, None].expand(-1, value.size(1))
    check_edges("weights", weights, neighborhood, value.size(1))
    options = () if reduce == "sum" else (reduce,)
    call = Call("aggregate", neighborhood, (weights, value), options)
    return choose(call, backend).run(call)


__all__ = ["aggregate", "edge_dot", "edge_softmax"]
