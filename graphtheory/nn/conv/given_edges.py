"""Messages in the order of the given edges, gathered and reduced by `ops`."""

from __future__ import annotations

import torch
from torch import Tensor

from graphtheory import ops
from graphtheory.graph import Neighborhood
from graphtheory.nn.conv.adjacency import Adjacency


def gather(value: Tensor, adj: Adjacency) -> Tensor:
    """Values [E, ...] of the source node of each given edge; gradients are sums over rows."""
    nb = adj.cached("gather", lambda: _edges_as_receivers(adj))
    return ops.aggregate(None, value.flatten(1)[:, None], nb).view(-1, *value.shape[1:])


def edges_as_senders(adj: Adjacency) -> Neighborhood:
    """The neighborhood whose source nodes are the given edges: target nodes reduce over them."""
    return adj.cached("given edges", lambda: _edges_as_senders(adj))


def _edges_as_receivers(adj: Adjacency) -> Neighborhood:
    nb = adj.neighborhood
    ids = torch.arange(nb.num_edges + 1, device=nb.device)
    return Neighborhood(ids, adj.to_given(nb.indices), nb.num_src, validate=False)


def _edges_as_senders(adj: Adjacency) -> Neighborhood:
    nb = adj.neighborhood
    ids = torch.arange(nb.num_edges + 1, device=nb.device)
    order = ids[:-1] if adj.order is None else adj.order
    out = Neighborhood(nb.indptr, order, nb.num_edges, validate=False)
    out._adopt_transpose(ids, adj.to_given(adj.receivers()), adj.to_given(ids[:-1]))
    return out
