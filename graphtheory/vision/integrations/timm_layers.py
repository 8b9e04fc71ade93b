"""Attention and blocks of timm's models, and of the code that DeiT and Swin were released with."""

from __future__ import annotations

from inspect import signature
from typing import Any

from torch import Tensor, nn

from graphtheory.nn.attention import record_calls
from graphtheory.patterns import TopK
from graphtheory.vision.integrations.forwards import put_on, take_off
from graphtheory.vision.integrations.nearest import SWIN_MASKED, nearest_attention
from graphtheory.vision.integrations.token_layers import (
    AttentionInputs,
    Layers,
    Positions,
    Removable,
    agrees_with,
)

PATTERN = "_nearest"  # attribute of a layer: its `TopK`
_MAPS = "forward_intermediates"
_FULL = TopK(1.0)
_TABLE = "relative_position_bias_table"
_ARGUMENTS = {"self", "x", "mask", "attn_mask", "is_causal"}


def attention_layers(model: nn.Module) -> dict[str, Any]:
    """All attention modules of a model by name."""
    found = {n: m for n, m in model.named_modules() if hasattr(_get(m, "qkv"), "in_features")}
    for name, layer in found.items():
        if not _is_known_attention(layer):
            raise ValueError(
                f"model: its {name} ({type(layer).__name__}) is no softmax attention of a qkv map "
                "and a proj map to all tokens, as in timm's VisionTransformer and SwinTransformer"
            )
    if not found:
        kind = type(model).__name__
        raise ValueError(f"model: {kind} has no attention with a linear map qkv, expected some")
    return found


def set_pattern(layer: Any, pattern: TopK) -> None:
    """Make a layer attend to the keys that the pattern chooses."""
    setattr(layer, PATTERN, pattern)
    put_on(layer, attend)


def remove_pattern(layer: Any) -> bool:
    """Make a layer attend to all keys again; return whether it had a pattern."""
    return vars(layer).pop(PATTERN, None) is not None and (take_off(layer) or True)


def attend(
    layer: Any, x: Tensor, mask: Tensor | None = None, is_causal: bool = False,
    *, attn_mask: Tensor | None = None, inputs: AttentionInputs | None = None,
) -> Tensor:  # fmt: skip
    """Forward pass of a layer, restricted to its pattern if it has one.

    In timm's Swin `mask` is that of the windows of one image; else it is as `attn_mask`. `inputs`
    take the place of both where tokens get fewer.

    Shapes: x [B, N, C], attn_mask broadcast to [B, heads, N, N] -> [B, N, C].
    """
    out, _ = _attend(layer, x, mask, is_causal, attn_mask=attn_mask, inputs=inputs)
    return _apply(layer, "proj_drop", layer.proj(_apply(layer, "norm", out.flatten(2))))


