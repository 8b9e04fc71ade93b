"""Access to the layers of vision models of Hugging Face transformers."""

import sys
from collections.abc import Callable
from inspect import signature
from math import log
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize
from torch.utils.hooks import RemovableHandle
from transformers import PreTrainedModel
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from graphtheory.graph import Grid
from graphtheory.patterns import TopK
from graphtheory.vision.integrations.nearest import SWIN_MASKED, nearest_attention
from graphtheory.vision.integrations.token_hooks import Hooks, Tokens
from graphtheory.vision.integrations.token_layers import (
    AttentionInputs,
    Layers,
    Positions,
    example_of,
    name_of,
    scaling,
)
from graphtheory.vision.integrations.token_rules import Semantic

# Tokens before the patches by `model_type` of a vision tower, or the option that counts them.
_PREFIX: dict[str, int | str] = {
    "vit": 1, "deit": 2, "vit_msn": 1, "vit_mae": 1, "ijepa": 0, "beit": 1, "dinov2": 1,
    "dinov2_with_registers": "num_register_tokens", "dinov3_vit": "num_register_tokens",
    "clip_vision_model": 1, "metaclip_2_vision_model": 1, "siglip_vision_model": 0,
}  # fmt: skip
_WITH_TEXT = ("clip", "metaclip_2", "siglip")  # towers of these are reduced
_EXPECTED = (
    "expected ViT, DeiT, ViT-MSN, ViT-MAE, I-JEPA, BEiT, DINOv2, DINOv3 ViT, CLIP, MetaCLIP 2 or "
    "SigLIP"
)
_AVERAGING = ("Dinov2", "CLIP", "MetaClip2", "Siglip", "IJepa")  # their ForImageClassification
_LEAST = 3  # blocks of a Swin: two that compute tokens, one that updates the patches
_EAGER = "eager_attention_forward"  # of the module of a class, or of the class that it extends
# Attention implementations that add a float mask to the logits.
_ADDING = ("sdpa", "eager", "graphtheory_")


def attend(
    attention: Any, x: Tensor, *args: Any, inputs: AttentionInputs | None = None, **options: Any
) -> tuple[Tensor, Tensor | None]:
    """Attention with the function that the config names; output and weights."""
    if inputs is None:
        return type(attention).forward(attention, x, *args, **options)
    sources = x if inputs.sources is None else inputs.sources
    query = inputs.rotate(heads(attention, x, 0), inputs.rows)
    key = inputs.rotate(heads(attention, sources, 1), inputs.columns)
    inputs.made, mask = (query, key), inputs.mask(query)
    kind = attention.config._attn_implementation
    if mask is not None and not kind.startswith(_ADDING):
        raise ValueError(f"attention: {kind!r} adds no mask, expected sdpa or eager")
    value = heads(attention, sources, 2)
    modules = (sys.modules[own.__module__] for own in type(attention).__mro__)
    eager = next(m.eager_attention_forward for m in modules if hasattr(m, _EAGER))
    function = ALL_ATTENTION_FUNCTIONS.get_interface(kind, eager)
    rate = getattr(attention, "attention_dropout", getattr(attention, "dropout", 0.0))
    out, weights = function(
        attention, query, key, value, mask, scaling=scaling(attention),
        dropout=rate if attention.training else 0.0, **inputs.positions.options,
    )  # fmt: skip
    project = attention.o_proj if hasattr(attention, "o_proj") else attention.out_proj
    return project(out.flatten(2)), weights


