"""Features of given edges in the order of rows, and values of source nodes by edge."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils.weak import TensorWeakRef, WeakTensorKeyDictionary

from graphtheory import ops
from graphtheory.graph import Neighborhood
from graphtheory.graph.content import state_of
from graphtheory.nn.conv.adjacency import Adjacency
from graphtheory.graph.cache import is_tracing


def in_rows(adj: Adjacency, features: Tensor) -> Tensor:
    """Features of given edges in CSR order; layers that follow one another share a copy.

    The copy lives as long as one of them keeps it for its backward pass. What has a gradient is
    copied by each layer: of a shared copy the gradient could be taken once alone.
    """
    if adj.order is None or features.requires_grad or not _can_be_shared(features):
        return adj.to_csr_order(features)
    copies = adj.cached("features", WeakTensorKeyDictionary)  # -> (state, the copy)
    state, (before, known) = state_of(features), copies.get(features, (None, None))
    copy = known() if state is not None and before == state else None
    if copy is None:
        copy = adj.to_csr_order(features)
        copies[features] = (state, TensorWeakRef(copy))
    return copy


def _can_be_shared(features: Tensor) -> bool:
    """Whether a copy of now serves a later layer: nothing traces, and changes are counted."""
    if is_tracing():
        return False
    if features.is_cuda and torch.cuda.is_current_stream_capturing():
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
    return Neighborhood(ids, indices, nb.num_src, validate=False)


def project_per_edge(features: Tensor, head_dim: int, num_dst: int) -> bool:
    """Whether W f, [E, H, C], is smaller than W^T q, [N_dst, H, D]: few edges, wide features.

    Never while a program is traced, which takes any number of edges.
    """
    if torch.compiler.is_compiling():
        return False
    num_edges, edge_dim = features.shape
    return num_edges * head_dim < num_dst * edge_dim


def with_edges(
    key: Tensor, value: Tensor, of_edges: Tensor, adj: Adjacency
) -> tuple[Tensor, Tensor, Neighborhood]:
    """k_j + W f and v_j + W f of every edge, [E, H, C], and the rows whose sources are edges.

    W f is in the order of the given edges.
    """
    of_edges = adj.to_csr_order(of_edges).view(-1, *key.shape[1:])
    key, value = (gather(one, adj, given_order=False) + of_edges for one in (key, value))
    return key, value, adj.edges_as_sources()
