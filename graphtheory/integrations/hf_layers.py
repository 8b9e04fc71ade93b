"""Access to the layers of ViT and DeiT of Hugging Face transformers."""

from __future__ import annotations

import sys
from typing import Any

from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

PREFIX = {"vit": 1, "deit": 2}  # class token; class and distillation token
# Attention implementations that add a float mask to the logits.
_ADDING = ("sdpa", "eager", "graphtheory_")


class HFLayers:
    """`hf_reduce.Layers` of a model of transformers.

    Args:
        model: A ViT or DeiT.

    Raises:
        ValueError: If the model is another one, or its structure that of another version of
            transformers.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        self.layers, self.prefix = _layers_of(model)
        self.base: Any = model.base_model
        self.embedding: Any = self.base.embeddings
        self.dim: int = model.config.hidden_size
        patch = model.config.patch_size
        self.patch = (patch, patch) if isinstance(patch, int) else tuple(patch)

    def norm(self, layer: Any, x: Tensor) -> Tensor:
        """Tokens x after the layer norm before attention."""
        return layer.layernorm_before(x)

    def attention(self, layer: Any) -> nn.Module:
        """The attention of a layer."""
        return layer.attention

    def heads(self, layer: Any, x: Tensor, part: int) -> Tensor:
        """Query, key or value (part 0, 1, 2) of normalized tokens x."""
        return heads(layer.attention, x, part)

    def scale(self, layer: Any) -> float:
        """Factor of the dot products."""
        return layer.attention.scaling

    def attend(
        self, layer: Any, query: Tensor, key: Tensor, value: Tensor,
        attention_mask: Tensor | None = None, **options: Any,
    ) -> tuple[Tensor, Tensor | None]:  # fmt: skip
        """Output of the attention of a layer."""
        return attend_and_project(layer.attention, query, key, value, attention_mask, **options)

    def release(self, layer: Any) -> None:
        """Restore the `forward` of the attention of a layer."""
        del layer.attention.forward

    def check(self, layer: Any, args: tuple[Any, ...], options: dict[str, Any]) -> None:
        """Raise if a layer is called in a way that token reduction does not support."""
        mask = args[1] if len(args) > 1 else options.get("attention_mask")
        if mask is not None:
            raise ValueError("attention_mask: given, expected none where tokens get fewer")
        if layer.training and getattr(layer, "gradient_checkpointing", False):
            raise ValueError("gradient_checkpointing: on, expected off where tokens get fewer")

    def masked(
        self, layer: Any, args: tuple[Any, ...], options: dict[str, Any], mask: Tensor
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments of a layer that add the mask [B, 1, T, T] to its logits."""
        kind = layer.attention.config._attn_implementation
        if not kind.startswith(_ADDING):
            raise ValueError(f"attention: {kind!r} adds no mask, expected sdpa or eager")
        options = {k: v for k, v in options.items() if k != "attention_mask"}
        return (args[0], mask, *args[2:]), options


def heads(attention: Any, x: Tensor, part: int) -> Tensor:
    """Query, key or value (part 0, 1, 2) of tokens x, [B, heads, T, head_dim]."""
    mapped = (attention.q_proj, attention.k_proj, attention.v_proj)[part](x)
    return mapped.unflatten(2, (-1, attention.head_dim)).transpose(1, 2)


def attend_and_project(
    attention: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None,
    **options: Any,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """Output of the attention function that the config names, and its weights."""
    eager = sys.modules[type(attention).__module__].eager_attention_forward
    attend = ALL_ATTENTION_FUNCTIONS.get_interface(attention.config._attn_implementation, eager)
    out, weights = attend(
        attention, query, key, value, mask, scaling=attention.scaling,
        dropout=attention.attention_dropout if attention.training else 0.0, **options,
    )  # fmt: skip
    return attention.o_proj(out.flatten(2)), weights


def _layers_of(model: PreTrainedModel) -> tuple[list[Any], int]:
    """Layers, and the number of tokens before the patches."""
    kind, name = model.config.model_type, type(model).__name__
    if kind in ("swin", "swinv2", "donut-swin", "maskformer-swin"):
        raise ValueError(
            f"model: {name} attends in windows of a whole grid, adds a bias per relative "
            "position and merges 2 x 2 neighbors, so no token may be missing; expected a ViT or "
            "DeiT. TopK can be applied to it, and to a Swin Semantic, which gives all tokens back"
        )
    if kind not in PREFIX or "MaskedImage" in name:
        raise ValueError(
            f"model: got {name} of model_type {kind!r}, expected a ViT or DeiT that does not need "
            "every token at the end"
        )
    layers = getattr(model.base_model, "layers", None)
    if not isinstance(layers, nn.ModuleList) or not hasattr(layers[0].attention, "q_proj"):
        raise ValueError(f"model: {name} is not built as in transformers 5.23")
    return list(layers), PREFIX[kind]
