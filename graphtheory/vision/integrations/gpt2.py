"""GPT-2 of Hugging Face transformers: conversion of its options and parameter names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from graphtheory.vision.integrations.weights import Rules
from graphtheory.vision.models.gpt import GPT, gpt_block
from graphtheory.vision.nn.sequence_position import LearnedPositions

_TOP = r"(?:transformer\.)?"
_BLOCK = _TOP + r"h\.(\d+)\."
_GELU_APPROXIMATIONS = {"gelu_new": "tanh", "gelu_pytorch_tanh": "tanh", "gelu": "none"}
_CONV1D = r".*(?:c_attn|c_proj|c_fc)\.weight"  # Conv1D, whose weight is [in, out]

RULES: Rules = (
    (_TOP + r"wte\.weight", "embed.weight"),
    (_TOP + r"wpe\.weight", "position.table"),
    (_TOP + r"ln_f\.(\w+)", r"norm.\1"),
    (r"lm_head\.weight", "head.weight"),
    (_BLOCK + r"attn\.(?:masked_)?bias", ""),  # old checkpoints hold the causal mask
    (_BLOCK + r"ln_([12])\.(\w+)", r"blocks.\1.norm\2.\3"),
    (_BLOCK + r"attn\.c_attn\.(\w+)", r"blocks.\1.attention.qkv.\2"),
    (_BLOCK + r"attn\.c_proj\.(\w+)", r"blocks.\1.attention.out.\2"),
    (_BLOCK + r"mlp\.c_fc\.(\w+)", r"blocks.\1.mlp.fc1.\2"),
    (_BLOCK + r"mlp\.c_proj\.(\w+)", r"blocks.\1.mlp.fc2.\2"),
)


def transposed(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The state with Conv1D weights transposed to the layout of `nn.Linear`."""
    return {n: t.t() if re.fullmatch(_CONV1D, n) else t for n, t in state.items()}


def check_options(config: Any, training: bool) -> None:
    """Raise on options that `GPT` does not support.

    Args:
        config: A `GPT2Config`.
        training: Whether the model is in training mode; feature dropout is not supported.

    Raises:
        ValueError: If an option is not supported.
    """
    wanted: dict[str, tuple[object, ...]] = {
        "activation_function": tuple(_GELU_APPROXIMATIONS), "scale_attn_weights": (True,),
        "scale_attn_by_inverse_layer_idx": (False,), "add_cross_attention": (False,),
    }  # fmt: skip
    if training:
        wanted |= {"embd_pdrop": (0,), "resid_pdrop": (0,)}
    for name, expected in wanted.items():
        found = getattr(config, name)
        if found not in expected:
            raise ValueError(
                f"config.{name}: got {found!r}, expected {' or '.join(map(repr, expected))}"
                + (" in training mode" if name.endswith("pdrop") else "")
            )


def empty(config: Any, state: Mapping[str, Tensor]) -> GPT:
    """A model with these options, whose weights are loaded later."""
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


def tie(model: GPT, config: Any) -> None:
    """Tie the weights of head and embedding if the config says so."""
    if config.tie_word_embeddings and isinstance(model.head, nn.Linear):
        assert isinstance(model.embed, nn.Embedding)
        model.head.weight = model.embed.weight
