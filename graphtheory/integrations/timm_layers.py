"""Access to the blocks of timm's VisionTransformer, recognized by structure."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from graphtheory.integrations.timm_attention import (
    PATTERN,
    attend_and_project,
    attention_layers,
    heads,
    set_pattern,
)
from graphtheory.integrations.token_layers import Ask, Layers, Positions

_TOKENS = ("cls_token", "dist_token")


class TimmLayers(Layers):
    """`Layers` of a model of timm.

    Args:
        model: A VisionTransformer, or a model of the same structure.

    Raises:
        ValueError: If the model is another one.
    """

    def __init__(self, model: Any) -> None:
        self.layers = list(getattr(model, "blocks", ()))
        attention_layers(model)
        self.base, self.embedding = model, getattr(model, "patch_embed", None)
        known = self.layers and hasattr(model, "norm")
        self.dim = model.norm.normalized_shape[0] if known else 0
        if not known or not all(self.knows(block, 5) for block in self.layers):
            raise ValueError(
                f"model: {type(model).__name__} is not made of pre-norm blocks on all tokens, "
                "expected a VisionTransformer as timm's; TopK may be applied to others"
            )
        tokens = sum(getattr(model, name, None) is not None for name in _TOKENS)
        self.prefix = getattr(model, "num_prefix_tokens", tokens)
        self.patch = tuple(model.patch_embed.proj.kernel_size)

    def attend(self, attention: Any, x: Tensor, ask: Ask) -> Tensor:
        """Attention of a module, with its pattern if it has one."""
        query, key, value = heads(attention, x)
        if ask.senders is not None:
            _, key, value = heads(attention, ask.senders)
        if ask.parts is not None:
            ask.parts.extend((query, key))
        return attend_and_project(attention, query, key, value, ask.mask(query))

    def scale(self, layer: Any) -> float:
        """Factor of the dot products."""
        return layer.attn.scale

    def release(self, layer: Any) -> None:
        """Restore the `forward` of the attention of a layer, with its pattern if it has one."""
        super().release(layer)
        if hasattr(layer.attn, PATTERN):
            set_pattern(layer.attn, getattr(layer.attn, PATTERN))

    def positions(self, layer: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Positions:
        """None; masks and gradient checkpointing are refused."""
        for given in (*args, *options.values()):
            if given is not None and given is not False:
                raise ValueError("attn_mask: given, expected none where tokens get fewer")
        if layer.training and getattr(self.base, "grad_checkpointing", False):
            raise ValueError("grad_checkpointing: on, expected off where tokens get fewer")
        return Positions(None, None, {})
