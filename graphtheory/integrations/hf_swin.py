"""Semantic tokens in Swin of Hugging Face's transformers, which give back to the patches."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from graphtheory.graph import Grid
from graphtheory.integrations.hf_layers import heads, sums
from graphtheory.integrations.hf_semantic import Semantic, Tokens

_LEAST = 3  # blocks: two that make tokens, one that gives back


class SwinHooks:
    """Blocks of the deepest stage of a model, and what they share during a forward pass.

    The first two make semantic tokens, the last one gives back to the patches, those between them
    are on tokens.

    Args:
        model: A Swin.
        what: Which tokens, and where.

    Raises:
        ValueError: Blocks that there are not; tokens that are no square; a version of transformers
            that builds the model otherwise. The model was not touched.
    """

    def __init__(self, model: PreTrainedModel, what: Semantic) -> None:
        self.base: Any = model.base_model
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
        """Put them in, and the parts to learn."""
        self.base.semantic = self.parts
        for which, block in enumerate(self.blocks):
            block.forward = partial(self.run, which)

    def remove(self) -> None:
        """Take all of it out."""
        del self.base.semantic
        for block in self.blocks:
            del block.forward

    def run(
        self, which: int, x: Tensor, input_dimensions: tuple[int, int],
        always_partition: bool = False, **options: Any,
    ) -> tuple[Tensor, Tensor | None]:  # fmt: skip
        """A block: the patches or tokens that go on, and its attention weights."""
        block, made = self.blocks[which], self.base.semantic
        if which == 0:
            self.patches = x
            centers = made.centres(x.flatten(0, 1), Grid(len(x), *input_dimensions))
            return _block(block, centers.view(len(x), -1, x.size(2)), x, options)
        patches = self.patches
        assert patches is not None
        if which == 1:
            moved = x if made.global_centres is None else x + made.global_centres
            return _block(block, moved, torch.cat([x, patches], 1), options)
        if which < len(self.blocks) - 1:
            return _block(block, x, x, options)
        self.patches = None  # nothing of this pass is kept
        return _block(block, patches, x, options)


def _block(
    block: Any, x: Tensor, senders: Tensor, options: dict[str, Any]
) -> tuple[Tensor, Tensor | None]:
    """A block in which x asks the senders, without windows."""
    norm, at = block.layernorm_before, block.attention
    parts = (heads(at, norm(y), i) for i, y in enumerate((x, senders, senders)))
    out, weights = sums(at, *parts, **options)
    x = x + block.drop_path(block.dropout(out))
    return x + block.dropout(block.mlp(block.layernorm_after(x))), weights
