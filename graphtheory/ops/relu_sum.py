"""Sums of ReLU(source + edge): the aggregation of GINE."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from graphtheory.graph import Neighborhood
from graphtheory.ops import mapped_relu_sum, reference
from graphtheory.ops.backend import BACKENDS, Backend
from graphtheory.ops.call import Call, check_nodes, check_tensor, edge_dim_of, needs_grad
from graphtheory.ops.dispatch import choose
from graphtheory.ops.operator import operator
from graphtheory.ops.second import second_gradients


@operator("graphtheory::relu_sum", "MHD FHD relu_parts .")
def _sum(value: Tensor, features: Tensor, parts: Sequence[Tensor], backend: str) -> Tensor:
    return BACKENDS[backend].kernels.relu_sum(*parts[:3], value, features)


@_sum.register_fake
def _(value: Tensor, features: Tensor, parts: Sequence[Tensor], backend: str) -> Tensor:
    return value.new_empty(parts[0].size(0) - 1, *value.shape[1:])


@operator("graphtheory::relu_sum_backward", "NHD MHD FHD relu_parts .")
def _sum_grad(
    grad: Tensor, value: Tensor, features: Tensor, parts: Sequence[Tensor], backend: str
) -> tuple[Tensor, Tensor]:
    return BACKENDS[backend].kernels.relu_sum_backward(*parts, grad, value, features)


@_sum_grad.register_fake
def _(grad: Tensor, value: Tensor, features: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    return value.new_empty(value.shape), features.new_empty(features.shape)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    value, features, parts, ctx.backend = inputs
    ctx.save_for_backward(value, features, *parts)


def _backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    value, features, *parts = ctx.saved_tensors
    found = _sum_grad(grad, value, features, parts, ctx.backend)
    return *found, [None] * len(parts), None


def _save_grad(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *tensors, parts, _ = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*tensors, *parts)


def _backward_of_grad(ctx: Any, *upstream: Tensor | None) -> tuple[Any, ...]:
    grad, value, features, *parts = ctx.saved_tensors
    indptr, indices, order = parts[:3]
    perm = order if len(order) else None
    nb = Neighborhood(indptr, indices, value.size(0), perm=perm, validate=False)

    def definition(value: Tensor, features: Tensor) -> Tensor:
        return reference.relu_sum(value, features, nb, perm is not None)

    of_grad, found = second_gradients(
        definition, (value, features), (grad,), upstream, ctx.needs_input_grad[:3]
    )
    return *of_grad, *found, [None] * len(parts), None


_sum.register_autograd(_backward, setup_context=_save)
_sum_grad.register_autograd(_backward_of_grad, setup_context=_save_grad)


def run(call: Call, backend: Backend) -> Tensor:
    """Sums [num_dst, H, D] by the kernels of a backend; see `relu_sum`.

    They are given [indptr, indices, order], and where a backward pass may follow [t_indptr, edges]:
    the rows of the features that each source's edges have.
    """
    nb, (given_order,) = call.neighborhood, call.options
    value, features, matrix = call.tensors
    assert value is not None and features is not None
    none = nb.indptr.new_empty(0)
    order = nb.perm if given_order and nb.perm is not None else none
    if matrix is not None and matrix.numel() and backend.fuses_mapped_relu_sum:
        return mapped_relu_sum.run(call, order, backend)
    if matrix is not None:
        product = features @ matrix.transpose(0, 1).flatten(1)
        features = product.view(len(features), matrix.size(0), matrix.size(2))
    parts = [nb.indptr, nb.indices, order]
    if needs_grad((value, features)):
        t = nb._turned()
        assert t.perm is not None
        parts += [t.indptr, order.index_select(0, t.perm) if given_order else t.perm]
    return _sum(value, features, parts, backend.name)


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
        >>> import torch
        >>> nb = Neighborhood.from_edge_index(torch.tensor([[0, 1], [1, 1]]), num_nodes=2)
        >>> value = torch.tensor([[[1.0]], [[-3.0]]])
        >>> relu_sum(value, torch.ones(2, 1, 1), nb).flatten().tolist()
        [0.0, 2.0]
    """
    check_nodes("value", value, neighborhood, "sources")
    of_edge: tuple[int | str, ...] = value.shape[1:]
    if edge_matrix is not None:
        of_edge = (edge_dim_of(edge_matrix),)
        of_matrix = (value.size(1), *of_edge, value.size(2))
        check_tensor("edge_matrix", edge_matrix, of_matrix, neighborhood, value.dtype)
    of_edges = (neighborhood.num_edges, *of_edge)
    check_tensor("edge_features", edge_features, of_edges, neighborhood, value.dtype)
    if given_order and neighborhood.perm is None:
        raise ValueError("given_order: got True, but the neighborhood has no perm")
    tensors = (value, edge_features, edge_matrix)
    call = Call("relu_sum", neighborhood, tensors, (given_order,))
    return choose(call, backend).run(call)
