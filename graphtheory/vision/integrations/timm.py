"""timm: load its state dicts, and patch its models with k-NN attention or token reduction.

timm is not imported. Models with the same structure as its ViT, DeiT and Swin work, too, such as
the code that DeiT and Swin were released with.
"""

import re
from collections.abc import Mapping
from inspect import signature
from typing import Any

from torch import Tensor, nn

from graphtheory.nn.attention import record_calls
from graphtheory.patterns import TopK
from graphtheory.vision.integrations.nearest import SWIN_MASKED, nearest_attention
from graphtheory.vision.integrations.token_hooks import (
    ReductionHooks,
    SemanticHooks,
    install,
    trace,
    uninstall,
)
from graphtheory.vision.integrations.token_layers import (
    AttentionInputs,
    Layers,
    Positions,
    Removable,
    agrees_with,
    guard,
    put_on,
    require_free,
    take_off,
    through,
)
from graphtheory.vision.integrations.token_rules import Reduce, Semantic, What, as_rule
from graphtheory.vision.integrations.weights import load_renamed, named_rules, refuse_foreign
from graphtheory.vision.models.swin import Swin
from graphtheory.vision.models.vit import ViT

__all__ = ["Reduce", "Semantic", "apply", "attention_maps", "load_timm", "trace", "undo"]

PATTERN = "_nearest"  # attribute of a layer: its `TopK`
_MAPS = "forward_intermediates"
_FULL = TopK(1.0)
_TABLE = "relative_position_bias_table"
_ARGUMENTS = {"self", "x", "mask", "attn_mask", "is_causal"}
_DOWNSAMPLE = re.compile(r"layers\.(\d+)\.downsample\.")


def load_timm(model: ViT | Swin, state: Mapping[str, Tensor]) -> None:
    """Load the state dict of a ViT, DeiT or Swin of timm into a network of the same shape.

    timm merges patches at the beginning of a stage, the released code of Swin at the end of the
    previous one; both are supported.

    Args:
        model: Such as ``vit_small()`` for timm's ``vit_small_patch16_224``.
        state: The state dict.

    Raises:
        TypeError: If the state is no state dict.
        ValueError: If names are missing or unexpected, or shapes differ; the first ones are listed,
            and the model is not changed.
    """
    refuse_foreign(state)
    if not isinstance(model, Swin):
        return load_renamed(model, state, named_rules("ViT of timm"))
    merging = {int(match[1]) for name in state if (match := _DOWNSAMPLE.match(name))}
    at_beginning = 0 if 0 in merging or not merging else 1

    def stage_before(match: re.Match[str]) -> str:
        return f"layers.{int(match[1]) - at_beginning}.downsample."

    renamed = {_DOWNSAMPLE.sub(stage_before, name): tensor for name, tensor in state.items()}
    return load_renamed(model, renamed, named_rules("Swin of timm"))


def apply(model: nn.Module, what: What) -> list[str]:
    """Patch a model of timm in place: k-NN attention or token reduction.

    As `integrations.transformers.apply` for models of `transformers`: class, weights, mode and
    state-dict keys stay, a second call replaces the first of its kind, and one of each kind may be
    applied. `attention_maps` returns the attention weights.

    `TopK` works with softmax attention that has linear maps `qkv` and `proj`, as in
    VisionTransformer, DeiT and SwinTransformer. `Keep`, `Fuse`, `Merge`, `Reduce` and `Semantic`
    work with models of pre-norm blocks, as VisionTransformer and DeiT, whose class, distillation
    and register tokens are kept. A head that averages the patches weights merged ones by their
    number.

    Args:
        model: Such as ``timm.create_model("vit_small_patch16_224")``.
        what: Such as ``TopK(0.5)``, ``Merge(8)``, ``{4: Keep(0.7), 7: Keep(0.7)}``.

    Returns:
        Names of the attention modules that were patched; attention without a `qkv` map stays as it
        is. An empty list for token reduction.

    Raises:
        TypeError: If `model` is not a module, or `what` is none of the above.
        ValueError: If the model is not supported, with the reason; it is not changed then. With
            token reduction: a mask, gradient checkpointing in training, `forward_intermediates`.

    Example:
        >>> model = timm.create_model("vit_tiny_patch16_224")  # doctest: +SKIP
        >>> len(apply(model, TopK(0.5)))  # doctest: +SKIP
        12
        >>> undo(model)  # doctest: +SKIP
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model: got {type(model).__name__}, expected a model of timm")
    rule = as_rule(what)
    if isinstance(rule, TopK):
        layers = attention_layers(model)
        require_free(model, layers.values())
        for layer in layers.values():
            setattr(layer, PATTERN, rule)
            put_on(layer, attend)
        guard(model, layers.values())
        return list(layers)
    read = TimmLayers(model)
    made = ReductionHooks if isinstance(rule, Reduce) else SemanticHooks
    install(model, made(read, rule))  # type: ignore[arg-type]
    return []


def undo(model: nn.Module) -> None:
    """Restore the attention and the tokens that a model had before `apply`.

    Raises:
        ValueError: If nothing was applied to this model.
    """
    guard(model, ())
    found = uninstall(model)
    for layer in model.modules():
        if vars(layer).pop(PATTERN, None) is not None:
            found = True
            take_off(layer)
    if not found:
        raise ValueError(f"model: nothing was applied to this {type(model).__name__}")


def attention_layers(model: nn.Module) -> dict[str, Any]:
    """All attention modules of a model by name."""
    found = {n: m for n, m in model.named_modules() if _width(m)}
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


def attend(layer: Any, x: Tensor, *args: Any, **options: Any) -> Tensor:
    """Forward pass of a layer, restricted to its pattern if it has one.

    In timm's Swin `mask` is that of the windows of one image; else it is as `attn_mask`. `inputs`
    take the place of both where tokens get fewer.

    Shapes: x [B, N, C], attn_mask broadcast to [B, heads, N, N] -> [B, N, C].
    """
    out, _ = _attend(layer, x, *args, **options)
    return through(layer, ("norm", "proj", "proj_drop"), out.flatten(2))


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
    drop = getattr(layer, "attn_drop", None)
    return nearest_attention(
        query, key, value, mask, getattr(layer, PATTERN, None) or _FULL, causal=is_causal,
        scale=layer.scale, dropout=drop.p if drop is not None and layer.training else 0.0,
        masked_from=SWIN_MASKED if hasattr(layer, _TABLE) else None, with_weights=weights,
    )  # fmt: skip


def heads(layer: Any, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Query, key and value [B, heads, N, D] of tokens [B, N, C]."""
    qkv = layer.qkv(x).unflatten(2, (3, layer.num_heads, -1)).permute(2, 0, 3, 1, 4)
    query, key, value = qkv.unbind(0)
    return through(layer, ("q_norm",), query), through(layer, ("k_norm",), key), value


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


