"""Hugging Face transformers: convert its models to ours, or patch them in place.

`apply`, `undo`, `from_pretrained` and `Applied` come from `hf_attention`, which alone requires
transformers to be installed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from graphtheory.vision.integrations import gpt2
from graphtheory.vision.integrations.hf_reduce import Reduce, trace
from graphtheory.vision.integrations.hf_semantic import Semantic
from graphtheory.vision.integrations.weights import Rules, load_renamed
from graphtheory.vision.models.gpt import GPT
from graphtheory.vision.models.readout import ClassToken, DistilledToken, MeanToken
from graphtheory.vision.models.swin import Swin, swin
from graphtheory.vision.models.vit import ViT, vit
from graphtheory.vision.nn.patch import PositionEmbedding

__all__ = ["Reduce", "Semantic", "from_huggingface", "load_huggingface", "trace"]


def __getattr__(name: str) -> Any:
    if name not in ("Applied", "apply", "from_pretrained", "undo"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from graphtheory.vision.integrations import hf_attention

    return getattr(hf_attention, name)


# Checkpoints on disk use the names before the bar, models of version 5 those after it.
_VIT = r"(?:vit\.|deit\.)?"
_SWIN = r"(?:swin\.)?"
_BLOCK = _VIT + r"(?:encoder\.layer|layers)\.(\d+)\."
_SWIN_BLOCK = _SWIN + r"encoder\.layers\.(\d+)\.blocks\.(\d+)\."


def _block_rules(prefix: str, ours: str) -> list[tuple[str, str]]:
    """Rules of one kind of block; `ours` names it up to its parts."""
    last = r"\.(weight|bias)"
    end = "." + "\\" + str(prefix.count("(\\d+)") + 1)
    qkv = [
        (rf"attention\.(?:attention\.|self\.){name}", rf"attention\.{name[0]}_proj", i)
        for i, name in enumerate(("query", "key", "value"))
    ]
    parts = [
        (r"attention\.output\.dense|attention\.o_proj", "attention.out", ""),
        (r"intermediate\.dense|mlp\.fc1", "mlp.fc1", ""),
        (r"output\.dense|mlp\.fc2", "mlp.fc2", ""),
        ("layernorm_before", "norm1", ""),
        ("layernorm_after", "norm2", ""),
        *((f"{old}|{new}", "attention.qkv", f"#{i}") for old, new, i in qkv),
    ]
    return [(f"{prefix}(?:{theirs}){last}", ours + own + end + part) for theirs, own, part in parts]


_VIT_RULES: Rules = (
    (_VIT + r"embeddings\.cls_token", "embed.prefix#0"),
    (_VIT + r"embeddings\.distillation_token", "embed.prefix#1"),
    (_VIT + r"embeddings\.position_embeddings", "embed.position.table"),
    (_VIT + r"embeddings\.patch_embeddings\.projection\.(\w+)", r"embed.patch.projection.\1"),
    (_VIT + r"layernorm\.(\w+)", r"norm.\1"),
    (_VIT + r"pooler\.dense\.(\w+)", r"head.output.0.\1"),
    (r"(?:cls_)?classifier\.(\w+)", r"head.output.\1"),
    (r"distillation_classifier\.(\w+)", r"head.distilled.\1"),
    *_block_rules(_BLOCK, r"blocks.\1."),
)
_SWIN_RULES: Rules = (
    (_SWIN + r"embeddings\.patch_embeddings\.projection\.(\w+)", r"patch.projection.\1"),
    (_SWIN + r"embeddings\.norm\.(\w+)", r"patch.norm.\1"),
    (_SWIN + r"embeddings\.position_embeddings", "position.table"),
    (_SWIN + r"layernorm\.(\w+)", r"norm.\1"),
    (r"classifier\.(\w+)", r"head.output.\1"),
    (_SWIN + r"encoder\.layers\.(\d+)\.downsample\.(.*)", r"stages.\1.merge.\2"),
    (
        _SWIN_BLOCK + r"attention\.\w+\.relative_position_bias_table",
        r"stages.\1.blocks.\2.attention.bias.table",
    ),
    (_SWIN_BLOCK + r"attention\.\w+\.relative_position_index", ""),
    *_block_rules(_SWIN_BLOCK, r"stages.\1.blocks.\2."),
)


def from_huggingface(model: Any) -> ViT | Swin | GPT:
    """A network of ours with the weights of a ViT, DeiT, Swin or GPT-2 of `transformers`.

    Of a model for classification it gives the logits, of a base model the pooled vector, where it
    has a pooler; `tokens` gives the last hidden state of either. Images may have any size, with
    positions interpolated as ``interpolate_pos_encoding=True`` does. Two differences: a Swin whose
    windows do not divide the grid does not attend to padding, which `transformers` leaves unmasked,
    and its stochastic depth skips both branches of a block, there only the first.

    A GPT-2 with a head gives the logits of every token, without one the last hidden state. Its
    `attention_mask` is our `mask`. Places count the tokens that the mask leaves, as `generate` of
    `transformers` does; their model itself, asked without `position_ids`, counts padding too.

    Args:
        model: A `ViTModel`, `ViTForImageClassification`, `DeiTModel`, `DeiTForImageClassification`,
            `DeiTForImageClassificationWithTeacher`, `SwinModel`, `SwinForImageClassification`,
            `GPT2Model` or `GPT2LMHeadModel`.

    Returns:
        A copy on the model's device, in its dtype and mode.

    Raises:
        TypeError: If the model is of another kind.
        ValueError: If an option is not supported, such as an activation that is not GELU or, in
            training mode, dropout of features; weights of another task.

    Example:
        >>> from transformers import ViTConfig, ViTForImageClassification  # doctest: +SKIP
        >>> theirs = ViTForImageClassification(ViTConfig(num_labels=10))  # doctest: +SKIP
        >>> from_huggingface(theirs)(torch.randn(1, 3, 224, 224)).shape  # doctest: +SKIP
        torch.Size([1, 10])
    """
    config = getattr(model, "config", None)
    kind = getattr(config, "model_type", None)
    if kind not in ("vit", "deit", "swin", "gpt2") or not isinstance(model, nn.Module):
        raise TypeError(
            f"model: got {type(model).__name__} of model_type {kind!r}, expected a ViT, DeiT, Swin "
            "or GPT-2 of transformers"
        )
    state, some = model.state_dict(), next(model.parameters())
    if kind == "gpt2":
        gpt2.check_options(config, model.training)
    else:
        _check_options(config)
    makers: dict[str, Callable[[Any, Mapping[str, Tensor]], ViT | Swin | GPT]]
    makers = {"swin": _empty_swin, "gpt2": gpt2.empty}
    make = makers.get(kind, _empty_vit)
    with torch.device("meta"):  # no random initialization for weights that are replaced
        ours = make(config, state)
    ours.to(some.dtype).to_empty(device=some.device)
    if isinstance(ours, GPT):
        gpt2.tie(ours, config)
    load_huggingface(ours, state)
    ours.train(model.training)
    return ours


def load_huggingface(model: ViT | Swin | GPT, state: Mapping[str, Tensor]) -> None:
    """Load a state dict of `transformers`, of a model or of a checkpoint on disk.

    Args:
        model: A network of the same shape.
        state: The state dict.

    Raises:
        ValueError: If names are missing or unexpected, or shapes differ; all are listed.
    """
    if isinstance(model, GPT):
        return load_renamed(model, gpt2.transposed(state), gpt2.RULES)
    return load_renamed(model, state, _SWIN_RULES if isinstance(model, Swin) else _VIT_RULES)


def _check_options(config: Any) -> None:
    wanted = {"hidden_act": "gelu", "hidden_dropout_prob": 0}
    if config.model_type != "swin":
        wanted["pooler_act"] = "tanh"
    for name, expected in wanted.items():
        found = getattr(config, name)
        if found != expected:
            raise ValueError(f"config.{name}: got {found!r}, expected {expected!r}")
    for name in ("image_size", "patch_size"):
        _side(config, name)


def _side(config: Any, name: str) -> int:
    given = getattr(config, name)
    sides = {given} if isinstance(given, int) else set(given)
    if len(sides) != 1:
        raise ValueError(f"config.{name}: got {given}, expected a square")
    return sides.pop()


def _empty_vit(config: Any, state: Mapping[str, Tensor]) -> ViT:
    dim = config.hidden_size
    distilled = config.model_type == "deit"
    model = vit(
        dim, config.num_hidden_layers, config.num_attention_heads,
        image_size=_side(config, "image_size"),
        patch_size=_side(config, "patch_size"), in_channels=config.num_channels,
        readout=DistilledToken if distilled else ClassToken,
        mlp_ratio=config.intermediate_size / dim, eps=config.layer_norm_eps,
        qkv_bias=config.qkv_bias, dropout=config.attention_probs_dropout_prob,
    )  # fmt: skip
    model.norm.eps, model.head = config.layer_norm_eps, _vit_head(dim, state)
    return model


def _vit_head(dim: int, state: Mapping[str, Tensor]) -> nn.Module:
    sizes = {name.rpartition(".")[0]: len(t) for name, t in state.items() if t.dim() == 2}
    if "distillation_classifier" in sizes:
        return DistilledToken.linear(dim, sizes["cls_classifier"])
    if "classifier" in sizes:
        return ClassToken.linear(dim, sizes["classifier"])
    if "pooler.dense" in sizes:
        return ClassToken(nn.Sequential(nn.Linear(dim, sizes["pooler.dense"]), nn.Tanh()))
    return ClassToken()


def _empty_swin(config: Any, state: Mapping[str, Tensor]) -> Swin:
    model = swin(
        config.embed_dim, config.depths, config.num_heads,
        window=config.window_size, patch_size=_side(config, "patch_size"),
        in_channels=config.num_channels, drop_path=config.drop_path_rate,
        mlp_ratio=config.mlp_ratio, eps=config.layer_norm_eps, qkv_bias=config.qkv_bias,
        dropout=config.attention_probs_dropout_prob,
    )  # fmt: skip
    model.norm.eps = config.layer_norm_eps
    if config.use_absolute_embeddings:
        side = _side(config, "image_size") // _side(config, "patch_size")
        model.position = PositionEmbedding(config.embed_dim, side, side)
    classes = state.get("classifier.weight")
    dim = model.norm.normalized_shape[0]
    model.head = MeanToken() if classes is None else MeanToken.linear(dim, len(classes))
    return model
