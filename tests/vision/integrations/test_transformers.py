"""Networks of `transformers` with random weights: ours give the same, and nearest attention."""

import copy
import pickle
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from graphtheory.nn import Attention
from graphtheory.patterns import TopK
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


from graphtheory.vision.integrations.hf_apply import apply, topk_attention_forward, undo  # noqa: E402

TEXT = {**SIZES, "intermediate_size": 24, "vocab_size": 50, "max_position_embeddings": 12}
TOKENS = torch.tensor([[3, 7, 7, 1, 9, 4], [5, 2, 8, 6, 49, 49]])
PADDED = torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0]])


def gpt2(**options: Any) -> nn.Module:
    sizes = {"n_embd": 16, "n_layer": 2, "n_head": 2, "vocab_size": 50, "n_positions": 12}
    config = hf.GPT2Config(**sizes, bos_token_id=0, eos_token_id=49, **options)
    return drawn(hf.GPT2LMHeadModel(config))


def clip() -> nn.Module:
    vision = {**VIT, "projection_dim": 8}
    text = {**TEXT, "bos_token_id": 0, "eos_token_id": 49, "pad_token_id": 1}
    config = hf.CLIPConfig(text_config=text, vision_config=vision, projection_dim=8)
    return drawn(hf.CLIPModel(config))


MODELS = {
    "vit": lambda: (drawn(hf.ViTForImageClassification(hf.ViTConfig(**VIT))), {}),
    "deit": lambda: (drawn(hf.DeiTForImageClassification(hf.DeiTConfig(**VIT))), {}),
    "swin": lambda: (drawn(hf.SwinForImageClassification(hf.SwinConfig(**SWIN))), {}),
    "dinov2": lambda: (drawn(hf.Dinov2ForImageClassification(hf.Dinov2Config(**VIT))), {}),
    "clip": lambda: (clip(), {"input_ids": TOKENS, "attention_mask": PADDED}),
    "gpt2": lambda: (gpt2(), {"input_ids": TOKENS, "attention_mask": PADDED}),
}


def logits(model: nn.Module, inputs: dict[str, Tensor]) -> Tensor:
    of_text = isinstance(model, hf.GPT2LMHeadModel)
    given = inputs if of_text else {**inputs, "pixel_values": pixels(32)}
    with torch.no_grad():
        out = model(**given)
    if isinstance(model, hf.GPT2LMHeadModel):
        return out.logits[PADDED.bool()]  # what padding makes of itself means nothing
    return out.logits_per_image if isinstance(model, hf.CLIPModel) else out.logits


@pytest.mark.parametrize("name", MODELS)
def test_all_change_nothing_half_changes_and_undo_goes_back(name: str) -> None:
    model, inputs = MODELS[name]()
    before = logits(model, inputs)
    for everyone in (TopK(1.0), TopK(1000)):
        apply(model, everyone)
        torch.testing.assert_close(logits(model, inputs), before, atol=1e-5, rtol=1e-5)
    assert type(model).__name__ in apply(model, TopK(0.5))
    assert not torch.allclose(logits(model, inputs), before, atol=1e-4)
    undo(model)
    assert torch.equal(logits(model, inputs), before)
    with pytest.raises(ValueError, match="model: nothing was applied"):
        undo(model)


