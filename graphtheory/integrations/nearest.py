"""k-nearest attention between dense sets under a mask, as other libraries hand them over."""

from __future__ import annotations

import torch
from torch import Tensor

from graphtheory.nn.token_sets import token_bipartite
from graphtheory.patterns import TopK

# Swin adds -100 to bar, and to that its bias by relative position.
FAR_IN_WINDOWS = -50.0


def nearest_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    pattern: TopK,
    *,
    causal: bool = False,
    scale: float | None = None,
    dropout: float = 0.0,
    far: float | None = None,
    with_weights: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Attention in which of each row and head the nearest of those count that the mask leaves.

    Args:
        query: Receivers' vectors.
        key: Senders' vectors, of as many heads or a divisor of them.
        value: Senders' vectors.
        mask: Bool (True may be seen) or added to the logits, or None.
        pattern: Who counts in each row.
        causal: Whether a token sees no later one where there is no mask.
        scale: Factor of the dot products; None is 1 / sqrt(head_dim).
        dropout: Probability with which a weight is dropped.
        far: Numbers of the mask up to this one bar; None is the least finite one.
        with_weights: Whether the weights are given back, too.

    Shapes:
        query [B, H, T, D], key and value [B, H, S, D], mask of four axes or fewer, broadcast to
        [B, H, T, S] -> [B, T, H, D], and the weights [B, H, T, S] or None.

    Example:
        >>> x = torch.randn(1, 2, 5, 4)
        >>> nearest_attention(x, x, x, None, TopK(2))[0].shape
        torch.Size([1, 5, 2, 4])
    """
    groups = query.size(1) // key.size(1)
    key, value = (t.repeat_interleave(groups, 1) if groups > 1 else t for t in (key, value))
    mask = _additive(mask, query, key, causal, far)
    if mask is not None and isinstance(pattern.k, float):
        mask = _bar(mask, pattern, query, key, scale)
    (count, heads, dst, _), src, dtype = query.shape, key.size(2), query.dtype
    nb = token_bipartite(count, dst, src, query.device)
    query, key, value = (t.transpose(1, 2).flatten(0, 1) for t in (query, key, value))  # [B*T,H,D]
    bias = None if mask is None else mask.permute(0, 2, 3, 1).reshape(-1, heads)  # [E, H]
    out = pattern(query, key, value, nb, bias=bias, scale=scale, dropout=dropout)
    out = out.view(count, dst, heads, -1)
    if not with_weights:
        return out, None
    weights = pattern.weights(query, key, nb, bias, scale)
    return out, weights.view(count, dst, src, heads).permute(0, 3, 1, 2).to(dtype)


def _additive(
    mask: Tensor | None, query: Tensor, key: Tensor, causal: bool, far: float | None
) -> Tensor | None:
    """The mask [B, H, T, S] as a term of the logits, with -inf for who may not be seen.

    Of numbers those up to `far` bar; None is the least finite one, as transformers has it.
    """
    dst, src = query.size(2), key.size(2)
    if mask is None:
        if not causal or dst == 1:  # a single new token sees all that is cached
            return None
        mask = torch.ones(dst, src, dtype=torch.bool, device=query.device).tril()
    if mask.dtype == torch.bool:
        mask = torch.where(mask, query.new_zeros(()), -torch.inf)
    else:
        far = torch.finfo(mask.dtype).min if far is None else far
        mask = torch.where(mask <= far, -torch.inf, mask)
    return mask[..., :src].expand(*query.shape[:3], src)


def _bar(mask: Tensor, pattern: TopK, query: Tensor, key: Tensor, scale: float | None) -> Tensor:
    """The mask, and -inf for who is not chosen, where rows differ in whom the mask leaves.

    What is left of a row is at most the share of a whole one, so nobody is barred twice.
    """
    if not torch.compiler.is_compiling() and not bool(torch.isneginf(mask).any()):
        return mask
    scale = query.size(3) ** -0.5 if scale is None else scale
    with torch.no_grad():
        logits = scale * query.float() @ key.float().transpose(2, 3) + mask.float()
        stays = pattern.mask(logits)
    return torch.where(stays, mask, -torch.inf)
