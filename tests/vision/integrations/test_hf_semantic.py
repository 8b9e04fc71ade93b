"""ViT, DeiT and Swin of `transformers` with semantic tokens, against formulas in plain torch."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from graphtheory.graph import Grid
from graphtheory.patterns import TopK
from graphtheory.vision.nn import MaskPool, Merge
from tests.vision.integrations.conftest import drawn, pixels

hf = pytest.importorskip("transformers")

from graphtheory.vision.integrations.hf_apply import apply, undo  # noqa: E402
from graphtheory.vision.integrations.token_hooks import Semantic  # noqa: E402

VIT = {
    "num_hidden_layers": 4, "num_attention_heads": 2, "hidden_size": 16, "intermediate_size": 24,
    "image_size": 24, "patch_size": 4, "num_labels": 5,
}  # fmt: skip


def made(kind: Any = None, **options: Any) -> nn.Module:
    kind = hf.ViTForImageClassification if kind is None else kind
    model = drawn(kind(kind.config_class(**VIT, **options)), 0.2)
    if not hasattr(model.base_model, "layers"):
        pytest.skip("an older transformers builds its layers otherwise")
    return model


def plain(layer: nn.Module, query: Tensor, sources: Tensor, heads: int = 2) -> Tensor:
    """A layer in which `query` asks `sources`, both [B, T, C] before the norm."""
    at, norm = layer.attention, layer.layernorm_before
    parts = ((at.q_proj, query), (at.k_proj, sources), (at.v_proj, sources))
    q, k, v = (p(norm(x)).unflatten(2, (heads, -1)).transpose(1, 2) for p, x in parts)
    seen = ((q @ k.transpose(2, 3)) / q.size(3) ** 0.5).softmax(3) @ v
    out = query + at.o_proj(seen.transpose(1, 2).flatten(2))
    return out + layer.mlp(layer.layernorm_after(out))


@pytest.mark.parametrize("name", ["ViTForImageClassification", "DeiTForImageClassification"])
@torch.no_grad()
def test_equal_to_the_formulas_in_plain_torch_and_undo_goes_back(name: str) -> None:
    model, prefix = made(getattr(hf, name)), 1 if name[0] == "V" else 2
    before, names = model(pixels(24)).logits, set(model.state_dict())
    apply(model, Semantic(tokens=9, base=1))
    base = model.base_model
    assert set(model.state_dict()) - names == {f"{model.base_model_prefix}.semantic.global_centers"}
    nn.init.normal_(base.semantic.global_centers)
    first, second, third, last = base.layers
    x = base.embeddings(pixels(24))
    x = plain(first, x, x)
    maps = x[:, prefix:].transpose(1, 2).unflatten(2, (6, 6))
    start = F.adaptive_avg_pool2d(maps, 3).flatten(2).transpose(1, 2)
    found = plain(second, torch.cat([x[:, :prefix], start], 1), x)
    moved = found.clone()
    moved[:, prefix:] += base.semantic.global_centers
    found = plain(third, moved, torch.cat([found, x[:, prefix:]], 1))
    wanted = base.layernorm(plain(last, found, found))
    torch.testing.assert_close(base(pixels(24)).last_hidden_state, wanted, atol=1e-5, rtol=1e-5)
    undo(model)
    assert torch.equal(model(pixels(24)).logits, before) and set(model.state_dict()) == names


@torch.no_grad()
def test_attention_maps_assign_patches_to_tokens() -> None:
    model = made(attn_implementation="eager")
    apply(model, Semantic(tokens=4, base=1))
    maps = model(pixels(24), output_attentions=True).attentions
    assert [m.shape[2:] for m in maps] == [(37, 37), (5, 37), (5, 41), (5, 5)]
    torch.testing.assert_close(maps[2].sum(3), torch.ones(2, 2, 5))


def test_images_of_other_sizes_and_centers_that_learn() -> None:
    model = made().train()
    apply(model, Semantic(MaskPool(2, dim=16), base=0))
    out = model(pixels(16, 32), interpolate_pos_encoding=True).logits
    out.sum().backward()
    assert all(p.grad is not None for p in model.parameters())
    other = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in other.base_model.parameters():
            parameter.zero_()
        torch.testing.assert_close(model(pixels(16, 32), interpolate_pos_encoding=True).logits, out)
    assert model.vit.semantic.centers(torch.zeros(32, 16), Grid(1, 4, 8)).shape == (4, 16)


def test_one_of_each_kind_at_a_time() -> None:
    model = made()
    with torch.no_grad():
        before = model(pixels(24)).logits
        apply(model, Semantic(4, base=1))
        few = model(pixels(24)).logits
        apply(model, TopK(0.5))
        assert not torch.allclose(model(pixels(24)).logits, few, atol=1e-4)
        apply(model, Merge(0))  # in the place of semantic tokens
        apply(model, TopK(1.0))
        torch.testing.assert_close(model(pixels(24)).logits, before, atol=1e-5, rtol=1e-5)
    assert not hasattr(model.vit, "semantic")


def test_bad_options_are_named() -> None:
    for make, what, message in (
        (made_swin, Semantic(), r"base: got 4, expected 0\.\.2, for 5 blocks in a stage"),
        (made_swin, Semantic(tokens=5, base=1), "tokens: got 5, expected a square number"),
        (made_swin, Merge(2), "to a Swin Semantic, which gives all tokens back"),
        (made, Semantic(base=3), r"base: got 3, expected 0\.\.2"),
        (made, Semantic(tokens=5, base=1), "tokens: got 5, expected a square number"),
    ):
        with pytest.raises(ValueError, match=message):
            apply(make(), what)


SWIN = {
    "embed_dim": 8, "depths": [1, 5], "num_heads": [2, 4], "image_size": 32, "patch_size": 2,
    "window_size": 4, "num_labels": 5, "drop_path_rate": 0.0,
}  # fmt: skip


def made_swin(kind: Any = None, **options: Any) -> Any:
    kind = hf.SwinForImageClassification if kind is None else kind
    return drawn(kind(hf.SwinConfig(**{**SWIN, **options})), 0.2)


@torch.no_grad()
def test_swin_is_the_formulas_in_plain_torch_and_undo_goes_back() -> None:
    model = made_swin()
    before, names = model(pixels(32)).logits, set(model.state_dict())
    apply(model, Semantic(tokens=9, base=1))
    assert set(model.state_dict()) - names == {"swin.semantic.global_centers"}
    base = model.swin
    nn.init.normal_(base.semantic.global_centers)
    x, size = base.embeddings(pixels(32))
    x = base.encoder.layers[0](x, size)[0]
    stage = base.encoder.layers[1]
    first, making, again, among, back = stage.blocks
    x = first(x, (8, 8))[0]
    start = F.adaptive_avg_pool2d(x.transpose(1, 2).unflatten(2, (8, 8)), 3)
    tokens = plain(making, start.flatten(2).transpose(1, 2), x, 4)
    tokens = plain(again, tokens + base.semantic.global_centers, torch.cat([tokens, x], 1), 4)
    tokens = plain(among, tokens, tokens, 4)
    wanted = base.layernorm(plain(back, x, tokens, 4))
    found = base(pixels(32))
    torch.testing.assert_close(found.last_hidden_state, wanted, atol=1e-5, rtol=1e-5)
    undo(model)
    assert torch.equal(model(pixels(32)).logits, before) and set(model.state_dict()) == names


@torch.no_grad()
def test_the_whole_grid_is_there_again_and_its_weights_too() -> None:
    model = made_swin(attn_implementation="eager")
    apply(model, Semantic(tokens=4, base=0))
    out = model.swin(pixels(32), output_attentions=True, output_hidden_states=True)
    assert out.attentions[-1].shape == (2, 4, 64, 4)  # of the patches to the tokens
    assert out.reshaped_hidden_states[-1].shape == (2, 16, 8, 8)
    apply(model, TopK(0.5))
    weights = model.swin(pixels(32), output_attentions=True).attentions[-1]
    assert ((weights > 0).sum(3) == 2).all()


def test_other_sizes_centers_that_learn_and_copies() -> None:
    model = made_swin().train()
    apply(model, Semantic(MaskPool(2, dim=16), base=1))
    out = model(pixels(28, 36)).logits
    out.sum().backward()
    blocks = model.swin.encoder.layers[1].blocks
    unused = {id(p) for b in blocks[1:] for p in b.attention.relative_position_bias.parameters()}
    assert all(p.grad is not None for p in model.parameters() if id(p) not in unused)
    other = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.zero_()
        torch.testing.assert_close(model(pixels(28, 36)).logits, out)
    apply(model, Semantic(9, base=2))
    undo(model)
    assert not hasattr(model.swin, "semantic") and hasattr(other.swin, "semantic")


@torch.no_grad()
def test_nearest_attention_in_windows_of_swin_v2() -> None:
    sizes = {"embed_dim": 8, "depths": [1, 2], "num_heads": [1, 2], "window_size": 4}
    config = hf.Swinv2Config(**sizes, image_size=32, patch_size=2, num_labels=5)
    model = hf.Swinv2ForImageClassification(config).eval()
    draw = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        parameter.add_(0.2 * torch.randn(parameter.shape, generator=draw))
    images = pixels(32)
    before = model(images, output_attentions=True)
    apply(model, TopK(1.0))
    whole = model(images, output_attentions=True)
    torch.testing.assert_close(whole.logits, before.logits, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(whole.attentions, before.attentions, atol=1e-5, rtol=1e-5)
    apply(model, TopK(0.5))
    half = copy.deepcopy(model)(images, output_attentions=True)
    for some, of in zip(half.attentions, whole.attentions, strict=True):
        assert torch.equal((some > 0).sum(3), ((of > 1e-12).sum(3) + 1) // 2)  # of its own region
    first, plain_block = half.attentions[0], whole.attentions[0]
    kept = torch.where(plain_block >= plain_block.topk(8, 3).values[..., -1:], plain_block, 0)
    torch.testing.assert_close(first, kept / kept.sum(3, keepdim=True), atol=1e-5, rtol=1e-5)
    undo(model)
    assert torch.equal(model(images).logits, before.logits)
    assert all("forward" not in vars(m) for m in model.modules())
