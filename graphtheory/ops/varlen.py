"""Attention over sequences of several lengths that lie side by side."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from graphtheory.graph import Neighborhood, bipartite, causal, cliques
from graphtheory.ops.attention import attention
from graphtheory.ops.call import BucketedBias
from graphtheory.ops.once import PerTensorCache

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
