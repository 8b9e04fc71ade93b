"""Features of edges: what a layer is given, in the order of rows, and as terms of attention."""

from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import TensorWeakRef, WeakTensorKeyDictionary
from torch_geometric.typing import SparseTensor

from graphtheory import ops
from graphtheory.graph import Neighborhood
from graphtheory.graph.content import is_tracing, state_of
from graphtheory.nn.conv.adjacency import Adjacency, stored_values
from graphtheory.nn.conv.on_core import check_features


def given_features(edge_attr: Tensor | None, edge_index: Any, edge_dim: int | None) -> Any:
    """`edge_attr` or, if None, the values [E, D] of a sparse matrix, or [E] of a `SparseTensor`."""
    values = stored_values(edge_index) if edge_attr is None else None
    if values is None:
        return edge_attr
    one = isinstance(edge_index, SparseTensor) and edge_dim in (1, -1)
    if values.dim() > 1 or one:
        return values
    if edge_dim is not None and isinstance(edge_index, SparseTensor):
        raise ValueError(
            "edge_attr: got none beside a SparseTensor of one value per edge, which is a weight; "
            f"expected [E, {edge_dim}] of features"
        )
    return None  # a torch sparse matrix always has values, even if no weights are meant


def edge_features(edge_attr: Tensor, num_edges: int, edge_dim: int) -> Tensor:
    """`edge_attr` as [E, edge_dim]; [E] means one feature per edge, [1, edge_dim] that of all."""
    if edge_attr.dim() == 1:
        edge_attr = edge_attr[:, None]
    if edge_attr.dim() == 2 and num_edges != edge_attr.size(0) == 1:
        edge_attr = edge_attr.expand(num_edges, -1)
    if edge_attr.dim() != 2 or edge_attr.size(0) != num_edges:
        raise ValueError(
            f"edge_attr: shape {tuple(edge_attr.shape)}, expected [{num_edges}, edge_dim]: "
            "one row per edge"
        )
    if not edge_attr.is_floating_point():
        raise TypeError(
            f"edge_attr: dtype {edge_attr.dtype}, expected a floating type; categories are "
            "embedded first, for instance by ogb's BondEncoder"
        )
    check_features("edge_attr", edge_attr, edge_dim)
    return edge_attr


def checked_features(edge_attr: Tensor | None, num_edges: int, linear: Any) -> Tensor | None:
    """`edge_attr` as [E, edge_dim]; needed if, and only if, there is a linear map."""
    if (linear is None) != (edge_attr is None):
        got = "none" if edge_attr is None else "some"
        dim = None if linear is None else linear.in_channels
        raise ValueError(f"edge_attr: got {got}, but the layer has edge_dim={dim}")
    return (
        edge_attr if edge_attr is None else edge_features(edge_attr, num_edges, linear.in_channels)
    )


def matrix_of(linear: torch.nn.Module, features: Tensor, heads: int) -> Tensor:
    """A layer's matrix [heads, edge_dim, out_channels], by a call: it may be lazy or wrapped."""
    eye = torch.eye(features.size(1), dtype=features.dtype, device=features.device)
    mapped = linear(eye)
    return mapped.view(len(eye), heads, mapped.size(1) // heads).transpose(0, 1)


def edge_logits(edge_query: Tensor, features: Tensor, adj: Adjacency) -> Tensor:
    """Dot products [E, H] of features [E, D] of edges and queries [N_dst, H, D], by head."""
    sources, edges = features[:, None], adj.edges_as_sources()
    return torch.cat([ops.edge_dot(q[:, None], sources, edges) for q in edge_query.unbind(1)], 1)


def in_rows(adj: Adjacency, features: Tensor, key: Any = "features", make: Any = None) -> Tensor:
    """Features of given edges in CSR order, by `make` if there is more to do than to order them.

    Layers that follow one another share a copy by its key.
    """
    make = make or adj.to_csr_order
    if adj.order is None or features.requires_grad or not _can_be_shared(features):
        return make(features)
    # -> (state, the copy while a layer keeps it); a learned one lets its gradient be taken once
    copies = adj.cached(key, WeakTensorKeyDictionary)
    state, (before, known) = state_of(features), copies.get(features, (None, None))
    copy = known() if state is not None and before == state else None
    if copy is None:
        copy = make(features)
        copies[features] = (state, TensorWeakRef(copy))
    return copy


def _can_be_shared(features: Tensor) -> bool:
    """Whether a copy of now serves a later layer: nothing traces, and changes are counted."""
    if is_tracing() or (features.is_cuda and torch.cuda.is_current_stream_capturing()):
        return False  # a recorded step must not read a copy from before, which may be freed
    return not features.is_inference() and not torch.is_inference_mode_enabled()


def gather(value: Tensor, adj: Adjacency, *, given_order: bool = True) -> Tensor:
    """Values [E, ...] of the source node of each edge; gradients are sums over rows."""
    nb = adj.cached(("gather", given_order), lambda: _edges_as_targets(adj, given_order))
    return ops.aggregate(None, value.flatten(1)[:, None], nb).view(-1, *value.shape[1:])


def _edges_as_targets(adj: Adjacency, given_order: bool) -> Neighborhood:
    nb = adj.neighborhood
    ids = torch.arange(nb.num_edges + 1, device=nb.device)
    indices = adj.to_edge_order(nb.indices) if given_order else nb.indices
    return Neighborhood(ids, indices, nb.num_src, validate=False)._seal(nb)


def project_per_edge(features: Tensor, head_dim: int, num_dst: int) -> bool:
    """Whether W f, [E, H, C], is smaller than W^T q, [N_dst, H, D]: few edges, wide features."""
    if torch.compiler.is_compiling():
        return False  # a traced program takes any number of edges
    num_edges, edge_dim = features.shape
    return num_edges * head_dim < num_dst * edge_dim


def with_edges(
    key: Tensor, value: Tensor, of_edges: Tensor, adj: Adjacency
) -> tuple[Tensor, Tensor, Neighborhood]:
    """k_j + W f and v_j + W f of every edge, [E, H, C], given W f, and the rows of these edges."""
    of_edges = adj.to_csr_order(of_edges).view(-1, *key.shape[1:])
    key, value = (gather(one, adj, given_order=False) + of_edges for one in (key, value))
    return key, value, adj.edges_as_sources()