def _attend(
    layer: Any, x: Tensor, mask: Tensor | None = None, is_causal: bool = False,
    *, attn_mask: Tensor | None = None, inputs: AttentionInputs | None = None,
    weights: bool = False,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """What `attend` projects, [B, N, heads, D], and on request the weights [B, heads, N, S]."""
    if x.dim() != 3:
        raise ValueError(f"x: shape {tuple(x.shape)}, expected [B, N, C]")
    query, key, value = heads(layer, x)
    if inputs is None:
        mask = _mask(layer, mask if attn_mask is None else attn_mask, x)
    else:
        if inputs.sources is not None:
            _, key, value = heads(layer, inputs.sources)
        inputs.made = query, key
        mask = inputs.mask(query)
    drop = _get(layer, "attn_drop")
    return nearest_attention(
        query, key, value, mask, _get(layer, PATTERN) or _FULL, causal=is_causal,
        scale=layer.scale, dropout=drop.p if drop is not None and layer.training else 0.0,
        masked_from=SWIN_MASKED if hasattr(layer, _TABLE) else None, with_weights=weights,
    )  # fmt: skip


def heads(layer: Any, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Query, key and value [B, heads, N, D] of tokens [B, N, C]."""
    qkv = layer.qkv(x).unflatten(2, (3, layer.num_heads, -1)).permute(2, 0, 3, 1, 4)
    query, key, value = qkv.unbind(0)
    return _apply(layer, "q_norm", query), _apply(layer, "k_norm", key), value


def attention_maps(model: nn.Module, *inputs: Any) -> list[Tensor]:
    """Attention weights [B, heads, T, S] of every layer, in evaluation mode; in Swin by window.

    Args:
        model: A model of timm, patched or not; its mode is restored afterwards.
        inputs: Inputs of the model.

    Raises:
        ValueError: If the model has attention of an unknown kind.
    """
    layers = {*attention_layers(model).values()}

    def weights(layer: Any, *args: Any, **options: Any) -> Tensor | None:
        return _attend(layer, *args, **options, weights=True)[1]

    return record_calls(model, layers.__contains__, weights, *inputs)


def _is_known_attention(layer: Any) -> bool:
    if any(_get(layer, name) is None for name in ("proj", "num_heads", "scale")):
        return False
    if not {*signature(type(layer).forward).parameters} <= _ARGUMENTS:  # such as rotary embeddings
        return False
    tokens = layer.relative_position_index.shape[0] if hasattr(layer, _TABLE) else 5
    return agrees_with(layer, attend, tokens, layer.qkv.in_features)


def _mask(layer: Any, mask: Tensor | None, x: Tensor) -> Tensor | None:
    """The mask plus Swin's bias by relative position, [B or 1, heads, N, N]."""
    if not hasattr(layer, _TABLE):
        return mask
    index = layer.relative_position_index
    bias = getattr(layer, _TABLE)[index.flatten()].view(*index.shape, -1).permute(2, 0, 1)[None]
    return bias if mask is None else bias + mask.repeat(len(x) // len(mask), 1, 1)[:, None]


def _get(layer: Any, name: str) -> Any:
    return getattr(layer, name, None)


def _apply(layer: Any, name: str, x: Tensor) -> Tensor:
    part = _get(layer, name)
    return x if part is None else part(x)


class _NoMaps:
    """A model without `forward_intermediates`, which would shape fewer tokens as a whole grid."""

    def __init__(self, model: Any) -> None:
        self.model, self.before = model, vars(model).get(_MAPS)
        model.forward_intermediates = self

    def __call__(self, *args: Any, **options: Any) -> None:
        raise ValueError(
            "forward_intermediates: needs every token after each block, expected a model without "
            "token reduction; undo(model) restores it"
        )

    def remove(self) -> None:
        del self.model.forward_intermediates
        if self.before is not None:
            self.model.forward_intermediates = self.before


class TimmLayers(Layers):
    """`Layers` of a model of timm."""

    attend = staticmethod(attend)

    def __init__(self, model: Any) -> None:
        self.layers = list(getattr(model, "blocks", ()))
        self.dim = next(iter(attention_layers(model).values())).qkv.in_features
        self.base, self.embedding = model, getattr(model, "patch_embed", None)
        known = self.layers and hasattr(self.embedding, "proj")
        if not known or not all(self.matches_forward(block, 5) for block in self.layers):
            raise ValueError(
                f"model: {type(model).__name__} is not made of pre-norm blocks on all tokens, "
                "expected a VisionTransformer as timm's; TopK may be applied to others"
            )
        tokens = sum(_get(model, name) is not None for name in ("cls_token", "dist_token"))
        self.prefix = getattr(model, "num_prefix_tokens", tokens)
        self.averages = getattr(model, "global_pool", None) == "avg"
        if getattr(getattr(model, "patch_drop", None), "prob", 0.0):
            self.grid_reason = "patch_drop leaves some out in training"
        ratio = getattr(self.embedding, "feat_ratio", None)  # of a hybrid, its convolutions, too
        self.patch = ratio(as_scalar=False) if ratio else self.embedding.proj.kernel_size

    def guard(self) -> Removable | None:
        """Refuse maps of the tokens of several blocks."""
        return _NoMaps(self.base) if hasattr(self.base, _MAPS) else None

    def scale(self, layer: Any) -> float:
        return layer.attn.scale

    def positions(self, layer: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Positions:
        """None; masks and gradient checkpointing are refused."""
        for given in (*args, *options.values()):
            if given is not None and given is not False:
                raise ValueError("attn_mask: given, expected none where tokens get fewer")
        if layer.training and getattr(self.base, "grad_checkpointing", False):
            raise ValueError("grad_checkpointing: on, expected off where tokens get fewer")
        return Positions(None, None, {})
