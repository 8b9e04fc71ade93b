"""Attention of timm's models, and of the code that DeiT and Swin were released with, by structure.

timm is not imported: a layer is taken by what it has and by what it gives.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn

from graphtheory.integrations.nearest import FAR_IN_WINDOWS, nearest_attention
from graphtheory.modes import evaluating
from graphtheory.patterns import TopK

PATTERN = "_nearest"  # attribute of a layer: its `TopK`
_NOTED = "_noted_weights"  # attribute of a layer: where its weights go
_PUT = {"forward", PATTERN}  # what is put into a layer
_ALL = TopK(1.0)
_TABLE = "relative_position_bias_table"
_TAKEN = {"self", "x", "mask", "attn_mask", "is_causal"}
_MOST = 0.02  # of the norm, by which half precision may differ from itself


def attention_layers(model: nn.Module) -> dict[str, Any]:
    """Every attention of a model by name, if all of them are known.

    Raises:
        ValueError: A layer with a map `qkv` that computes something else, or no such layer.
    """
    found = {name: m for name, m in model.named_modules() if isinstance(_of(m, "qkv"), nn.Linear)}
    for name, layer in found.items():
        if not _is_known_attention(layer):
            kind = type(layer).__name__
            raise ValueError(
                f"model: its {name}, a {kind}, is no softmax attention of a qkv map and a proj map "
                "to all tokens, as in timm's VisionTransformer and SwinTransformer"
            )
    if not found:
        kind = type(model).__name__
        raise ValueError(f"model: {kind} has no attention with a linear map qkv, expected some")
    return found


def put_in(layer: Any, pattern: TopK) -> None:
    """Let a layer attend to the nearest."""
    setattr(layer, PATTERN, pattern)
    if "forward" not in vars(layer):  # else semantic tokens are in it, which read the pattern
        layer.forward = partial(attend, layer)


def take_out(layer: Any) -> bool:
    """Let a layer attend to all; whether it did not."""
    if vars(layer).pop(PATTERN, None) is None:
        return False
    made = vars(layer).get("forward")
    if isinstance(made, partial) and made.func is attend:
        del layer.forward
    return True


def attend(
    layer: Any,
    x: Tensor,
    mask: Tensor | None = None,
    is_causal: bool = False,
    *,
    attn_mask: Tensor | None = None,
) -> Tensor:
    """What a layer gives, of the nearest alone where it has a pattern.

    Args:
        layer: Known; see `attention_layers`.
        x: Tokens of each image, or of each window.
        mask: Of timm's Swin, of the windows of one image [windows, N, N]; else as `attn_mask`.
        is_causal: Whether a token sees no later one.
        attn_mask: Bool (True may be seen) or added to the logits.

    Shapes: x [B, N, C], attn_mask broadcast to [B, heads, N, N] -> [B, N, C].
    """
    if x.dim() != 3:
        raise ValueError(f"x: shape {tuple(x.shape)}, expected [B, N, C]")
    mask = _mask(layer, mask if attn_mask is None else attn_mask, x)
    return sums(layer, *heads(layer, x), mask, causal=is_causal)


def heads(layer: Any, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Query, key and value [B, heads, N, D] of tokens [B, N, C]."""
    qkv = layer.qkv(x).unflatten(2, (3, layer.num_heads, -1)).permute(2, 0, 3, 1, 4)
    query, key, value = qkv.unbind(0)
    return _by(layer, "q_norm", query), _by(layer, "k_norm", key), value


def sums(
    layer: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None,
    *, causal: bool = False,
) -> Tensor:  # fmt: skip
    """What a layer makes of them, [B, T, C]."""
    drop, noted = _of(layer, "attn_drop"), _of(layer, _NOTED)
    out, weights = nearest_attention(
        query, key, value, mask, _of(layer, PATTERN) or _ALL, causal=causal, scale=layer.scale,
        dropout=drop.p if drop is not None and layer.training else 0.0,
        far=FAR_IN_WINDOWS if hasattr(layer, _TABLE) else None, with_weights=noted is not None,
    )  # fmt: skip
    if noted is not None:
        noted.append(weights)
    return _by(layer, "proj_drop", layer.proj(_by(layer, "norm", out.flatten(2))))


@torch.no_grad()
def attention_maps(model: nn.Module, *inputs: Any) -> list[Tensor]:
    """Attention weights [B, heads, T, S] of every layer, in evaluation mode; in Swin by window.

    Args:
        model: Of timm, with `apply` or without; its mode is the same afterwards.
        inputs: What the model takes.

    Raises:
        ValueError: A model with an attention that is not known.
    """
    layers, found = attention_layers(model).values(), list[Tensor]()
    plain = [layer for layer in layers if "forward" not in vars(layer)]
    for layer in layers:
        setattr(layer, _NOTED, found)
    for layer in plain:
        layer.forward = partial(attend, layer)
    try:
        with evaluating(model):
            model(*inputs)
    finally:
        for layer in plain:
            del layer.forward
        for layer in layers:
            delattr(layer, _NOTED)
    return found


def _is_known_attention(layer: Any) -> bool:
    if any(_of(layer, name) is None for name in ("proj", "num_heads", "scale")):
        return False
    if not {*signature(type(layer).forward).parameters} <= _TAKEN:  # such as rotations of places
        return False
    tokens = layer.relative_position_index.shape[0] if hasattr(layer, _TABLE) else 5
    return gives(layer, attend, layer.qkv.weight, tokens)


@torch.no_grad()
def gives(layer: Any, formula: Callable[..., Tensor], weight: Tensor, tokens: int = 5) -> bool:
    """Whether a layer as it was made gives what a formula of it does, of some random tokens.

    Args:
        layer: Of any class.
        formula: Takes the layer and tokens [2, `tokens`, features].
        weight: Of the map that the tokens come to first.
        tokens: How many.
    """
    drawn = torch.Generator().manual_seed(0)
    x = torch.randn(2, tokens, weight.size(1), generator=drawn).to(weight)
    kept = [
        (m, {n: vars(m).pop(n) for n in _PUT & vars(m).keys()} | {"training": m.training})
        for m in layer.modules()
    ]
    try:
        layer.eval()
        found, known = type(layer).forward(layer, x), formula(layer, x)
    except (TypeError, ValueError, RuntimeError, AttributeError):
        return False
    finally:
        for part, own in kept:
            vars(part).update(own)
    same = found.shape == known.shape
    return same and bool((found - known).norm() <= _MOST * found.norm())


def _mask(layer: Any, mask: Tensor | None, x: Tensor) -> Tensor | None:
    """The mask with Swin's bias by relative position, [B or 1, heads, N, N]."""
    if not hasattr(layer, _TABLE):
        return mask
    index = layer.relative_position_index
    bias = getattr(layer, _TABLE)[index.flatten()].view(*index.shape, -1).permute(2, 0, 1)[None]
    return bias if mask is None else bias + mask.repeat(len(x) // len(mask), 1, 1)[:, None]


def _of(layer: Any, name: str) -> Any:
    return getattr(layer, name, None)


def _by(layer: Any, name: str, x: Tensor) -> Tensor:
    part = _of(layer, name)
    return x if part is None else part(x)
