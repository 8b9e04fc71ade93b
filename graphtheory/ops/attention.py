"""Attention over all of a row, over its k nearest, and over sequences that lie side by side."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, overload

import torch
from torch import Tensor

from graphtheory.graph import Neighborhood, bipartite, causal, cliques
from graphtheory.graph.content import PerTensorCache
from graphtheory.ops.arguments import BucketedBias, EdgeFeatures, check_attention
from graphtheory.ops.call import AttentionCall, known, run
from graphtheory.ops.fused import recorded_attention


@overload
def attention(
    query: Tensor, key: Tensor, value: Tensor, neighborhood: Neighborhood, *,
    bias: Tensor | BucketedBias | None = None, scale: float | None = None, dropout: float = 0.0,
    generator: torch.Generator | None = None, backend: str | None = None, edges: None = None,
) -> Tensor: ...  # fmt: skip
@overload
def attention(
    query: Tensor, key: Tensor, value: Tensor, neighborhood: Neighborhood, *,
    bias: Tensor | BucketedBias | None = None, scale: float | None = None, dropout: float = 0.0,
    generator: torch.Generator | None = None, backend: str | None = None,
    edges: EdgeFeatures | Sequence[EdgeFeatures],
) -> tuple[Tensor, Any]: ...  # fmt: skip
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
    given = (query, key, value, bias, scale, dropout, backend, edges)
    kind, plan = known("attention", neighborhood, *given)
    if plan is None:
        check_attention(query, key, value, neighborhood, bias, scale, dropout, edges)
    elif edges is None and plan.recorded:
        args = query, key, value, neighborhood, bias, dropout, generator
        out: Tensor = recorded_attention(plan, *args)
        return out
    found = () if edges is None else (edges,) if isinstance(edges, EdgeFeatures) else tuple(edges)
    call = AttentionCall.of(
        query, key, value, neighborhood, bias, scale, dropout, generator, edges=found, plan=plan
    )
    result = run(call, backend, kind)
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
    given = (query, key, value, bias, scale, dropout, backend, k)
    kind = plan = None
    if isinstance(query, Tensor) and not query.is_cpu:
        kind, plan = known("topk_attention", neighborhood, *given)
    if plan is None:
        check_attention(query, key, value, neighborhood, bias, scale, dropout)
    call = AttentionCall.of(
        query, key, value, neighborhood, bias, scale, dropout, generator, k=k, plan=plan
    )
    return run(call, backend, kind)


_lengths: PerTensorCache[tuple[int, ...]] = PerTensorCache(
    lambda offsets: tuple(offsets.diff().tolist())
)


def varlen_neighborhood(
    cu_seqlens_q: Tensor, cu_seqlens_k: Tensor | None = None, *, is_causal: bool = False
) -> Neighborhood:
    """Who aggregates from whom in `varlen_attention`; the same lengths give the same object.

    Args:
        cu_seqlens_q: Where each sequence of queries starts, and the end of the last.
        cu_seqlens_k: The same of keys and values; None is `cu_seqlens_q`.
        is_causal: Whether a token aggregates from itself and earlier ones alone.

    Shapes:
        int32 or int64 [sequences + 1] each.

    Raises:
        TypeError: If offsets are not integers.
        ValueError: If they do not ascend from 0; sequences of keys that are not as many; with
            `is_causal` keys of other lengths.
    """
    queries = _checked("cu_seqlens_q", cu_seqlens_q)
    keys = queries if cu_seqlens_k is None else _checked("cu_seqlens_k", cu_seqlens_k)
    if len(keys) != len(queries):
        raise ValueError(f"cu_seqlens_k: {len(keys)} sequences, expected {len(queries)}")
    if is_causal and keys != queries:
        raise ValueError("is_causal: expected keys of the lengths of the queries, got others")
    return _sets(queries, keys, is_causal, cu_seqlens_q.device)


def _checked(name: str, offsets: Tensor) -> tuple[int, ...]:
    if not isinstance(offsets, Tensor) or offsets.dtype not in (torch.int32, torch.int64):
        got = offsets.dtype if isinstance(offsets, Tensor) else type(offsets).__name__
        raise TypeError(f"{name}: got {got}, expected a tensor of int32 or int64")
    lengths = _lengths(offsets) if offsets.dim() == 1 and len(offsets) else (-1,)
    if min(lengths, default=0) < 0 or offsets[0] != 0:
        raise ValueError(f"{name}: expected offsets [sequences + 1] that ascend from 0")
    return lengths


@lru_cache(maxsize=16)
def _sets(
    queries: tuple[int, ...], keys: tuple[int, ...], is_causal: bool, device: torch.device
) -> Neighborhood:
    if is_causal:
        return causal(queries).to(device)
    return (cliques(queries) if keys == queries else bipartite(queries, keys)).to(device)


def varlen_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor | None = None,
    *,
    is_causal: bool = False,
    bias: Tensor | BucketedBias | None = None,
    scale: float | None = None,
    dropout: float = 0.0,
    generator: torch.Generator | None = None,
    backend: str | None = None,
) -> Tensor:
    r"""Softmax attention within each of some sequences, without padding, with a learned bias.

    A query without keys gives zeros. On a GPU the offsets are read once a tensor, which waits for
    the device.

    Args:
        query: Vectors of all queries, sequence after sequence.
        key: Vectors of all keys.
        value: Vectors of all keys, the shape of `key`.
        cu_seqlens_q: Where each sequence of queries starts, and the end of the last.
        cu_seqlens_k: The same of keys and values; None is `cu_seqlens_q`.
        is_causal: Whether a token aggregates from itself and earlier ones alone.
        bias: Added to the scaled logits: one value per edge and head, in the order of
            `varlen_neighborhood`, which is row by row of each sequence; or a `BucketedBias`.
        scale: Factor of the dot products; None is 1 / sqrt(head_dim).
        dropout: Probability of dropping a weight, in [0, 1).
        generator: Source of the dropout's seed; None takes torch's global one.
        backend: As in `attention`.

    Shapes:
        query [queries, heads, head_dim], key and value [keys, heads, head_dim], offsets
        [sequences + 1] -> [queries, heads, head_dim].

    Raises:
        TypeError: If offsets are not integers; else as `attention`.
        ValueError: If offsets do not fit; else as `attention`.
        NotImplementedError: If `backend` cannot run this call; the message says why.

    Example:
        >>> x = torch.tensor([0.0, 4.0, 9.0]).view(3, 1, 1)
        >>> varlen_attention(torch.zeros(3, 1, 1), x, x, torch.tensor([0, 2, 3])).flatten().tolist()
        [2.0, 2.0, 9.0]
    """
    nb = varlen_neighborhood(cu_seqlens_q, cu_seqlens_k, is_causal=is_causal)
    return attention(
        query, key, value, nb, bias=bias, scale=scale, dropout=dropout, generator=generator,
        backend=backend,
    )  # fmt: skip
