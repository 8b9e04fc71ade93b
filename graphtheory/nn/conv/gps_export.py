"""Global attention in programs that `torch.export` and ONNX make, for any number of nodes."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from graphtheory.graph import Neighborhood


def clique_edges(batch: Tensor, num_pairs: int | None = None) -> Neighborhood:
    """All pairs of nodes of the same graph, by operators that can be traced.

    The edges are those of `graph.cliques` in the same order. `torch.export` leaves their number
    open, which a list of sizes, read while it traces, would fix.

    Args:
        batch: Graph of each node, int64 [N], ascending; not checked here.
        num_pairs: Number of edges where a tensor with one row per pair tells it; None counts them.

    Raises:
        RuntimeError: If there are not `num_pairs` pairs, also where the program runs.

    Example:
        >>> clique_edges(torch.tensor([0, 0, 2])).to_dense().tolist()
        [[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """
    first = torch.searchsorted(batch, batch)
    size = torch.searchsorted(batch, batch, right=True) - first
    indptr = torch.cat([size.new_zeros(1), size.cumsum(0)])
    nodes = torch.arange(batch.size(0), device=batch.device)
    rows = nodes.repeat_interleave(size, output_size=num_pairs)  # [E]
    place = torch.arange(rows.size(0), device=batch.device) - indptr.index_select(0, rows)
    return Neighborhood(indptr, first.index_select(0, rows) + place, validate=False)


def dense_attention(
    query: Tensor, key: Tensor, value: Tensor, batch: Tensor | None, dropout: float
) -> Tensor:
    """Attention among all nodes of each graph by torch's own operator, which ONNX has.

    Several graphs are told apart by a mask [N, N]; one graph needs none.

    Args:
        query: [N, H, C], as are key and value.
        key: Of the source nodes.
        value: Of the source nodes.
        batch: Graph of each node, int64 [N]; None is one graph.
        dropout: Probability of dropping a weight.

    Shapes:
        -> [N, H, C]
    """
    q, k, v = (t.transpose(0, 1)[None] for t in (query, key, value))  # [1, H, N, C]
    mask = None if batch is None else batch[:, None] == batch
    out = scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout)
    return out[0].transpose(0, 1)
