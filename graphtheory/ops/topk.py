"""k-nearest attention."""

from __future__ import annotations

import torch
from torch import Tensor

from graphtheory.graph import Neighborhood
from graphtheory.ops.call import AttentionCall, BucketedBias
from graphtheory.ops.dispatch import choose


def topk_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    neighborhood: Neighborhood,
    k: int,
    *,
    bias: Tensor | BucketedBias | None = None,
    scale: float | None = None,
    dropout: float = 0.0,
    generator: torch.Generator | None = None,
    backend: str | None = None,
) -> Tensor:
    r"""Softmax attention of target node i over the k source nodes with the largest logits.

    .. math::
        o_{i,h} = \sum_{j \in K} v_{j,h}\, \operatorname{softmax}_{j \in K}(s_{ij,h}),
        \qquad s_{ij,h} = \text{scale} \cdot \langle q_{i,h}, k_{j,h} \rangle + b_{ij,h}

    K holds the k largest logits of the row, chosen for each head; of equal ones the earlier edges
    of the row. A row with fewer entries keeps them all, so a large k gives `attention`. An entry at
    -inf is never chosen; a row without others gives zeros. What is not chosen has weight 0 and
    passes no gradient; the choice itself has none. Dropout draws by edge and head as in
    `attention`. On blocks nothing of the size of the logits is kept for the backward pass, which
    computes them again; on a GPU the gradient of a bias by buckets passes through one by edge.

    Args:
        query: Vectors of the target nodes.
        key: Vectors of the source nodes.
        value: Vectors of the source nodes, the shape of `key`.
        neighborhood: Who may be chosen: cliques for images, any graph otherwise.
        k: Number of neighbors per row and head, at least 1.
        bias: As in `attention`, added before the choice; -inf excludes an edge.
        scale: Factor of the dot products; None is 1 / sqrt(head_dim).
        dropout: Probability of dropping a weight, in [0, 1).
        generator: Source of the dropout's seed; None takes torch's global one.
        backend: `blocks` (equal complete blocks; on a GPU up to 1024 sources a row, on AMD's 512,
            and 128 features a head, not in float64), `numba_csr`, `torch_csr`, `reference`, or None
            for the first that can run the call.

    Shapes:
        query [num_dst, heads, head_dim], key and value [num_src, heads, head_dim],
        bias [num_edges, heads] -> [num_dst, heads, head_dim].

    Raises:
        TypeError: If k is not an int; else as `attention`.
        ValueError: If k is below 1; else as `attention`.
        IndexError: If a bucket is beyond the bias table.
        NotImplementedError: If `backend` cannot run this call; the message says why.

    Source:
        Wang et al. (2022), k-NN attention, the fast version. Differs: exactly k stay where logits
        are equal; a k beyond the row is no error; any neighborhood; a bias.

    Example:
        >>> nb = Neighborhood.from_edge_index(torch.tensor([[0, 1, 2], [0, 0, 0]]), num_nodes=3)
        >>> q, x = torch.ones(3, 1, 1), torch.tensor([[[5.0]], [[1.0]], [[5.0]]])
        >>> topk_attention(q, x, x, nb, 2).flatten().tolist()
        [5.0, 0.0, 0.0]
    """
    if not isinstance(k, int) or isinstance(k, bool):
        raise TypeError(f"k: got {k!r} of type {type(k).__name__}, expected an int")
    if k < 1:
        raise ValueError(f"k: got {k}, expected 1 or more neighbors")
    call = AttentionCall.checked(
        query, key, value, neighborhood,
        bias=bias, scale=scale, dropout=dropout, generator=generator, k=k,
    )  # fmt: skip
    return choose(call, backend).run(call)
