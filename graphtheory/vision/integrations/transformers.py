"""Hugging Face transformers: convert its models to ours, or patch them in place.

`apply`, `undo` and `from_pretrained` come from `hf_apply`, which alone requires transformers to be
installed.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from graphtheory.vision.integrations.token_hooks import trace
from graphtheory.vision.integrations.token_rules import Reduce, Semantic
from graphtheory.vision.integrations.weights import load_renamed, named_rules
from graphtheory.vision.models.gpt import GPT, gpt_block
from graphtheory.vision.models.swin import Swin, swin
from graphtheory.vision.models.vit import ClassToken, DistilledToken, MeanToken, ViT, vit
from graphtheory.vision.nn.patch import PositionEmbedding
from graphtheory.vision.nn.positions import LearnedPositions

__all__ = ["Reduce", "Semantic", "from_huggingface", "trace"]


def __getattr__(name: str) -> Any:
    if name not in ("apply", "from_pretrained", "undo"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from graphtheory.vision.integrations import hf_apply

    return getattr(hf_apply, name)


_GELU_APPROXIMATIONS = {"gelu_new": "tanh", "gelu_pytorch_tanh": "tanh", "gelu": "none"}
_CONV1D = r".*(?:c_attn|c_proj|c_fc)\.weight"  # Conv1D, whose weight is [in, out]


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
    config: Any = getattr(model, "config", None)
    kind = getattr(config, "model_type", None)
    if kind not in _EMPTY or not isinstance(model, nn.Module):
        raise TypeError(
            f"model: got {type(model).__name__} of model_type {kind!r}, expected a ViT, DeiT, Swin "
            "or GPT-2 of transformers"
        )
    _check_options(config, model.training)
    state, some = model.state_dict(), next(model.parameters())
    with torch.device("meta"):  # no random initialization for weights that are replaced
        ours = _EMPTY[kind](config, state)
    ours.to(some.dtype).to_empty(device=some.device)
    if isinstance(ours, GPT) and isinstance(ours.head, nn.Linear) and config.tie_word_embeddings:
        assert isinstance(ours.embed, nn.Embedding)
        ours.head.weight = ours.embed.weight
    _load(ours, state)
    ours.train(model.training)
    return ours


def _load(model: ViT | Swin | GPT, state: Mapping[str, Tensor]) -> None:
    """Load a state dict of `transformers` into a network of the same shape."""
    if isinstance(model, GPT):
        turned = {n: t.t() if re.fullmatch(_CONV1D, n) else t for n, t in state.items()}
        return load_renamed(model, turned, named_rules("GPT-2"))
    kind = "Swin" if isinstance(model, Swin) else "ViT"
    return load_renamed(model, state, named_rules(f"{kind} of transformers"))


def _check_options(config: Any, training: bool) -> None:
    """Raise ValueError on an option that ours do not have, such as dropout of features."""
    wanted: dict[str, tuple[object, ...]]
    if config.model_type == "gpt2":
        wanted = {
            "activation_function": tuple(_GELU_APPROXIMATIONS), "scale_attn_weights": (True,),
            "scale_attn_by_inverse_layer_idx": (False,), "add_cross_attention": (False,),
        }  # fmt: skip
        if training:
            wanted |= {"embd_pdrop": (0,), "resid_pdrop": (0,)}
    else:
        wanted = {"hidden_act": ("gelu",), "hidden_dropout_prob": (0,)}
        if config.model_type != "swin":
            wanted["pooler_act"] = ("tanh",)
        for name in ("image_size", "patch_size"):
            _side(config, name)
    for name, expected in wanted.items():
        found = getattr(config, name)
        if found not in expected:
            raise ValueError(
                f"config.{name}: got {found!r}, expected {' or '.join(map(repr, expected))}"
                + (" in training mode" if name.endswith("pdrop") else "")
            )


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


def _empty_gpt2(config: Any, state: Mapping[str, Tensor]) -> GPT:
    dim, eps = config.n_embd, config.layer_norm_epsilon
    ratio = (config.n_inner or 4 * dim) / dim
    blocks = [
        gpt_block(dim, config.n_head, mlp_ratio=ratio, eps=eps, dropout=config.attn_pdrop)
        for _ in range(config.n_layer)
    ]
    for block in blocks:
        assert block.mlp is not None
        block.mlp.act = nn.GELU(approximate=_GELU_APPROXIMATIONS[config.activation_function])
    bare = "lm_head.weight" not in state
    head = nn.Identity() if bare else nn.Linear(dim, config.vocab_size, bias=False)
    return GPT(
        nn.Embedding(config.vocab_size, dim), LearnedPositions(config.n_positions, dim), blocks,
        head, norm=nn.LayerNorm(dim, eps),
    )  # fmt: skip


_EMPTY: dict[str, Callable[[Any, Mapping[str, Tensor]], ViT | Swin | GPT]] = {
    "vit": _empty_vit, "deit": _empty_vit, "swin": _empty_swin, "gpt2": _empty_gpt2,
}  # fmt: skip
