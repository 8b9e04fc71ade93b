"""The networks of `transformers`, with random weights, are the oracle of ours."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from graphtheory.vision.integrations import transformers
from graphtheory.vision.integrations.transformers import _load, from_huggingface
from graphtheory.vision.models import vit_pico
from tests.vision.integrations.conftest import drawn, pixels

hf = pytest.importorskip("transformers")

SIZES = {"num_hidden_layers": 2, "num_attention_heads": 2, "hidden_size": 16}
VIT = {**SIZES, "intermediate_size": 24, "image_size": 32, "patch_size": 8, "num_labels": 5}
SWIN = {
    "embed_dim": 8, "depths": [2, 2], "num_heads": [2, 4], "image_size": 32, "patch_size": 2,
    "window_size": 4, "num_labels": 5,
}  # fmt: skip
CLASSIFIERS = [
    (hf.ViTForImageClassification, hf.ViTConfig(**VIT)),
    (hf.DeiTForImageClassification, hf.DeiTConfig(**VIT)),
    (hf.DeiTForImageClassificationWithTeacher, hf.DeiTConfig(**VIT, qkv_bias=False)),
    (hf.SwinForImageClassification, hf.SwinConfig(**SWIN)),
    (
        hf.SwinForImageClassification,  # with more relative positions than a byte counts
        hf.SwinConfig(**{**SWIN, "window_size": 9, "image_size": 36}, use_absolute_embeddings=True),
    ),
]
BASES = [
    (hf.ViTModel, hf.ViTConfig(**VIT)),
    (partial(hf.ViTModel, add_pooling_layer=False), hf.ViTConfig(**VIT)),
    (hf.DeiTModel, hf.DeiTConfig(**VIT)),
    (hf.SwinModel, hf.SwinConfig(**SWIN)),
]


def made(kind: Callable[..., nn.Module], config: object) -> nn.Module:
    """A new model, for a Swin keeps the shifts of the smallest image that it has seen."""
    return drawn(kind(config))


@pytest.mark.parametrize(("kind", "config"), CLASSIFIERS)
def test_logits_are_equal(kind: type, config: Any) -> None:
    theirs = made(kind, config)
    ours = from_huggingface(theirs)
    images = pixels(config.image_size, config.image_size)
    torch.testing.assert_close(ours(images), theirs(images).logits, atol=1e-4, rtol=0)
    assert sum(p.numel() for p in ours.parameters()) == sum(p.numel() for p in theirs.parameters())


@pytest.mark.parametrize(("kind", "config"), CLASSIFIERS[:4])
@pytest.mark.parametrize("size", [(64, 64), (32, 64), (16, 48)])
def test_logits_are_equal_at_other_sizes(kind: type, config: Any, size: tuple[int, int]) -> None:
    theirs, images = made(kind, config), pixels(*size)
    ours = from_huggingface(theirs)
    logits = theirs(images, interpolate_pos_encoding=True).logits
    torch.testing.assert_close(ours(images), logits, atol=1e-4, rtol=0)


@pytest.mark.parametrize(("kind", "config"), BASES)
def test_base_models_give_hidden_state_and_pooled_vector(kind: type, config: Any) -> None:
    theirs, images = made(kind, config), pixels(32, 32)
    ours = from_huggingface(theirs)
    expected = theirs(images)
    torch.testing.assert_close(ours.tokens(images), expected[0], atol=1e-4, rtol=0)
    if theirs.pooler is not None:
        torch.testing.assert_close(ours(images), expected.pooler_output, atol=1e-4, rtol=0)


@pytest.mark.parametrize(("kind", "config"), [CLASSIFIERS[1], CLASSIFIERS[3]])
def test_attention_is_equal(kind: type, config: Any) -> None:
    theirs = made(kind, config)
    theirs.set_attn_implementation("eager")
    images = pixels(32, 32)
    wanted = theirs(images, output_attentions=True).attentions[-1]  # [sets, heads, dst, src]
    found = from_huggingface(theirs).attention_maps(images)[-1]
    squares = found.weights.square().sum(0)
    torch.testing.assert_close(squares, wanted.square().sum((0, 2, 3)), atol=1e-4, rtol=1e-4)


def mask_padding(layer: nn.Module, side: int) -> None:
    """Keep a Swin layer of `transformers` on a grid of `side` x `side` off the zeros around it."""
    plain = layer.get_attn_mask

    def masked(height: int, width: int, dtype: torch.dtype, device: torch.device) -> Tensor:
        row, column = ((torch.arange(n) + layer.shift_size) % n for n in (height, width))
        outside = (row >= side)[:, None] | (column >= side)
        windows = outside.unfold(0, layer.window_size, layer.window_size)
        windows = windows.unfold(1, layer.window_size, layer.window_size).flatten(2).flatten(0, 1)
        known = plain(height, width, dtype, device)
        added = -100.0 * windows.to(dtype)[:, None].expand(-1, windows.size(1), -1)
        return added if known is None else known + added

    layer.get_attn_mask = masked


def test_windows_do_not_attend_to_padding() -> None:
    theirs = made(hf.SwinForImageClassification, hf.SwinConfig(**SWIN))
    ours, images = from_huggingface(theirs), pixels(44, 44)
    assert (ours(images) - theirs(images).logits).abs().max() > 1e-3
    for stage, side in zip(theirs.swin.encoder.layers, (22, 11), strict=True):
        for layer in stage.blocks:
            mask_padding(layer, side)
    torch.testing.assert_close(ours(images), theirs(images).logits, atol=1e-4, rtol=0)


def test_device_dtype_and_mode_are_the_models_and_nothing_is_drawn() -> None:
    theirs = hf.ViTForImageClassification(hf.ViTConfig(**VIT)).double()
    before = torch.get_rng_state()
    ours = from_huggingface(theirs.train())
    assert torch.equal(before, torch.get_rng_state())
    assert ours.training and ours.norm.weight.dtype == torch.float64
    with torch.no_grad():
        theirs.vit.layernorm.bias.fill_(7)
    assert not ours.norm.bias.any()  # a copy


def old_name(name: str) -> str:
    """The name of a tensor in a checkpoint of version 4."""
    for new, old in (
        (".layers.", ".encoder.layer."), (".q_proj", ".attention.query"),
        (".k_proj", ".attention.key"), (".v_proj", ".attention.value"),
        ("attention.o_proj", "attention.output.dense"), ("mlp.fc1", "intermediate.dense"),
        ("mlp.fc2", "output.dense"),
    ):  # fmt: skip
        name = name.replace(new, old)
    return name


def test_names_of_older_checkpoints_are_known_and_what_does_not_fit_is_named() -> None:
    theirs = made(hf.ViTForImageClassification, hf.ViTConfig(**VIT))
    ours, fresh = from_huggingface(theirs), from_huggingface(theirs)
    for parameter in fresh.parameters():
        nn.init.zeros_(parameter)
    state = {old_name(name): tensor for name, tensor in theirs.state_dict().items()}
    assert "vit.encoder.layer.1.attention.attention.key.weight" in state
    _load(fresh, state)
    torch.testing.assert_close(fresh.state_dict(), ours.state_dict())
    theirs = hf.ViTForImageClassification(hf.ViTConfig(**VIT))
    state = theirs.state_dict()
    ours = from_huggingface(theirs)
    del state["vit.layernorm.bias"], state["vit.layers.1.attention.k_proj.bias"]
    state["decoder.weight"] = torch.zeros(3)
    with pytest.raises(ValueError) as error:
        _load(ours, state)
    assert "missing: norm.bias;" in str(error.value)
    assert "unexpected: decoder.weight;" in str(error.value)
    assert "blocks.1.attention.qkv.bias (32,) for (48,)" in str(error.value)
    with pytest.raises(ValueError, match=r"missing: blocks.2.norm1.weight.*(64,)"):
        _load(vit_pico(), theirs.state_dict())


def test_models_that_we_do_not_have_are_refused_and_those_in_place_are_there_too() -> None:
    with pytest.raises(TypeError, match="got BeitModel of model_type 'beit', expected a ViT"):
        from_huggingface(hf.BeitModel(hf.BeitConfig(**SIZES, image_size=32, intermediate_size=8)))
    with pytest.raises(TypeError, match="got Linear of model_type None"):
        from_huggingface(nn.Linear(1, 1))
    with pytest.raises(ValueError, match=r"unexpected: .*mask_token.*decoder"):
        masked = {**VIT, "encoder_stride": 8}
        from_huggingface(hf.ViTForMaskedImageModeling(hf.ViTConfig(**masked)))
    with pytest.raises(ValueError, match=r"config.hidden_act: got 'relu', expected 'gelu'"):
        from_huggingface(hf.ViTModel(hf.ViTConfig(**VIT, hidden_act="relu")))
    with pytest.raises(ValueError, match=r"config.image_size: got .32, 16., expected a square"):
        from_huggingface(hf.ViTModel(hf.ViTConfig(**{**VIT, "image_size": (32, 16)})))
    from graphtheory.vision.integrations import hf_apply

    assert transformers.apply is hf_apply.apply and transformers.undo is hf_apply.undo
    with pytest.raises(AttributeError, match="has no attribute 'aply'"):
        _ = transformers.aply
