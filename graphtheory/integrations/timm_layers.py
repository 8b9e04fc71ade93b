"""Access to the blocks of timm's VisionTransformer, recognized by structure."""

from __future__ import annotations

from inspect import signature
from typing import Any

from torch import Tensor, nn

from graphtheory.integrations.timm_attention import (
    PATTERN,
    attend_and_project,
    attention_layers,
    computes,
    heads,
    set_pattern,
)

_TOKENS = ("cls_token", "dist_token")


class TimmLayers:
    """`hf_reduce.Layers` of a model of timm.

    Args:
        model: A VisionTransformer, or a model of the same structure.

    Raises:
        ValueError: If the model is another one.
    """

    def __init__(self, model: Any) -> None:
        self.layers: list[Any] = list(getattr(model, "blocks", ()))
        attention_layers(model)
        if not self.layers or not all(_is_known_block(block) for block in self.layers):
            raise ValueError(
                f"model: {type(model).__name__} is not made of pre-norm blocks on all tokens, "
                "expected a VisionTransformer as timm's; TopK may be applied to others"
            )
        self.base, self.embedding = model, model.patch_embed
        tokens = sum(getattr(model, name, None) is not None for name in _TOKENS)
        self.prefix: int = getattr(model, "num_prefix_tokens", tokens)
        self.dim: int = model.norm.normalized_shape[0]
        self.patch: tuple[int, int] = tuple(model.patch_embed.proj.kernel_size)

    def norm(self, layer: Any, x: Tensor) -> Tensor:
        """Tokens x after the layer norm before attention."""
        return layer.norm1(x)

    def attention(self, layer: Any) -> nn.Module:
        """The attention of a layer."""
        return layer.attn

    def heads(self, layer: Any, x: Tensor, part: int) -> Tensor:
        """Query, key or value (part 0, 1, 2) of normalized tokens x."""
        return heads(layer.attn, x)[part]

    def scale(self, layer: Any) -> float:
        """Factor of the dot products."""
        return layer.attn.scale

    def attend(
        self, layer: Any, query: Tensor, key: Tensor, value: Tensor, **options: Any
    ) -> Tensor:
        """What the attention of a layer computes."""
        return attend_and_project(layer.attn, query, key, value)

    def release(self, layer: Any) -> None:
        """Restore the `forward` of the attention of a layer, with its pattern if it has one."""
        del layer.attn.forward
        if hasattr(layer.attn, PATTERN):
            set_pattern(layer.attn, getattr(layer.attn, PATTERN))

    def check(self, layer: Any, args: tuple[Any, ...], options: dict[str, Any]) -> None:
        """Raise if a layer is called in a way that token reduction does not support."""
        for given in (*args[1:], *options.values()):
            if given is not None and given is not False:
                raise ValueError("attn_mask: given, expected none where tokens get fewer")
        if layer.training and getattr(self.base, "grad_checkpointing", False):
            raise ValueError("grad_checkpointing: on, expected off where tokens get fewer")

    def masked(
        self, layer: Any, args: tuple[Any, ...], options: dict[str, Any], mask: Tensor
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments of a layer that add the mask [B, 1, T, T] to its logits."""
        if "attn_mask" not in signature(type(layer).forward).parameters:
            raise ValueError("attn_mask: these blocks take none, expected those of a newer timm")
        return args[:1], {"attn_mask": mask}


def _is_known_block(block: Any) -> bool:
    parts = ("norm1", "attn", "norm2", "mlp")
    return all(hasattr(block, p) for p in parts) and computes(
        block, _prenorm, block.attn.qkv.weight
    )


def _prenorm(block: Any, x: Tensor) -> Tensor:
    identity = nn.Identity()  # the released code of DeiT has no scales
    x = x + getattr(block, "ls1", identity)(block.attn(block.norm1(x)))
    return x + getattr(block, "ls2", identity)(block.mlp(block.norm2(x)))
