"""Models of the structure of timm's, and timm's own where it is installed: nearest, fewer tokens.

The stand-ins are written here after what timm documents, so that the tests run without it.
"""

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from graphtheory.graph import Grid
from graphtheory.patterns import TopK
from graphtheory.vision.integrations import timm as timm_layers
from graphtheory.vision.integrations.timm import Semantic, apply, attention_maps, trace, undo
from graphtheory.vision.models import DistilledToken, ReducedViT, ViT
from graphtheory.vision.models.vit import vit
from graphtheory.vision.nn import AveragePool, Fuse, Keep, Merge, unmerge
from tests.vision.integrations.conftest import drawn
from tests.vision.integrations.conftest import pixels as images_of

DIM, HEADS = 16, 2


class Standing(nn.Module):
    """Attention of a qkv map and a proj map."""

    def __init__(self) -> None:
        super().__init__()
        self.num_heads, self.scale = HEADS, (DIM // HEADS) ** -0.5
        self.qkv, self.proj = nn.Linear(DIM, 3 * DIM), nn.Linear(DIM, DIM)
        self.attn_drop, self.proj_drop = nn.Dropout(0.0), nn.Dropout(0.0)

    def forward(self, x: Tensor, attn_mask: Any = None, is_causal: bool = False) -> Tensor:
        q, k, v = self.qkv(x).unflatten(2, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        out = F.scaled_dot_product_attention(q, k, v, attn_mask, is_causal=is_causal)
        return self.proj_drop(self.proj(out.transpose(1, 2).flatten(2)))


class MLP(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(DIM, 24), nn.Linear(24, DIM)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(F.gelu(self.fc1(x)))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.attn = nn.LayerNorm(DIM, 1e-6), Standing()
        self.norm2, self.mlp = nn.LayerNorm(DIM, 1e-6), MLP()

    def forward(self, x: Tensor, attn_mask: Any = None, is_causal: bool = False) -> Tensor:
        x = x + self.attn(self.norm1(x), attn_mask=attn_mask, is_causal=is_causal)
        return x + self.mlp(self.norm2(x))


class Patches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.proj = nn.Conv2d(3, DIM, 4, 4)

    def forward(self, images: Tensor) -> Tensor:
        return self.proj(images).flatten(2).transpose(1, 2)


class StandIn(nn.Module):
    """Class and distillation token, three blocks, two heads."""

    def __init__(self) -> None:
        super().__init__()
        self.patch_embed = Patches()
        self.cls_token, self.dist_token = (nn.Parameter(torch.zeros(1, 1, DIM)) for _ in range(2))
        self.pos_embed = nn.Parameter(torch.zeros(1, 38, DIM))
        self.blocks = nn.Sequential(*(Block() for _ in range(3)))
        self.norm = nn.LayerNorm(DIM, 1e-6)
        self.head, self.head_dist = nn.Linear(DIM, 5), nn.Linear(DIM, 5)

    def features(self, images: Tensor) -> Tensor:
        first = (t.expand(len(images), -1, -1) for t in (self.cls_token, self.dist_token))
        x = torch.cat([*first, self.patch_embed(images)], 1) + self.pos_embed
        return self.norm(self.blocks(x))

    def forward(self, images: Tensor) -> Tensor:
        first, second, *_ = self.features(images).unbind(1)
        return (self.head(first) + self.head_dist(second)) / 2


class Averaging(StandIn):
    """The head reads the mean of the patches, which is normalized after it."""

    global_pool = "avg"

    def __init__(self) -> None:
        super().__init__()
        self.fc_norm, self.norm = self.norm, nn.Identity()

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.fc_norm(self.features(images)[:, 2:].mean(1)))

    def forward_intermediates(self, images: Tensor) -> Tensor:
        return self.features(images)


def of_timm(name: str, **options: Any) -> Any:
    return drawn(pytest.importorskip("timm").create_model(name, num_classes=5, **options))


VIT = {"img_size": 24, "patch_size": 4, "embed_dim": DIM, "depth": 3, "num_heads": HEADS}
SWIN = {"img_size": 32, "patch_size": 2, "embed_dim": 8, "window_size": 4, "depths": (2, 2)}
MODELS = {
    "stand-in": lambda: drawn(StandIn()),
    "deit": lambda: of_timm("deit_tiny_distilled_patch16_224", mlp_ratio=1.5, **VIT),
    "registers": lambda: of_timm(
        "vit_tiny_patch16_224", reg_tokens=3, qk_norm=True, init_values=0.1, **VIT
    ),
    "averaging stand-in": lambda: drawn(Averaging()),
    "averaging": lambda: of_timm("vit_tiny_patch16_224", global_pool="avg", **VIT),
    "stem of convolutions": lambda: of_timm(
        "vit_tiny_r_s16_p8_224", img_size=64, embed_dim=DIM, depth=3, num_heads=HEADS
    ),
    "swin": lambda: of_timm("swin_tiny_patch4_window7_224", num_heads=(2, 4), **SWIN),
}


def pixels(name: str = "") -> Tensor:
    return images_of({"swin": 32, "stem of convolutions": 64}.get(name, 24))


def ours(theirs: nn.Module, pattern: TopK | None = None) -> ViT:
    model = vit(
        DIM, 3, HEADS, image_size=24, patch_size=4, out_channels=5, mlp_ratio=1.5, pattern=pattern,
        readout=DistilledToken,
    ).eval()  # fmt: skip
    timm_layers.load_timm(model, theirs.state_dict())
    return model


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_all_change_nothing_half_changes_and_undo_goes_back(name: str) -> None:
    model, images = MODELS[name](), pixels(name)
    before, names = model(images), list(model.state_dict())
    layers = apply(model, TopK(1.0))
    assert len(layers) == (4 if name == "swin" else 3) and "blocks.0.attn" in layers[0]
    torch.testing.assert_close(model(images), before, atol=1e-5, rtol=1e-5)
    apply(model, TopK(0.5))
    found = model(images)
    assert not torch.allclose(found, before, atol=1e-4) and list(model.state_dict()) == names
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), model):
        torch.testing.assert_close(other(images), found)
        undo(other)
        assert torch.equal(other(images), before)
    with pytest.raises(ValueError, match="model: nothing was applied"):
        undo(model)


