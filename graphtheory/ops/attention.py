"""Attention over a neighborhood, over all of a row or over its k nearest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

import torch
from torch import Tensor

from graphtheory.graph import Neighborhood
from graphtheory.ops.backend import choose
from graphtheory.ops.call import AttentionCall, BucketedBias
from graphtheory.ops.edge_features import EdgeFeatures
from graphtheory.ops.plan import kind_of, known, remember


@overload
def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    neighborhood: Neighborhood,
    *,
    bias: Tensor | BucketedBias | None = None,
    scale: float | None = None,
    dropout: float = 0.0,
    generator: torch.Generator | None = None,
    backend: str | None = None,
    edges: None = None,
) -> Tensor: ...
@overload
def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    neighborhood: Neighborhood,
    *,
    bias: Tensor | BucketedBias | None = None,
    scale: float | None = None,
    dropout: float = 0.0,
    generator: torch.Generator | None = None,
    backend: str | None = None,
    edges: EdgeFeatures,
) -> tuple[Tensor, Tensor]: ...
@overload
def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    neighborhood: Neighborhood,
    *,
    bias: Tensor | BucketedBias | None = None,
    scale: float | None = None,
    dropout: float = 0.0,
    generator: torch.Generator | None = None,
    backend: str | None = None,
    edges: Sequence[EdgeFeatures],
) -> tuple[Tensor, tuple[Tensor, ...]]: ...
def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    neighborhood: Neighborhood,
    *,
    bias: Tensor | BucketedBias | None = None,
    scale: float | None = None,
    dropout: float = 0.0,
    generator: torch.Generator | None = None,
    backend: str | None = None,
    edges: EdgeFeatures | Sequence[EdgeFeatures] | None = None,
) -> Tensor | tuple[Tensor, Tensor | tuple[Tensor, ...]]:
    r"""Softmax attention of target node i over the source nodes of its row.

    .. math::
        o_{i,h} = \sum_{j \in T^i} v_{j,h}\,
        \operatorname{softmax}_{j \in T^i}\big(\text{scale} \cdot \langle q_{i,h}, k_{j,h} \rangle
        + b_{ij,h}\big)

    An empty row gives zeros and passes no gradient. The neighborhood's `weight` is not used. Sums
    are computed in float32 or wider whatever the dtype; `numba_csr` gives the same bits for any
    number of threads.

    Args:
        query: Vectors of the target nodes.
        key: Vectors of the source nodes.
        value: Vectors of the source nodes, the shape of `key`.
        neighborhood: Who aggregates from whom.
        bias: Added to the scaled logits (dimensionless): one value per edge and head, or a
            `BucketedBias`, whose table is looked up on the way and whose [num_edges, heads] form
            is never built.
        scale: Factor of the dot products; None is 1 / sqrt(head_dim). The theory model has 1.
        dropout: Probability of dropping a weight, in [0, 1).
        generator: Source of the dropout's seed; the same seed drops the same edges on every
            backend. None takes torch's global one of the tensors' device, which
            `torch.compile(fullgraph=True)` and CUDA graphs need.
        backend: A name of `ops.backend_names()`, or None for the first that can run the call; on a
            CPU sets of short rows go to `numba_csr` before `blocks`, which is slower there.
        edges: Features of edges with a query of their own, which enter the logits beside the keys
            and are summed like the values: see `EdgeFeatures`. Two are given as a tuple, one by
            edge and one with a table.

    Shapes:
        query [num_dst, heads, head_dim], key and value [num_src, heads, head_dim],
        bias [num_edges, heads] -> [num_dst, heads, head_dim]; with `edges` of D features a pair of
        that and the sums [num_dst, heads, D], for two of them a tuple of sums.

    Raises:
        TypeError: If a tensor is not floating, or dtypes differ.
        ValueError: If shapes do not fit the neighborhood; dropout outside [0, 1).
        IndexError: If a bucket is beyond the bias table, or a row of `edges` beyond its table.
        NotImplementedError: If `backend` cannot run this call; the message says why.

    Source:
        Li (2024), eq. (3.1), without W_O and the output layer. Differs: the default scale; the
        thesis has none.

    Example:
        >>> nb = Neighborhood.from_edge_index(torch.tensor([[0, 1, 1], [0, 0, 1]]), num_nodes=3)
        >>> x = torch.tensor([[[0.0]], [[4.0]], [[9.0]]])
        >>> attention(torch.zeros_like(x), x, x, nb).flatten().tolist()
        [2.0, 4.0, 0.0]
    """
    kind = None
    if edges is None:
        kind = kind_of("attention", neighborhood, query, key, value, bias, scale, dropout, backend)
        if (planned := known(neighborhood, kind)) is not None:
            given = (query, key, value, neighborhood, bias, scale, dropout, generator)
            return planned.run(AttentionCall.of(*given))
    call = AttentionCall.checked(
        query, key, value, neighborhood,
        bias=bias, scale=scale, dropout=dropout, generator=generator, edges=edges,
    )  # fmt: skip
    chosen = choose(call, backend)
    remember(neighborhood, kind, chosen)
    result = chosen.run(call)
    if isinstance(edges, EdgeFeatures) and isinstance(result, tuple):
        return result[0], result[1][0]
    return result


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