class HFLayers(Layers):
    """`Layers` of a model of transformers; `restored` says that every token is there at the end."""

    attend = staticmethod(attend)

    def __init__(self, model: PreTrainedModel, restored: bool = False) -> None:
        self.base = _tower(model, restored)
        config, name = self.base.config, type(model).__name__
        self.layers = list(_layers_of(self.base, name))
        before = _PREFIX[config.model_type]
        self.prefix = before if isinstance(before, int) else 1 + getattr(config, before)
        self.embedding, self.dim = self.base.embeddings, config.hidden_size
        patch = config.patch_size
        self.patch = (patch, patch) if isinstance(patch, int) else tuple(patch)
        # SigLIP's head asks all tokens by attention, to which a merged one is one of many, too.
        asks_all = hasattr(getattr(self.base, "head", None), "probe")
        self.averages = (
            asks_all
            or getattr(config, "use_mean_pooling", False)
            or (name.endswith("ForImageClassification") and name.startswith(_AVERAGING))
        )
        if config.model_type == "vit_mae":
            self.grid_reason = "its patches are shuffled and some are left out"
        for layer in self.layers:
            if not self.matches_forward(layer, self.prefix + 4, **self._example()):
                where = f"its {name_of(layer, model)} ({type(layer).__name__})"
                raise ValueError(f"model: {name} is not built as in transformers 5.23, {where}")

    def _example(self) -> dict[str, Any]:
        """The options that a layer takes with an image of 2 x 2 patches."""
        attention = self.attention(self.layers[0])
        options: dict[str, Any] = {"attention_mask": None}
        if hasattr(self.base, "rope_embeddings"):
            angle = torch.arange(4.0)[:, None].expand(4, attention.head_dim)
            like = example_of(self.layers[0])
            options["position_embeddings"] = (angle.cos().to(like), angle.sin().to(like))
        if hasattr(self.layers[0], "relative_position_bias"):
            options["resolution"] = (2 * self.patch[0], 2 * self.patch[1])
        return options

    def positions(self, layer: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Positions:
        """Relative position biases of BEiT, rotary embeddings of DINOv3."""
        options = dict(options)
        mask = args[0] if args else options.pop("attention_mask", None)
        # Otherwise a mask of nothing, which transformers makes under torch.export: see `guard`.
        bias = None if getattr(self.base, "shared_position_bias", None) is None else mask
        wide = options.pop("interpolate_pos_encoding", False)
        height, width = options.pop("resolution", None) or (0, 0)
        table = getattr(layer, "relative_position_bias", None)
        if table is not None:
            side = (height // self.patch[0], width // self.patch[1])
            own = table(side, wide, dim_size=side[0] * side[1] + self.prefix)
            bias = own if bias is None else own + bias
        turn = options.pop("position_embeddings", None)
        if turn is not None:
            first = turn[0].new_ones(self.prefix, turn[0].size(-1))
            turn = (torch.cat([first, turn[0]]), torch.cat([0 * first, turn[1]]))
        return Positions(bias, turn, options)

    def guard(self) -> RemovableHandle:
        """Refuse a mask that the caller of the model gives."""
        return self.base.register_forward_pre_hook(_refuse_mask, with_kwargs=True)

    def checkpointed(self, layer: Any, step: Callable[..., Any], *tensors: Tensor) -> Any:
        """``step(*tensors)``, by the function of ``gradient_checkpointing_enable`` if it is on."""
        if layer.training and getattr(layer, "gradient_checkpointing", False):
            return layer._gradient_checkpointing_func(step, *tensors)
        return step(*tensors)


def _refuse_mask(tower: Any, args: tuple[Any, ...], options: dict[str, Any]) -> None:
    named = zip(list(signature(tower.forward).parameters), args, strict=False)
    if (dict(named) | options).get("attention_mask") is not None:
        raise ValueError("attention_mask: given, expected none where tokens get fewer")


def heads(attention: Any, x: Tensor, part: int) -> Tensor:
    """Query, key or value (part 0, 1, 2) of tokens x, [B, heads, T, head_dim]."""
    mapped = (attention.q_proj, attention.k_proj, attention.v_proj)[part](x)
    return mapped.unflatten(2, (-1, attention.head_dim)).transpose(1, 2)


def _tower(model: PreTrainedModel, restored: bool) -> Any:
    """The vision tower of a model, if its heads do not need every token."""
    kind, name = model.config.model_type, type(model).__name__
    if "swin" in kind:
        raise ValueError(
            f"model: {name} attends in windows of a whole grid, adds a bias per relative "
            "position and merges 2 x 2 neighbors, so no token may be missing; expected a ViT or "
            "DeiT. TopK can be applied to it, and to a Swin Semantic, which gives all tokens back"
        )
    if kind == "siglip2" or kind.startswith("siglip2_"):
        raise ValueError(
            f"model: {name} pads images to a common number of patches and its head masks the "
            "padding by place, so no token may be missing; expected SigLIP"
        )
    if "text" in kind:
        raise ValueError(f"model: {name} reads text, whose tokens cannot be spared; {_EXPECTED}")
    if kind not in (*_PREFIX, *_WITH_TEXT):
        raise ValueError(f"model: got {name} of model_type {kind!r}, {_EXPECTED}")
    if name.endswith(("Backbone", "ForSemanticSegmentation")):
        raise ValueError(
            f"model: {name} makes maps of the tokens of several layers, so every token is needed "
            "in each; expected a model that reads the class token or a pooled one"
        )
    if name.endswith(("ForMaskedImageModeling", "ForPreTraining")) and not restored:
        raise ValueError(
            f"model: {name} predicts every patch, so it needs every token at the end; expected "
            "Reduce(Merge(...), restore=True), which gives them back"
        )
    for part in model.modules():
        known = isinstance(part, PreTrainedModel) and part.config.model_type in _PREFIX
        if known and hasattr(part, "embeddings"):
            return part
    raise ValueError(f"model: {name} has no vision tower; {_EXPECTED}")


def _layers_of(tower: Any, name: str) -> nn.ModuleList:
    found = [
        layers
        for where in (tower, getattr(tower, "encoder", None), getattr(tower, "model", None))
        for key in ("layers", "layer")
        if isinstance(layers := getattr(where, key, None), nn.ModuleList)
    ]
    if not found:
        raise ValueError(f"model: {name} is not built as in transformers 5.23")
    return found[0]


class SwinHooks(Hooks):
    """Blocks of the deepest stage of a Swin that compute semantic tokens, and go on with them.

    The first two compute semantic tokens, the last one updates the patches from them, those between
    run on the tokens.
    """

    attend = staticmethod(attend)

    def __init__(self, model: PreTrainedModel, what: Semantic) -> None:
        base: Any = model.base_model
        stages = getattr(getattr(base, "encoder", None), "layers", None)
        if stages is None or not hasattr(stages[0].blocks[0].attention, "q_proj"):
            raise ValueError(f"model: {type(model).__name__} is not built as in transformers 5.23")
        blocks = list(max(stages, key=lambda stage: len(stage.blocks)).blocks)
        most = len(blocks) - _LEAST
        if not 0 <= what.base <= most:
            raise ValueError(
                f"base: got {what.base}, expected 0..{most}, for {len(blocks)} blocks in a stage"
            )
        (dim,), like = blocks[0].layernorm_before.normalized_shape, example_of(blocks[0])
        parts = Tokens(what, dim, like).train(model.training)
        super().__init__(base, blocks[what.base :], what, parts=parts)

    def compute(self, which: int, layer: Any, x: Tensor, *args: Any, **options: Any) -> Any:
        size = args[0] if args else options.pop("input_dimensions")
        options.pop("always_partition", None)
        made = self.base.semantic
        if which == 0:
            self.call.patches = x
            centers = made.centers(x.flatten(0, 1), Grid(x.size(0), *size))
            return _block(layer, centers.view(x.size(0), -1, x.size(2)), x, options)
        assert self.call.patches is not None
        patches = self.call.patches.to(x.device)
        if which == 1:
            return _block(layer, made(x), torch.cat([x, patches], 1), options)
        if which < len(self.layers) - 1:
            return _block(layer, x, x, options)
        self.call.patches = None  # keep no tensors of this pass
        return _block(layer, patches, x, options)


def _block(
    block: Any, x: Tensor, sources: Tensor, options: dict[str, Any]
) -> tuple[Tensor, Tensor | None]:
    """A block as cross-attention from x to the sources, without windows."""
    norm = block.layernorm_before
    inputs = AttentionInputs(Positions(None, None, options), norm(sources))
    out, weights = block.attention(norm(x), inputs=inputs)
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
