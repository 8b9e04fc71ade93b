"""Equal complete blocks through torch's scaled_dot_product_attention: token sets at dense speed."""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from graphtheory.ops.call import AttentionCall
from graphtheory.ops.reference import edge_bias


def attention(call: AttentionCall) -> Tensor:
    """Attention of every block at once; a bias becomes the kernel's mask [count, H, dst, src]."""
    blocks = call.neighborhood.blocks
    assert blocks is not None
    count, dst, src = blocks
    heads, dim = call.query.shape[1:]
    query, key, value = (
        t.view(count, rows, heads, dim).transpose(1, 2)  # [count, H, rows, D]
        for t, rows in ((call.query, dst), (call.key, src), (call.value, src))
    )
    mask = None
    if call.bias is not None:
        mask = edge_bias(call.bias).view(count, dst, src, heads).permute(0, 3, 1, 2).to(query.dtype)
    out = scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=call.scale)
    return out.transpose(1, 2).reshape(count * dst, heads, dim)
