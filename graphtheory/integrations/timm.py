"""State dicts of timm, and of the code that DeiT and Swin were released with, in our networks."""

from __future__ import annotations

import re
from collections.abc import Mapping

from torch import Tensor

from graphtheory.integrations.weights import Rules, load_renamed
from graphtheory.models.swin import Swin
from graphtheory.models.vit import ViT

_SWIN_BLOCK = r"layers\.(\d+)\.blocks\.(\d+)\."
_DOWNSAMPLE = re.compile(r"layers\.(\d+)\.downsample\.")
_VIT_RULES: Rules = (
    ("cls_token", "embed.prefix#0"),
    ("dist_token", "embed.prefix#1"),
    ("pos_embed", "embed.position.table"),
    (r"patch_embed\.proj\.(\w+)", r"embed.patch.projection.\1"),
    (r"blocks\.(\d+)\.(norm\d|mlp\.fc\d)\.(\w+)", r"blocks.\1.\2.\3"),
    (r"blocks\.(\d+)\.attn\.qkv\.(\w+)", r"blocks.\1.attention.qkv.\2"),
    (r"blocks\.(\d+)\.attn\.proj\.(\w+)", r"blocks.\1.attention.out.\2"),
    (r"blocks\.(\d+)\.ls(\d)\.gamma", r"blocks.\1.scale\2.gamma"),
    (r"(?:fc_)?norm\.(\w+)", r"norm.\1"),
    (r"head\.(\w+)", r"head.output.\1"),
    (r"head_dist\.(\w+)", r"head.distilled.\1"),
)
_SWIN_RULES: Rules = (
    (r"patch_embed\.proj\.(\w+)", r"patch.projection.\1"),
    (r"patch_embed\.norm\.(\w+)", r"patch.norm.\1"),
    ("absolute_pos_embed", "position.table"),
    (_SWIN_BLOCK + r"(norm\d|mlp\.fc\d)\.(\w+)", r"stages.\1.blocks.\2.\3.\4"),
    (_SWIN_BLOCK + r"attn\.qkv\.(\w+)", r"stages.\1.blocks.\2.attention.qkv.\3"),
    (_SWIN_BLOCK + r"attn\.proj\.(\w+)", r"stages.\1.blocks.\2.attention.out.\3"),
    (
        _SWIN_BLOCK + r"attn\.relative_position_bias_table",
        r"stages.\1.blocks.\2.attention.bias.table",
    ),
    (_SWIN_BLOCK + r"(?:attn\.relative_position_index|attn_mask)", ""),
    (r"layers\.(\d+)\.downsample\.(.*)", r"stages.\1.merge.\2"),
    (r"norm\.(\w+)", r"norm.\1"),
    (r"head\.(?:fc\.)?(\w+)", r"head.output.\1"),
)


def load_timm(model: ViT | Swin, state: Mapping[str, Tensor]) -> None:
    """Load the state dict of a ViT, DeiT or Swin of timm into a network of the same shape.

    timm merges patches at the beginning of a stage and the released code of Swin at the end of the
    one before; both are understood.

    Args:
        model: Such as ``vit_small()`` for timm's ``vit_small_patch16_224``.
        state: Names and tensors.

    Raises:
        ValueError: Names missing or unexpected, or shapes that differ; all are listed, and the
            model is not touched.
    """
    if not isinstance(model, Swin):
        return load_renamed(model, state, _VIT_RULES)
    merging = {int(match[1]) for name in state if (match := _DOWNSAMPLE.match(name))}
    at_beginning = 0 if 0 in merging or not merging else 1

    def stage_before(match: re.Match[str]) -> str:
        return f"layers.{int(match[1]) - at_beginning}.downsample."

    renamed = {_DOWNSAMPLE.sub(stage_before, name): tensor for name, tensor in state.items()}
    return load_renamed(model, renamed, _SWIN_RULES)