@pytest.mark.parametrize("name", ["vit", "swin"])  # Swin shifts windows: rows differ in length
def test_it_is_our_network_with_the_same_option(name: str) -> None:
    theirs, _ = MODELS[name]()
    ours = from_huggingface(theirs)
    for layer in ours.modules():
        if isinstance(layer, Attention):
            layer.pattern = TopK(0.3)
    apply(theirs, TopK(0.3))
    torch.testing.assert_close(logits(theirs, {}), ours(pixels(32)), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("option", [TopK(0.5), TopK(2)], ids=str)
def test_padding_and_later_tokens_have_no_influence(option: TopK) -> None:
    model = gpt2()
    apply(model, option)
    other = TOKENS.clone()
    other[1, 4:] = 11
    with torch.no_grad():
        first, second = (model(t, attention_mask=PADDED).logits for t in (TOKENS, other))
        alone = model(TOKENS[1:, :4]).logits
        full, start = model(TOKENS).logits, model(TOKENS[:, :3]).logits
    assert torch.equal(first[1, :4], second[1, :4])
    torch.testing.assert_close(first[1:, :4], alone)
    torch.testing.assert_close(full[:, :3], start)


# transformers 5.24 calls it `cache`, which the versions before do not take.
@pytest.mark.filterwarnings("ignore:`past_key_values` is deprecated:FutureWarning")
def test_a_cache_gives_what_the_whole_text_gives() -> None:
    model = gpt2()
    apply(model, TopK(0.5))
    with torch.no_grad():
        start = model(TOKENS[:, :5], use_cache=True)
        step = model(TOKENS[:, 5:], past_key_values=start.past_key_values).logits
        torch.testing.assert_close(step[:, -1], model(TOKENS).logits[:, -1])


@pytest.mark.parametrize("name", ["vit", "swin", "gpt2"])
def test_attention_weights_where_they_are_asked_for(name: str) -> None:
    model, inputs = MODELS[name]()
    given = inputs if name == "gpt2" else {"pixel_values": pixels(32)}
    apply(model, TopK(0.5))
    assert not model(**given).attentions
    first, *_ = found = model(**given, output_attentions=True).attentions
    assert len(found) == 2  # of layers; of stages in Swin
    sums = first.sum(-1)
    torch.testing.assert_close(sums, torch.ones_like(sums))
    if name == "gpt2":
        seen = torch.minimum(torch.arange(1, 7), PADDED.sum(1, keepdim=True))
        assert torch.equal((first > 0).sum(-1)[:, 0], TopK(0.5).counts(seen))
    elif name == "vit":
        assert (first > 0).sum(-1).eq(TopK(0.5).count(first.size(-1))).all()
    else:  # windows of 16 patches, of which a shift parts some in halves and quarters
        assert (first > 0).sum(-1).unique().tolist() == [2, 4, 8]


def test_dropout_grouped_heads_and_masks_of_numbers() -> None:
    model = drawn(hf.ViTModel(hf.ViTConfig(**VIT, attention_probs_dropout_prob=0.5))).train()
    apply(model, TopK(0.5))
    outs = [model(pixels(32)).last_hidden_state for _ in range(2)]
    assert not torch.equal(*outs)
    outs[0].sum().backward()
    assert all(p.grad is not None for n, p in model.named_parameters() if "layers" in n)
    draw = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(2, h, 5, 4, generator=draw) for h in (4, 2, 2))
    mask = torch.ones(5, 5, dtype=torch.bool).tril()[None, None]
    numbers = torch.where(mask, 0.0, torch.finfo(torch.float32).min)
    expected = nn.functional.scaled_dot_product_attention(query, key, value, mask, enable_gqa=True)
    for given in (mask, numbers, None):
        options = {"pattern": TopK(1.0), "is_causal": True}
        out, weights = topk_attention_forward(nn.Module(), query, key, value, given, **options)
        torch.testing.assert_close(out, expected.transpose(1, 2))
        assert weights is None


def test_copies_keep_the_pattern_where_nothing_was_applied_and_nothing_of_it_is_saved() -> None:
    model, inputs = MODELS["vit"]()
    before = logits(model, inputs)
    apply(model, TopK(2))
    other = copy.deepcopy(model)
    torch.testing.assert_close(logits(other, inputs), logits(model, inputs))
    assert "graphtheory" not in model.config.to_json_string()
    undo(other)
    assert torch.equal(logits(other, inputs), before)
    assert not torch.allclose(logits(model, inputs), before, atol=1e-4)
    model, inputs = MODELS["vit"]()
    before = logits(model, inputs)
    apply(model, TopK(0.625))
    found, kept = logits(model, inputs), pickle.dumps(model)
    for registry in (hf.AttentionInterface, hf.AttentionMaskInterface):  # as in another process
        del registry._global_mapping["graphtheory_topk_0.625"]
    other = pickle.loads(kept)
    torch.testing.assert_close(logits(other, inputs), found)
    undo(other)
    assert torch.equal(logits(other, inputs), before)


def test_what_is_not_supported_is_named() -> None:
    with pytest.raises(TypeError, match="model: got Linear, expected a model of transformers"):
        apply(nn.Linear(2, 2), TopK())
    model, _ = MODELS["vit"]()
    with pytest.raises(TypeError, match="what: got float, expected TopK"):
        apply(model, 0.5)
    older = hf.ReformerModel(hf.ReformerConfig(attn_layers=["local"], is_decoder=False))
    with pytest.raises(ValueError, match="ReformerModel does not find its attention in the reg"):
        apply(older, TopK())
    nodes = (torch.zeros(1, 1, 2, 2) for _ in range(3))
    with pytest.raises(ValueError, match="softcap: given, but k-nearest attention"):
        topk_attention_forward(nn.Module(), *nodes, None, pattern=TopK(), softcap=30.0)
