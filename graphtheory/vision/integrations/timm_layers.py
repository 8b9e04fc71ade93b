"""Access to the blocks of timm's VisionTransformer, recognized by structure."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from graphtheory.vision.integrations.timm_attention import (
    PATTERN,
    attend_and_project,
    attention_layers,
    heads,
    set_pattern,
)
from graphtheory.vision.integrations.token_layers import Ask, Layers, Positions, Removable

_TOKENS = ("cls_token", "dist_token")


class _NoMaps:
    """A model without `forward_intermediates`, which would shape fewer tokens as a whole grid."""

    def __init__(self, model: Any) -> None:
        self.model = model
        model.forward_intermediates = _refuse_maps

    def remove(self) -> None:
        """Give the method back."""
        del self.model.forward_intermediates


def _refuse_maps(*args: Any, **options: Any) -> None:
    raise ValueError(
        "forward_intermediates: needs every token after each block, expected a model without token "
        "reduction; undo(model) restores it"
    )


class TimmLayers(Layers):
    """`Layers` of a model of timm.

    Args:
        model: A VisionTransformer, or a model of the same structure.

    Raises:
        ValueError: If the model is another one.
    """

    def __init__(self, model: Any) -> None:
        self.layers = list(getattr(model, "blocks", ()))
        self.dim = next(iter(attention_layers(model).values())).qkv.in_features
        self.base, self.embedding = model, getattr(model, "patch_embed", None)
        known = self.layers and hasattr(self.embedding, "proj")
        if not known or not all(self.knows(block, 5) for block in self.layers):
            raise ValueError(
                f"model: {type(model).__name__} is not made of pre-norm blocks on all tokens, "
                "expected a VisionTransformer as timm's; TopK may be applied to others"
            )
        tokens = sum(getattr(model, name, None) is not None for name in _TOKENS)
        self.prefix = getattr(model, "num_prefix_tokens", tokens)
        self.averages = getattr(model, "global_pool", None) == "avg"
        if getattr(getattr(model, "patch_drop", None), "prob", 0.0):
            self.grid_reason = "patch_drop leaves some out in training"
        ratio = getattr(self.embedding, "feat_ratio", None)  # of a hybrid, its convolutions, too
        self.patch = ratio(as_scalar=False) if ratio else self.embedding.proj.kernel_size

    def guard(self) -> Removable | None:
        """Refuse maps of the tokens of several blocks."""
        return _NoMaps(self.base) if hasattr(self.base, "forward_intermediates") else None

    def attend(self, attention: Any, x: Tensor, ask: Ask) -> Tensor:
        """Attention of a module, with its pattern if it has one."""
        query, key, value = heads(attention, x)
        if ask.sources is not None:
            _, key, value = heads(attention, ask.sources)
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
