"""ViT and DeiT of `transformers` with semantic tokens, against the formulas in plain torch."""

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

if not hasattr(hf.ViTModel(hf.ViTConfig(**VIT)), "layers"):
    pytest.skip("an older transformers builds its layers otherwise", allow_module_level=True)


def made(kind: Any = None, **options: Any) -> nn.Module:
    kind = hf.ViTForImageClassification if kind is None else kind
    return drawn(kind(kind.config_class(**VIT, **options)), 0.2)


def plain(layer: nn.Module, query: Tensor, sources: Tensor) -> Tensor:
    """A layer in which `query` asks `sources`, both [B, T, C] before the norm."""
    at = layer.attention
    parts = ((at.q_proj, query), (at.k_proj, sources), (at.v_proj, sources))
    q, k, v = (p(layer.layernorm_before(x)).unflatten(2, (2, 8)).transpose(1, 2) for p, x in parts)
    seen = ((q @ k.transpose(2, 3)) / 8**0.5).softmax(3) @ v
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
    for what, message in (
        (Semantic(base=3), r"base: got 3, expected 0\.\.2"),
        (Semantic(tokens=5, base=1), "tokens: got 5, expected a square number"),
    ):
        with pytest.raises(ValueError, match=message):
            apply(made(), what)
