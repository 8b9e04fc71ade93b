"""Values of source nodes in the order of the given edges, gathered by `ops`."""

from __future__ import annotations

import torch
from torch import Tensor

from graphtheory import ops
from graphtheory.graph import Neighborhood
from graphtheory.nn.conv.adjacency import Adjacency


def gather(value: Tensor, adj: Adjacency) -> Tensor:
    """Values [E, ...] of the source node of each given edge; gradients are sums over rows."""
    nb = adj.cached("gather", lambda: _edges_as_targets(adj))
    return ops.aggregate(None, value.flatten(1)[:, None], nb).view(-1, *value.shape[1:])


def _edges_as_targets(adj: Adjacency) -> Neighborhood:
    nb = adj.neighborhood
    ids = torch.arange(nb.num_edges + 1, device=nb.device)
    return Neighborhood(ids, adj.to_given(nb.indices), nb.num_src, validate=False)