def _width(layer: Any) -> int:
    """Features of a token; 0 without linear maps. A low-rank map may hide its linear one."""
    qkv, proj = getattr(layer, "qkv", None), getattr(layer, "proj", None)
    other = isinstance(qkv, nn.Module) and not hasattr(qkv, "in_channels")  # no convolution
    wide = getattr(proj, "in_features", 0) if other else 0
    return int(getattr(qkv, "in_features", wide))


def _is_known_attention(layer: Any) -> bool:
    if any(getattr(layer, name, None) is None for name in ("proj", "num_heads", "scale")):
        return False
    if not {*signature(type(layer).forward).parameters} <= _ARGUMENTS:  # such as rotary embeddings
        return False
    tokens = layer.relative_position_index.shape[0] if hasattr(layer, _TABLE) else 5
    return agrees_with(layer, attend, tokens, _width(layer))


def _mask(layer: Any, mask: Tensor | None, x: Tensor) -> Tensor | None:
    """The mask plus Swin's bias by relative position, [B or 1, heads, N, N]."""
    if not hasattr(layer, _TABLE):
        return mask
    index = layer.relative_position_index
    bias = getattr(layer, _TABLE)[index.flatten()].view(*index.shape, -1).permute(2, 0, 1)[None]
    return bias if mask is None else bias + mask.repeat(len(x) // len(mask), 1, 1)[:, None]


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
        self.dim = _width(next(iter(attention_layers(model).values())))
        self.base, self.embedding = model, getattr(model, "patch_embed", None)
        known = self.layers and hasattr(self.embedding, "proj")
        if not known or not all(self.matches_forward(block, 5) for block in self.layers):
            raise ValueError(
                f"model: {type(model).__name__} is not made of pre-norm blocks on all tokens, "
                "expected a VisionTransformer as timm's; TopK may be applied to others"
            )
        tokens = sum(getattr(model, name, None) is not None for name in ("cls_token", "dist_token"))
        self.prefix = getattr(model, "num_prefix_tokens", tokens)
        self.averages = getattr(model, "global_pool", None) == "avg"
        if getattr(getattr(model, "patch_drop", None), "prob", 0.0):
            self.grid_reason = "patch_drop leaves some out in training"
        ratio = getattr(self.embedding, "feat_ratio", None)  # of a hybrid, its convolutions, too
        self.patch = ratio(as_scalar=False) if ratio else self.embedding.proj.kernel_size

    def guard(self) -> Removable | None:
        """Refuse maps of the tokens of several blocks."""
        return _NoMaps(self.base) if hasattr(self.base, _MAPS) else None

    def positions(self, layer: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Positions:
        """None; masks and gradient checkpointing are refused."""
        for given in (*args, *options.values()):
            if given is not None and given is not False:
                raise ValueError("attn_mask: given, expected none where tokens get fewer")
        if layer.training and getattr(self.base, "grad_checkpointing", False):
            raise ValueError("grad_checkpointing: on, expected off where tokens get fewer")
        return Positions(None, None, {})
