"""Semantic tokens in Swin of Hugging Face transformers; k-nearest attention in Swin v2."""

from __future__ import annotations

from functools import partial
from math import log
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize
from transformers import PreTrainedModel

from graphtheory.graph import Grid
from graphtheory.patterns import TopK
from graphtheory.vision.integrations.hf_layers import attend_and_project, heads
from graphtheory.vision.integrations.hf_semantic import Semantic, Tokens, add_tokens
from graphtheory.vision.integrations.nearest import SWIN_MASKED, nearest_attention

_LEAST = 3  # blocks: two that compute tokens, one that updates the patches


class SwinHooks:
    """The patched blocks of the deepest stage, and their state during a forward pass.

    The first two compute semantic tokens, the last one updates the patches from them, those between
    run on the tokens.

    Args:
        model: A Swin.
        what: Which tokens, and after which block.

    Raises:
        ValueError: If the blocks do not exist, `tokens` is no square, or the structure of the model
            is that of another version of transformers; the model is not changed.
    """

    def __init__(self, model: PreTrainedModel, what: Semantic) -> None:
        self.base: Any = model.base_model
        self.what = what
        stages = getattr(getattr(self.base, "encoder", None), "layers", None)
        if stages is None or not hasattr(stages[0].blocks[0].attention, "q_proj"):
            raise ValueError(f"model: {type(model).__name__} is not built as in transformers 5.23")
        blocks = list(max(stages, key=lambda stage: len(stage.blocks)).blocks)
        if not 0 <= what.base <= len(blocks) - _LEAST:
            most = len(blocks) - _LEAST
            raise ValueError(
                f"base: got {what.base}, expected 0..{most}, for {len(blocks)} blocks in a stage"
            )
        self.blocks, at = blocks[what.base :], blocks[0].attention.q_proj
        self.parts = Tokens(what, at.in_features, at.weight).train(model.training)
        self.patches: Tensor | None = None

    def install(self) -> None:
        """Patch the blocks and add the new parameters."""
        add_tokens(self.base, self.parts)
        for which, block in enumerate(self.blocks):
            block.forward = partial(self.run, which)

    def remove(self) -> None:
        """Restore the blocks and remove the new parameters."""
        del self.base.semantic
        for block in self.blocks:
            del block.forward

    def run(
        self, which: int, x: Tensor, input_dimensions: tuple[int, int],
        always_partition: bool = False, **options: Any,
    ) -> tuple[Tensor, Tensor | None]:  # fmt: skip
        """Forward of a block: the patches or tokens, and the attention weights."""
        block, made = self.blocks[which], self.base.semantic
        if which == 0:
            self.patches = x
            centers = made.centers(x.flatten(0, 1), Grid(x.size(0), *input_dimensions))
            return _block(block, centers.view(x.size(0), -1, x.size(2)), x, options)
        patches = self.patches
        assert patches is not None
        if which == 1:
            moved = x if made.global_centers is None else x + made.global_centers
            return _block(block, moved, torch.cat([x, patches], 1), options)
        if which < len(self.blocks) - 1:
            return _block(block, x, x, options)
        self.patches = None  # keep no tensors of this pass
        return _block(block, patches, x, options)


def _block(
    block: Any, x: Tensor, sources: Tensor, options: dict[str, Any]
) -> tuple[Tensor, Tensor | None]:
    """A block as cross-attention from x to the sources, without windows."""
    norm, at = block.layernorm_before, block.attention
    parts = (heads(at, norm(y), i) for i, y in enumerate((x, sources, sources)))
    out, weights = attend_and_project(at, *parts, **options)
    x = x + block.drop_path(block.dropout(out))
    return x + block.dropout(block.mlp(block.layernorm_after(x))), weights


def swin2_attention(model: nn.Module) -> list[Any]:
    """The attention modules of Swin v2 in a model."""
    return [m for m in model.modules() if hasattr(m, "continuous_position_bias_mlp")]


def attend_windows(
    attention: Any, x: Tensor, attention_mask: Tensor | None = None,
    output_attentions: bool | None = False, *, pattern: TopK,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Forward of the attention of Swin v2, by cosines, to the k nearest patches of a window.

    Args:
        attention: The module.
        x: Patches of each window.
        attention_mask: Of the windows of one image, added to the logits.
        output_attentions: Whether to return the weights, too.
        pattern: Which patches each one attends to.

    Shapes: x [B * windows, N, dim], attention_mask [windows, N, N] -> [B * windows, N, dim].
    """
    shape = (attention.num_attention_heads, attention.attention_head_size)
    query, key, value = (
        part(x).unflatten(2, shape).transpose(1, 2)
        for part in (attention.query, attention.key, attention.value)
    )
    scale = attention.logit_scale.clamp(max=log(100)).exp()
    table = attention.continuous_position_bias_mlp(attention.relative_coords_table).flatten(0, 2)
    index = attention.relative_position_index
    mask = 16 * table[index.flatten()].view(*index.shape, -1).permute(2, 0, 1)[None].sigmoid()
    if attention_mask is not None:
        mask = mask + attention_mask.repeat(x.size(0) // attention_mask.size(0), 1, 1)[:, None]
    out, weights = nearest_attention(
        scale * normalize(query, dim=3), normalize(key, dim=3), value, mask, pattern, scale=1.0,
        dropout=attention.dropout.p if attention.training else 0.0, masked_from=SWIN_MASKED,
        with_weights=bool(output_attentions),
    )  # fmt: skip
    return (out.flatten(2),) if weights is None else (out.flatten(2), weights)
