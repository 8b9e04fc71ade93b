"""What is written for torch's FlexAttention, computed by `ops`, with gradients on a CPU too."""

from collections.abc import Callable
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask

from graphtheory import ops
from graphtheory.graph import Neighborhood, bipartite, causal

ScoreMod = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
# Of each mask and sizes: which pairs it allowed, and their edges.
_known: WeakKeyDictionary[BlockMask, dict[tuple[int, ...], tuple[Tensor, Neighborhood]]]
_known = WeakKeyDictionary()


def flex_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: ScoreMod | None = None,
    block_mask: BlockMask | None = None,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Torch's `flex_attention` with gradients, those of tables in `score_mod` too, on a CPU.

    `score_mod` is called once on the places of all edges and has to add a bias: ALiBi, a table by
    relative position, a table by bucket, -inf where there is no edge. A query without keys gives
    zeros.

    Args:
        query: Queries.
        key: Keys.
        value: Values, the shape of `key`.
        score_mod: Takes scores, batch, head, query and key as tensors that broadcast.
        block_mask: Who aggregates from whom; the same for every head. None is everyone.
        scale: Factor of the dot products; None is 1 / sqrt(head_dim).
        enable_gqa: Whether several heads of the query share one of key and value.

    Shapes:
        query [batch, heads, queries, head_dim], key and value [batch, heads or fewer, keys,
        head_dim] -> the shape of `query`.

    Raises:
        ValueError: If shapes do not fit.
        NotImplementedError: If `score_mod` does more than add a bias, or `block_mask` differs by
            head.

    Example:
        >>> x = torch.randn(1, 2, 8, 4, requires_grad=True)
        >>> flex_attention(x, x, x, lambda s, b, h, i, j: s - (i - j).abs()).sum().backward()
    """
    for name, given in (("query", query), ("key", key), ("value", value)):
        if given.dim() != 4:
            raise ValueError(
                f"{name}: shape {tuple(given.shape)}, expected [batch, heads, tokens, head_dim]"
            )
    batch, heads, queries, _ = query.shape
    if enable_gqa and heads % key.size(1):
        raise ValueError(f"key: {key.size(1)} heads, expected a divisor of the query's {heads}")
    if enable_gqa:
        key, value = (t.repeat_interleave(heads // t.size(1), 1) for t in (key, value))
    if value.shape != key.shape or key.size(1) != heads:
        raise ValueError(
            f"key, value: shapes {tuple(key.shape)}, {tuple(value.shape)}, expected {heads} heads "
            "and the same head_dim"
        )
    nb = neighborhood_of(block_mask, batch, queries, key.size(2))
    bias = None if score_mod is None else _bias(score_mod, nb, queries, key.size(2), query)
    q, k, v = (t.transpose(1, 2).flatten(0, 1) for t in (query, key, value))
    out = ops.attention(q, k, v, nb, bias=bias, scale=scale)
    return out.view(batch, queries, heads, query.size(3)).transpose(1, 2)


def neighborhood_of(
    block_mask: BlockMask | None, batch: int, queries: int, keys: int
) -> Neighborhood:
    """The edges of a mask, made once for what it allows; the entries of a batch side by side."""
    if block_mask is None:
        return bipartite([queries] * batch, [keys] * batch)
    allowed = _pairs(block_mask, batch, queries, keys)  # what `mask_mod` reads may have changed
    found, sizes = _known.setdefault(block_mask, {}), (batch, queries, keys)
    if sizes not in found or not torch.equal(found[sizes][0], allowed):
        found[sizes] = allowed, _edges(allowed, *sizes)
    return found[sizes][1]


def _pairs(mask: BlockMask, batch: int, queries: int, keys: int) -> Tensor:
    """Whether each query aggregates from each key, bool [1 or batch, queries, keys]."""
    of_batch, heads = mask.shape[:2]
    if heads != 1:
        raise NotImplementedError(f"block_mask: made for {heads} heads, expected H=None or H=1")
    if of_batch not in (1, batch) or tuple(mask.seq_lengths) != (queries, keys):
        raise ValueError(
            f"block_mask: made for {tuple(mask.shape)}, expected a batch of {batch} with {queries} "
            f"queries and {keys} keys"
        )
    return torch.stack([_allowed(mask, b, queries, keys) for b in range(of_batch)])


def _edges(allowed: Tensor, batch: int, queries: int, keys: int) -> Neighborhood:
    allowed = allowed.expand(batch, -1, -1)
    if bool(allowed.all()):
        return bipartite([queries] * batch, [keys] * batch)
    if queries == keys and torch.equal(allowed, torch.ones_like(allowed).tril()):
        return causal([queries] * batch)
    counts = allowed.sum(2).flatten()
    indptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    entry, _, source = allowed.nonzero(as_tuple=True)
    return Neighborhood(indptr, entry * keys + source, batch * keys)


def _allowed(mask: BlockMask, entry: int, queries: int, keys: int) -> Tensor:
    """Whether there is an edge, [queries, keys]: in whole blocks, and where `mask_mod` says."""
    rows, columns = mask.BLOCK_SIZE
    device = mask.kv_indices.device
    i, j = torch.arange(queries, device=device)[:, None], torch.arange(keys, device=device)
    zero = torch.zeros((), dtype=torch.int64, device=device)
    partly = _blocks(mask.kv_num_blocks, mask.kv_indices, entry)[i // rows, j // columns]
    found = partly & mask.mask_mod(zero + entry, zero, i, j)
    if mask.full_kv_num_blocks is not None and mask.full_kv_indices is not None:
        whole = _blocks(mask.full_kv_num_blocks, mask.full_kv_indices, entry)
        found = found | whole[i // rows, j // columns]
    return found


def _blocks(count: Tensor, indices: Tensor, entry: int) -> Tensor:
    count, indices = count[entry, 0], indices[entry, 0].long()
    listed = torch.arange(indices.size(1), device=indices.device) < count[:, None]
    width = max(indices.size(1), int(indices.max()) + 1)
    found = listed.new_zeros(len(indices), width + 1)
    return found.scatter(1, torch.where(listed, indices, width), True)[:, :width]


_SCORES = (1.0, -3.0, 30.0, -30.0, 1e3, -1e3)
"""At which a `score_mod` is asked whether it only adds: bounds are anywhere between."""


def _bias(score_mod: ScoreMod, nb: Neighborhood, queries: int, keys: int, like: Tensor) -> Tensor:
    sources, targets = nb.edge_index()
    entry, i, j = targets // queries, targets % queries, sources % keys
    places = (entry[:, None], torch.arange(like.size(1), device=like.device)[None], i[:, None],
              j[:, None])  # fmt: skip
    shape = (nb.num_edges, like.size(1))
    zero = torch.zeros(shape, dtype=torch.float32, device=like.device)
    bias = score_mod(zero, *places)
    with torch.no_grad():
        for score in _SCORES:
            found = score_mod(zero + score, *places)
            if not torch.allclose(found, bias + score, rtol=1e-4, atol=1e-4):
                name = getattr(score_mod, "__name__", type(score_mod).__name__)
                raise NotImplementedError(
                    f"score_mod: {name} does more than add a bias to the scores, which is all that "
                    "ops.attention can do; soft capping and factors are such"
                )
    return bias.expand(shape).to(like.dtype)
