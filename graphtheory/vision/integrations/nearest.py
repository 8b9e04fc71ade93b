"""k-NN attention on dense tensors [B, H, T, D] with a mask, as other libraries pass them."""

import torch
from torch import Tensor

from graphtheory.patterns import TopK
from graphtheory.vision.nn.token_sets import token_bipartite

# Swin masks by adding -100, plus its bias by relative position.
SWIN_MASKED = -50.0


def nearest_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, pattern: TopK, *,
    causal: bool = False, scale: float | None = None, dropout: float = 0.0,
    masked_from: float | None = None, with_weights: bool = False,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """Attention over the k nearest keys per query and head, among those that the mask allows.

    Additive mask values up to `masked_from` mask a key; None is the lowest finite value.

    Shapes:
        query [B, H, T, D], key and value [B, H, S, D], mask of four axes or fewer, broadcast to
        [B, H, T, S] -> [B, T, H, D], and the weights [B, H, T, S] or None.
    """
    groups = query.size(1) // key.size(1)
    key, value = (t.repeat_interleave(groups, 1) if groups > 1 else t for t in (key, value))
    query, key = query.to(value.dtype), key.to(value.dtype)  # positions are float32 under autocast
    mask = _additive_mask(mask, query, key, causal, masked_from)
    if torch.compiler.is_exporting():
        return _dense(query, key, value, mask, pattern, scale, dropout, with_weights)
    if (
        mask is not None
        and isinstance(pattern.k, float)  # rows may differ in how many keys the mask allows
        and (torch.compiler.is_compiling() or bool(torch.isneginf(mask).any()))
    ):
        with torch.no_grad():  # at most the share of a full row: `pattern` keeps them all
            stays = pattern.mask(_logits(query, key, mask, scale))
        mask = torch.where(stays, mask, -torch.inf)
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


def _dense(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, pattern: TopK,
    scale: float | None, dropout: float, with_weights: bool,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """The same by its definition, which `torch.export` can trace without our operations."""
    logits = _logits(query, key, mask, scale)
    weights = torch.where(pattern.mask(logits.detach()), logits, -torch.inf).softmax(3)
    weights = weights.nan_to_num(0.0).to(query.dtype)  # rows without a key
    out = torch.nn.functional.dropout(weights, dropout) @ value
    return out.transpose(1, 2), weights if with_weights else None


def _additive_mask(
    mask: Tensor | None, query: Tensor, key: Tensor, causal: bool, masked_from: float | None
) -> Tensor | None:
    """The mask [B, H, T, S] as a term of the logits, -inf for keys masked by `masked_from`."""
    dst, src = query.size(2), key.size(2)
    if mask is None:
        if not causal or dst == 1:  # a single new token attends to all cached ones
            return None
        mask = torch.ones(dst, src, dtype=torch.bool, device=query.device).tril()
    if mask.dtype == torch.bool:
        mask = torch.where(mask, query.new_zeros(()), -torch.inf)
    else:
        masked_from = torch.finfo(mask.dtype).min if masked_from is None else masked_from
        mask = torch.where(mask <= masked_from, -torch.inf, mask)
    return mask[..., :src].expand(*query.shape[:3], src)


def _logits(query: Tensor, key: Tensor, mask: Tensor | None, scale: float | None) -> Tensor:
    """Logits [B, H, T, S] in float32."""
    scale = query.size(3) ** -0.5 if scale is None else scale
    logits = scale * query.float() @ key.float().transpose(2, 3)
    return logits if mask is None else logits + mask.float()
