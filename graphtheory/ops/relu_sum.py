"""Sums of ReLU(source + edge): the aggregation of GINE."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from graphtheory.graph import Neighborhood
from graphtheory.ops import reference
from graphtheory.ops.backend import Backend, choose
from graphtheory.ops.call import Call, check_nodes, check_tensor, edge_dim_of, needs_grad
from graphtheory.ops.fused_op import FusedOp
from graphtheory.ops.kernels import structure

_WORD = 16  # signs in an entry of what kernels save, `vector.llvm.FULL` of those on a CPU


def _definition(a: Any, order: Tensor, matrix: Tensor | None = None) -> Tensor:
    perm = order if len(order) else None
    nb = Neighborhood(a.parts[0], a.parts[1], a.value.size(0), perm=perm, validate=False)
    return reference.relu_sum(a.value, a.features, nb, perm is not None, matrix)


_sum = FusedOp(
    "relu_sum",
    "value:MHD features:FHD parts:relu_parts",
    "NHD",
    run=lambda kernels, a: kernels.relu_sum(*a.parts[:3], a.value, a.features),
    gradients=lambda kernels, a, grads, kept, needs: kernels.relu_sum_backward(
        *a.parts, *grads, a.value, a.features
    ),
    definition=lambda a: _definition(a, a.parts[2]),
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
    "NHD EW!",
    run=lambda kernels, a: kernels.mapped_relu_sum(
        *a.parts[:2], a.order, a.value, a.features, a.matrix
    ),
    gradients=_gradients_of_mapped,
    definition=lambda a: _definition(a, a.order, a.matrix),
    kept="any",
    keep=lambda a, outputs: outputs[1:],
    fake=_fake_of_mapped,
)


def run(call: Call, backend: Backend) -> Tensor:
    """Sums [num_dst, H, D] by the kernels of a backend; see `relu_sum`.

    Without a matrix they are given [indptr, indices, order], and where a backward pass may follow
    [t_indptr, edges]: the rows of the features that each source's edges have. With one, features of
    edge e are row order[e], and their product with the matrix is never written.
    """
    nb, (given_order,) = call.neighborhood, call.options
    value, features, matrix = call.tensors
    assert value is not None and features is not None
    none = nb.indptr.new_empty(0)
    order = nb.perm if given_order and nb.perm is not None else none
    if matrix is not None and matrix.numel() and backend.fuses_mapped_relu_sum:
        parts = structure(call, backend)
        return _mapped_sum(value, features, matrix, order, parts, backend.name)[0]
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