@pytest.mark.parametrize("name", ["stand-in", "deit"])
@torch.no_grad()
def test_it_is_our_network_with_the_same_option(name: str) -> None:
    theirs = MODELS[name]()
    apply(theirs, TopK(0.3))
    model = ours(theirs, TopK(0.3))
    torch.testing.assert_close(theirs(pixels()), model(pixels()), atol=1e-5, rtol=1e-5)
    maps = attention_maps(theirs, pixels())
    for one, other in zip(maps, model.attention_maps(pixels()), strict=True):
        weights = other.weights.view(2, 38, 38, HEADS).permute(0, 3, 1, 2)
        torch.testing.assert_close(one, weights, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_shifted_windows_have_rows_of_their_own_length() -> None:
    model, images = MODELS["swin"](), pixels("swin")
    whole, before = attention_maps(model, images), model(images)
    torch.testing.assert_close(model(images), before)
    apply(model, TopK(0.5))
    second = attention_maps(model, images)[1]
    assert whole[1].shape == second.shape == (2 * 16, 2, 16, 16)
    assert torch.equal((second > 0).sum(3), ((whole[1] > 1e-12).sum(3) + 1) // 2)


@pytest.mark.parametrize(
    ("rules", "proportional"),
    [({1: Keep(0.5), 3: Keep(4)}, False), ({2: Fuse(0.4)}, False),
     ({1: Merge(8), 2: Merge(9)}, True), ({1: Merge(8), 2: Fuse(0.5)}, True)],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("name", ["stand-in", "deit"])
@torch.no_grad()
def test_fewer_tokens_as_in_our_network(name: str, rules: Any, proportional: bool) -> None:
    theirs = MODELS[name]()
    before = theirs(pixels())
    reduced = ReducedViT(ours(theirs), rules, proportional=proportional).eval()
    apply(theirs, timm_layers.Reduce(rules, proportional))
    torch.testing.assert_close(theirs(pixels()), reduced(pixels()), atol=1e-5, rtol=1e-5)
    assert torch.equal(trace(theirs).slot, reduced.reduced(pixels()).slot)
    undo(theirs)
    assert torch.equal(theirs(pixels()), before)


@pytest.mark.parametrize("name", ["stand-in", "deit", "registers"])
@torch.no_grad()
def test_tokens_before_the_patches_stay_and_all_come_back(name: str) -> None:
    model = MODELS[name]()
    prefix = 4 if name == "registers" else 2
    apply(model, {1: Keep(0.5), 2: Merge(4)})
    model(pixels())
    found = trace(model)
    assert found.slot[:, :prefix].tolist() == [list(range(prefix))] * 2
    assert found.size.shape == (2, prefix + 14)
    back = unmerge(torch.randn(2, prefix + 14, DIM), found.slot)
    assert back.shape == (2, prefix + 36, DIM)


@pytest.mark.parametrize("name", ["averaging stand-in", "averaging"])
@torch.no_grad()
def test_a_mean_of_the_patches_counts_merged_ones_by_their_number(name: str) -> None:
    model = MODELS[name]()
    before = model(pixels())
    read = model.features if name == "averaging stand-in" else model.forward_features
    apply(model, Merge(4))
    found = read(pixels())
    assert found.shape == (2, trace(model).slot.size(1), DIM)
    apply(model, timm_layers.Reduce(Merge(4), restore=False))
    fewer = read(pixels())
    assert fewer.size(1) == found.size(1) - 12
    assert torch.equal(found, unmerge(fewer, trace(model).slot))
    undo(model)
    assert torch.equal(model(pixels()), before)


@pytest.mark.parametrize("what", [Keep(0.5), Semantic(tokens=4, base=0)], ids=["Keep", "Semantic"])
@pytest.mark.parametrize("name", ["averaging stand-in", "averaging"])
@torch.no_grad()
def test_maps_of_all_tokens_are_refused_until_undo(name: str, what: Any) -> None:
    model = MODELS[name]()
    apply(model, what)
    for patched in (model, copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        with pytest.raises(ValueError, match="forward_intermediates: needs every token"):
            patched.forward_intermediates(pixels())
        undo(patched)
        patched.forward_intermediates(pixels())


@torch.no_grad()
def test_semantic_tokens_pool_the_grid_behind_a_stem_of_convolutions() -> None:
    model = MODELS["stem of convolutions"]()
    images = pixels("stem of convolutions")
    before = model(images)
    apply(model, Semantic(tokens=1, base=0))
    assert not torch.allclose(model(images), before, atol=1e-4)
    assert [tuple(m.shape[2:]) for m in attention_maps(model, images)] == [(2, 5), (2, 6), (2, 2)]
    undo(model)
    assert torch.equal(model(images), before)


def plain(block: Any, query: Tensor, sources: Tensor) -> Tensor:
    """A block in which `query` asks `sources`, both before the norm."""
    at = block.attn
    q = at.qkv(block.norm1(query)).chunk(3, 2)[0]
    _, k, v = at.qkv(block.norm1(sources)).chunk(3, 2)
    q, k, v = (t.unflatten(2, (HEADS, -1)).transpose(1, 2) for t in (q, k, v))
    seen = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
    out = query + at.proj(seen)
    return out + block.mlp(block.norm2(out))


@pytest.mark.parametrize("name", ["stand-in", "deit"])
@torch.no_grad()
def test_semantic_tokens_by_the_formulas_and_with_the_nearest(name: str) -> None:
    model = MODELS[name]()
    before, names = model(pixels()), set(model.state_dict())
    x = model.patch_embed(pixels())
    first = torch.cat([t.expand(2, -1, -1) for t in (model.cls_token, model.dist_token)], 1)
    x = plain(model.blocks[0], *[torch.cat([first, x], 1) + model.pos_embed] * 2)
    apply(model, Semantic(tokens=9, base=1))
    assert set(model.state_dict()) - names == {"semantic.global_centers"}
    nn.init.normal_(model.semantic.global_centers)
    start = AveragePool(3)(x[:, 2:].flatten(0, 1), Grid(2, 6, 6)).view(2, 9, DIM)
    tokens = plain(model.blocks[1], torch.cat([x[:, :2], start], 1), x)
    moved = tokens.clone()
    moved[:, 2:] += model.semantic.global_centers
    tokens = plain(model.blocks[2], moved, torch.cat([tokens, x[:, 2:]], 1))
    end = model.norm(tokens)
    wanted = (model.head(end[:, 0]) + model.head_dist(end[:, 1])) / 2
    found = model(pixels())
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)
    shapes = [m.shape[2:] for m in attention_maps(model, pixels())]
    assert shapes == [(38, 38), (11, 38), (11, 47)]

    apply(model, TopK(0.3))
    both = model(pixels())
    assert not torch.allclose(both, found, atol=1e-4)
    apply(model, Merge(0))  # in the place of semantic tokens; the pattern stays
    torch.testing.assert_close(model(pixels()), ours(model, TopK(0.3))(pixels()))
    undo(model)
    assert torch.equal(model(pixels()), before) and set(model.state_dict()) == names
    apply(model, TopK(0.3))
    apply(model, Semantic(tokens=9, base=1))
    undo(model)
    assert torch.equal(model(pixels()), before)


def test_gradients_flow_and_dropout_is_on_in_training() -> None:
    model = MODELS["stand-in"]().train()
    for block in model.blocks:
        block.attn.attn_drop.p = 0.5
    apply(model, TopK(0.5))
    apply(model, {1: Fuse(0.5), 2: Merge(4)})
    assert model.training and model.blocks[0].attn.attn_drop.training
    out = model(pixels())
    assert not torch.equal(out, model(pixels()))
    out.sum().backward()
    assert all(p.grad is not None for p in model.parameters())


class Channels(Standing):
    """As DaViT's: the same parts, but features attend to features."""

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        q, k, v = self.qkv(x).unflatten(2, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        out = v @ (self.scale * k.transpose(2, 3) @ q).softmax(2)
        return self.proj(out.transpose(1, 2).flatten(2))


class Rotated(Standing):
    """As EVA's: it also takes what turns queries and keys."""

    def forward(self, x: Tensor, rope: Tensor | None = None) -> Tensor:  # type: ignore[override]
        return super().forward(x)


@pytest.mark.parametrize(
    ("name", "options", "reason"),
    [
        ("naflexvit_base_patch16_gap", {"embed_dim": DIM, "depth": 1, "num_heads": HEADS},
         "NaFlexVit is not made of pre-norm blocks"),
        ("vit_small_patch16_18x2_224", VIT, "VisionTransformer is not made of pre-norm blocks"),
        ("swin_tiny_patch4_window7_224", SWIN | {"num_heads": (2, 4)},
         "SwinTransformer is not made of pre-norm blocks"),
        ("beit_base_patch16_224", VIT, r"its blocks.0.attn \(Attention\) is no softmax attention"),
        ("vit_tiny_patch16_224", VIT | {"attn_layer": "diff"},
         r"its blocks.0.attn \(DiffAttention\) is no softmax attention"),
        ("levit_128s", {}, "LevitDistilled has no attention with a linear map qkv"),
    ],
    ids=str,
)  # fmt: skip
def test_models_of_timm_that_need_every_token_are_refused(name: str, options, reason: str) -> None:
    model = of_timm(name, **options)
    for what in (Merge(2), Semantic(tokens=1, base=0)):
        with pytest.raises(ValueError, match=reason):
            apply(model, what)
    assert all("forward" not in vars(m) for m in model.modules())


class PostNorm(Block):
    def forward(self, x: Tensor, attn_mask: Tensor | None = None) -> Tensor:  # type: ignore[override]
        x = x + self.norm1(self.attn(x, attn_mask=attn_mask))
        return x + self.norm2(self.mlp(x))


def test_what_is_not_known_is_refused_and_nothing_is_changed() -> None:
    model = MODELS["stand-in"]()
    for kind in (Channels, Rotated):
        model.blocks[1].attn = kind()
        told = rf"its blocks.1.attn \({kind.__name__}\) is no softmax attention"
        with pytest.raises(ValueError, match=told):
            apply(model, TopK(0.5))
    assert all("forward" not in vars(m) for m in model.modules())
    model.blocks[1] = PostNorm()
    apply(model, TopK(0.5))
    undo(model)
    other = MODELS["stand-in"]()
    other.patch_drop = nn.Dropout()
    other.patch_drop.prob = 0.5
    for given, what, error, told in (
        (model, Merge(2), ValueError, "StandIn is not made of pre-norm blocks"),
        (model, Semantic(base=0), ValueError, "StandIn is not made of pre-norm blocks"),
        (nn.Linear(2, 2), TopK(), ValueError, "Linear has no attention with a linear map qkv"),
        (model, 0.5, TypeError, "what: got float, expected TopK"),
        ("vit", TopK(), TypeError, "model: got str, expected a model of timm"),
        (other, Semantic(base=0), ValueError,
         "no grid of patches, which Semantic pools: patch_drop"),
        (other, {4: Keep()}, ValueError, r"after: got layers \[4\], expected 1\.\.3"),
    ):  # fmt: skip
        with pytest.raises(error, match=told):
            apply(given, what)  # type: ignore[arg-type]
    model = other
    apply(model, Keep(0.5))
    with pytest.raises(ValueError, match="attn_mask: given, expected none"):
        model.blocks[0](torch.zeros(1, 38, DIM), attn_mask=torch.ones(38, 38))
    model.train().grad_checkpointing = True
    with pytest.raises(ValueError, match="grad_checkpointing: on, expected off"):
        model(pixels())
