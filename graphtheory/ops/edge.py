"""Aggregation over a neighborhood, differentiable any number of times."""

from __future__ import annotations

from typing import Any, Literal, get_args

import torch
from torch import Tensor

from graphtheory.graph import Neighborhood
from graphtheory.ops import reference
from graphtheory.ops.backend import Backend
from graphtheory.ops.bounds import check_arguments
from graphtheory.ops.call import Call, known, run, structure
from graphtheory.ops.kernels import has_kernel, neighborhood_of
from graphtheory.ops.operator import FusedOp
from graphtheory.ops.recorded import made

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
        >>> nb = Neighborhood.from_edge_index(torch.tensor([[0, 1], [1, 1]]), num_nodes=2)
        >>> x = torch.tensor([[[1.0, 2.0]], [[3.0, 4.0]]])
        >>> edge_dot(x, x, nb).flatten().tolist()
        [11.0, 25.0]
    """
    kind, plan = known("edge_dot", neighborhood, query, key, backend)
    if plan is None:
        check_arguments(neighborhood, "NHD MHD=", query=query, key=key)
    return run(Call("edge_dot", neighborhood, (query, key), plan=plan), backend, kind)


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
        >>> nb = Neighborhood.from_edge_index(torch.tensor([[0, 1, 1], [0, 0, 1]]), num_nodes=3)
        >>> edge_softmax(torch.zeros(3, 1), nb).flatten().tolist()
        [0.5, 0.5, 1.0]
    """
    kind, plan = known("edge_softmax", neighborhood, logits, backend)
    if plan is None:
        check_arguments(neighborhood, "EH", logits=logits)
    return run(Call("edge_softmax", neighborhood, (logits,), plan=plan), backend, kind)


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
    output has the dtype of `value`, also with weights of another, such as float64 beside float32.
    Neither a CPU, nor a GPU with Triton for sums and means, builds values by edge and feature.

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
        >>> nb = Neighborhood.from_edge_index(torch.tensor([[0, 1], [1, 1]]), num_nodes=2)
        >>> value = torch.tensor([[[1.0]], [[2.0]]])
        >>> [aggregate(None, value, nb, reduce=r)[1].item() for r in ("sum", "mean", "max", "min")]
        [3.0, 1.5, 2.0, 1.0]
    """
    kind = plan = None
    if weights is None and getattr(neighborhood, "weight", None) is None:
        kind, plan = known("aggregate", neighborhood, None, value, reduce, backend)
    if weights is None and (plan is None or plan.recorded is None):
        check_arguments(neighborhood, "MHD", value=value)
        one = neighborhood.weight
        if one is None:
            one = value.new_ones(neighborhood.num_edges)
        weights = one.to(value.dtype)[:, None].expand(-1, value.size(1))
    if kind is None:
        kind, plan = known("aggregate", neighborhood, weights, value, reduce, backend)
    if plan is None:
        check_arguments(neighborhood, "MHD EH", value=value, weights=weights)
        if reduce not in get_args(Reduction):
            raise ValueError(f"reduce: got {reduce!r}, expected one of {get_args(Reduction)}")
    return run(Call("aggregate", neighborhood, (weights, value), (reduce,), plan), backend, kind)


_WORD = 16  # signs in an entry of what kernels save, `vector.llvm.FULL` of those on a CPU


def _definition(a: Any, matrix: Tensor | None = None) -> Tensor:
    perm = a.order if len(a.order) else None
    nb = Neighborhood(a.parts[0], a.parts[1], a.value.size(0), perm=perm, validate=False)
    return reference.relu_sum(a.value, a.features, nb, perm is not None, matrix)


def _gradients(kernels: Any, a: Any, grads: Any, kept: Any, needs: Any) -> Any:
    indptr, indices, t_indptr, _, perm = a.parts
    rows = perm  # of the features, by source
    if len(a.order):
        rows = made(lambda order: order.index_select(0, perm), a.order)
    return kernels.relu_sum_backward(
        indptr, indices, a.order, t_indptr, rows, *grads, a.value, a.features
    )


relu_sums = FusedOp(
    "relu_sum",
    "value:MHD features:FHD order:order parts:parts",
    "NHD",
    run=lambda kernels, a: kernels.relu_sum(*a.parts[:2], a.order, a.value, a.features),
    gradients=_gradients,
    definition=_definition,
)


def _words(a: Any) -> tuple[int, int]:
    """Shape of the signs that the forward pass keeps, an entry for some features of an edge."""
    return a.parts[1].size(0), -(-a.value.size(1) * a.value.size(2) // _WORD)


def _fake_of_mapped(a: Any) -> tuple[Tensor, Tensor]:
    out = a.value.new_empty(a.parts[0].size(0) - 1, *a.value.shape[1:])
    return out, a.value.new_empty(_words(a), dtype=torch.int16)


def _gradients_of_mapped(kernels: Any, a: Any, grads: Any, kept: Any, needs: Any) -> Any:
    (signs,) = kept
    if signs.shape != _words(a):
        raise ValueError(f"signs: shape {tuple(signs.shape)}, not of the forward pass")
    return kernels.mapped_relu_sum_backward(
        *a.parts, a.order, *grads, a.features, a.matrix, signs, needs[1]
    )


_mapped_sum = FusedOp(
    "mapped_relu_sum",
    "value:MHD features:FK matrix:HKD order:order parts:parts",
    "NHD any!",
    run=lambda kernels, a: kernels.mapped_relu_sum(
        *a.parts[:2], a.order, a.value, a.features, a.matrix
    ),
    gradients=_gradients_of_mapped,
    definition=lambda a: _definition(a, a.matrix),
    fake=_fake_of_mapped,
)


def run_relu_sum(call: Call, backend: Backend) -> Tensor:
    """Sums [num_dst, H, D] by the kernels of a backend; see `relu_sum`.

    Features of edge e are row order[e], where there is an order. Of backends with kernels for a
    matrix, its product with the features is never written.
    """
    nb, (given_order,) = call.neighborhood, call.options
    value, features, matrix = call.tensors
    assert value is not None and features is not None
    order, parts = nb.perm if given_order else None, structure(call, backend)
    if order is None:
        order = nb.indptr.new_empty(0)
    if matrix is not None and matrix.numel() and has_kernel(backend.name, "mapped_relu_sum"):
        given = (value, features, matrix, order, parts, backend.name)
        return _mapped_sum(*given, plan=call.plan)[0]
    if matrix is not None:
        product = features @ matrix.transpose(0, 1).flatten(1)
        features = product.view(len(features), matrix.size(0), matrix.size(2))
    return relu_sums(value, features, order, parts, backend.name, plan=call.plan)


def relu_sum(
    value: Tensor,
    edge_features: Tensor,
    neighborhood: Neighborhood,
    *,
    edge_matrix: Tensor | None = None,
    given_order: bool = False,
    backend: str | None = None,
) -> Tensor:
    r"""Sum over the source nodes of ReLU(source + edge), per target node.

    .. math:: o_{i,h} = \sum_{e = (j \to i)} \operatorname{ReLU}(v_{j,h} + f_{e,h}), \qquad
        f_{e,h} = M_h g_e \text{ with a matrix}

    An empty row gives zeros. On a CPU no tensor with an edge axis and a feature axis is built but
    the gradient of `edge_features`; with Triton and a matrix, the product is built as well. Second
    derivatives build such tensors on every device.

    Args:
        value: v, vectors of the source nodes.
        edge_features: f, or g with a matrix, one vector per edge in the neighborhood's order, of
            the dtype of `value`.
        neighborhood: Who aggregates from whom.
        edge_matrix: M, from features of an edge to those of a head, of the dtype of `value`.
        given_order: `edge_features` are in the order of the edge list that the neighborhood was
            made of, as its `perm` has it, and are not sorted first.
        backend: A name of `ops.backend_names(ops.relu_sum)`; None takes the first that can.

    Shapes:
        value [num_src, heads, head_dim], edge_features [num_edges, heads, head_dim], with
        edge_matrix [heads, edge_dim, head_dim] edge_features [num_edges, edge_dim]
        -> [num_dst, heads, head_dim].

    Raises:
        TypeError: If a tensor is not floating, or dtypes differ.
        ValueError: If shapes do not fit; `given_order` of a neighborhood without `perm`.
        NotImplementedError: If `backend` cannot run this call; the message says why.

    Source:
        Hu et al. (2020), Strategies for pre-training GNNs, as `torch_geometric.nn.GINEConv`.

    Example:
        >>> nb = Neighborhood.from_edge_index(torch.tensor([[0, 1], [1, 1]]), num_nodes=2)
        >>> value = torch.tensor([[[1.0]], [[-3.0]]])
        >>> relu_sum(value, torch.ones(2, 1, 1), nb).flatten().tolist()
        [0.0, 2.0]
    """
    given = (value, edge_features, edge_matrix)
    kind = plan = None
    if isinstance(value, Tensor) and not value.is_cpu:  # there, `perm` is checked in every call
        kind, plan = known("relu_sum", neighborhood, *given, given_order, backend)
    if plan is None:
        words = "MHD HKD? EHD=" if edge_matrix is None else "MHD HKD= EK="
        of_edges = {"edge_matrix": edge_matrix, "edge_features": edge_features}
        check_arguments(neighborhood, words, value=value, **of_edges)
        if given_order and neighborhood.perm is None:
            raise ValueError("given_order: got True, but the neighborhood has no perm")
    return run(Call("relu_sum", neighborhood, given, (given_order,), plan), backend, kind)


def _gated_gradients(kernels: Any, a: Any, grads: Any, kept: Any, needs: Any) -> Any:
    """By target, then by source: each pass is the forward pass with other ends."""
    indptr, indices, *by_source = a.parts
    of_value = of_source = of_target = of_edge = None
    if needs[2] or needs[3]:
        _, of_target, of_edge = kernels.gated_sum(
            indptr, indices, None, (a.target, a.source, a.edge), a.value, *grads,
            sums=False, of_edge=needs[3],
        )  # fmt: skip
    if needs[0] or needs[1]:
        gates, own = (a.source, a.target, a.edge), a.value if needs[1] else None
        of_value, of_source, _ = kernels.gated_sum(*by_source, gates, *grads, own, sums=needs[0])
    return of_value, of_source, of_target, of_edge


gated = FusedOp(
    "gated_sum",
    "value:MHD source:MD? target:ND? edge:ED? parts:parts",
    "NHD",
    run=lambda kernels, a: kernels.gated_sum(
        *a.parts[:2], None, (a.target, a.source, a.edge), a.value
    )[0],
    gradients=_gated_gradients,
    definition=lambda a: reference.gated_sum(
        a.value, a.source, a.target, a.edge, neighborhood_of(a.parts, a.value.size(0))
    ),
)


def gated_sum(
    value: Tensor,
    neighborhood: Neighborhood,
    *,
    source: Tensor | None = None,
    target: Tensor | None = None,
    edge: Tensor | None = None,
    backend: str | None = None,
) -> Tensor:
    r"""Sum over the source nodes of their values, each feature times the gate of the edge.

    .. math:: o_{i,h} = \sum_{e = (j \to i)} \sigma(s_j + t_i + f_e) \odot v_{j,h}

    An empty row gives zeros. On a CPU, and on a GPU with Triton, no tensor with an edge axis and a
    feature axis is built but the gradient of `edge`; second derivatives build them everywhere.

    Args:
        value: v, vectors of the source nodes; all heads have the same gates.
        neighborhood: Who aggregates from whom.
        source: s, a term of the logits of gates; None adds nothing.
        target: t, another one.
        edge: f, another one, in the neighborhood's order.
        backend: A name of `ops.backend_names(ops.gated_sum)`; None takes the first that can.

    Shapes:
        value [num_src, heads, head_dim], source [num_src, head_dim], target [num_dst, head_dim],
        edge [num_edges, head_dim] -> [num_dst, heads, head_dim].

    Raises:
        TypeError: If a tensor is not floating, or dtypes differ.
        ValueError: If shapes do not fit; if there is none of `source`, `target` and `edge`.
        NotImplementedError: If `backend` cannot run this call; the message says why.

    Source:
        Bresson and Laurent (2017), Residual gated graph ConvNets, eq. (11).

    Example:
        >>> nb = Neighborhood.from_edge_index(torch.tensor([[0, 1], [1, 1]]), num_nodes=2)
        >>> gated_sum(torch.tensor([[[2.0]], [[4.0]]]), nb, source=torch.zeros(2, 1)).flatten()
        tensor([0., 3.])
    """
    tensors = (value, source, target, edge)
    kind, plan = known("gated_sum", neighborhood, *tensors, backend)
    if plan is None:
        gates = {"source": source, "target": target, "edge": edge}
        check_arguments(neighborhood, "MHD MD=? ND=? ED=?", value=value, **gates)
        if source is target is edge is None:
            raise ValueError("source: got None beside no target and no edge, expected one of them")
    return run(Call("gated_sum", neighborhood, tensors, plan=plan), backend, kind)
