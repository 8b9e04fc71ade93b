"""State dicts under other names, those of the published KVT, and k-nearest attention."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, gelu, layer_norm, linear

from graphtheory.patterns import TopK
from graphtheory.vision.integrations.nearest import nearest_attention
from graphtheory.vision.integrations.timm import load_timm
from graphtheory.vision.integrations.weights import load_renamed
from graphtheory.vision.models.vit import vit

RULES = (("w(\\d)", r"weight#\1"), ("b", "bias"), ("seen", ""))


def two_maps() -> dict[str, torch.Tensor]:
    return {
        "w1": torch.full((1, 1, 3), 2.0), "w0": torch.ones(1, 3),
        "b": torch.zeros(2), "seen": torch.zeros(9),
    }  # fmt: skip


def test_parts_are_joined_in_order_and_leading_axes_dropped() -> None:
    model = nn.Linear(3, 2)
    load_renamed(model, two_maps(), RULES)
    assert model.weight[:, 0].tolist() == [1, 2] and not model.bias.any()


def test_everything_that_does_not_fit_is_named_and_nothing_is_loaded() -> None:
    model = nn.Linear(3, 2)
    before = model.weight.detach().clone()
    wrong = {k: t for k, t in two_maps().items() if k not in ("w1", "b")} | {"x": torch.zeros(1)}
    with pytest.raises(ValueError) as error:
        load_renamed(model, wrong, RULES)
    told = "missing: bias; unexpected: x; other shapes: weight (1, 3) for (2, 3)"
    assert str(error.value) == f"state: does not fit Linear; {told}"
    assert torch.equal(model.weight, before)


DIM, DEPTH, HEADS, K = 16, 2, 2, 5
SIZES: dict[str, Any] = {"image_size": 32, "patch_size": 8, "out_channels": 5, "pattern": TopK(K)}


def state() -> dict[str, Tensor]:
    shapes: dict[str, tuple[int, ...]] = {
        "cls_token": (1, 1, DIM), "pos_embed": (1, 17, DIM),
        "patch_embed.proj.weight": (DIM, 3, 8, 8), "patch_embed.proj.bias": (DIM,),
        "norm.weight": (DIM,), "norm.bias": (DIM,),
        "head.weight": (5, DIM), "head.bias": (5,),
    }  # fmt: skip
    for i in range(DEPTH):
        maps = {"attn.qkv": 3 * DIM, "attn.proj": DIM, "mlp.fc1": 4 * DIM, "norm1": 0, "norm2": 0}
        for name, out in maps.items():
            shapes[f"blocks.{i}.{name}.weight"] = (out, DIM) if out else (DIM,)
            shapes[f"blocks.{i}.{name}.bias"] = (out or DIM,)
        shapes[f"blocks.{i}.mlp.fc2.weight"] = (DIM, 4 * DIM)
        shapes[f"blocks.{i}.mlp.fc2.bias"] = (DIM,)
    draw = torch.Generator().manual_seed(0)
    return {name: 0.4 * torch.randn(shape, generator=draw) for name, shape in shapes.items()}


def published(given: dict[str, Tensor], images: Tensor) -> Tensor:
    """The network written out: the k largest logits of each row, softmax over them."""
    x = conv2d(images, given["patch_embed.proj.weight"], given["patch_embed.proj.bias"], stride=8)
    x = x.flatten(2).transpose(1, 2)
    x = torch.cat([given["cls_token"].expand(len(x), -1, -1), x], 1) + given["pos_embed"]

    def pair(name: str) -> tuple[Tensor, Tensor]:
        return given[f"{name}.weight"], given[f"{name}.bias"]

    for i in range(DEPTH):
        at = f"blocks.{i}."
        normed = layer_norm(x, (DIM,), *pair(at + "norm1"), 1e-6)
        parts = linear(normed, *pair(at + "attn.qkv")).view(len(x), -1, 3, HEADS, DIM // HEADS)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        logits = query @ key.transpose(-2, -1) * (DIM // HEADS) ** -0.5
        least = logits.topk(K, dim=-1).values[..., -1:]
        weights = logits.masked_fill(logits < least, -torch.inf).softmax(-1)
        x = x + linear((weights @ value).transpose(1, 2).flatten(2), *pair(at + "attn.proj"))
        normed = layer_norm(x, (DIM,), *pair(at + "norm2"), 1e-6)
        x = x + linear(gelu(linear(normed, *pair(at + "mlp.fc1"))), *pair(at + "mlp.fc2"))
    return linear(layer_norm(x, (DIM,), *pair("norm"), 1e-6)[:, 0], *pair("head"))


@torch.no_grad()
def test_the_published_names_give_the_published_outputs() -> None:
    model, given = vit(DIM, DEPTH, HEADS, **SIZES).eval(), state()
    load_timm(model, given)
    images = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(model(images), published(given, images), rtol=1e-4, atol=1e-4)


def test_foreign_names_are_listed() -> None:
    model = vit(DIM, DEPTH, HEADS, **SIZES)
    given = state() | {"head_dist.weight": torch.zeros(5, DIM)}
    del given["blocks.1.attn.qkv.bias"]
    with pytest.raises(ValueError, match=r"missing: blocks\.1\.attention\.qkv\.bias; unexpected"):
        load_timm(model, given)


LEAST = torch.finfo(torch.float32).min


def draw(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def seen(kind: str) -> Tensor:
    """Who may be seen, [2, 1, 5, 6]: a row of each image sees nobody."""
    allowed = draw(2, 1, 5, 6) > -0.5
    allowed[:, :, 2] = False
    return allowed if kind == "bool" else torch.where(allowed, 0.25, LEAST)


@pytest.mark.parametrize("k", [1, 3, 99, 0.3, 0.5, 1.0])
@pytest.mark.parametrize("kind", ["none", "causal", "bool", "numbers"])
def test_by_the_definition(kind: str, k: int | float) -> None:
    query, key, value = draw(2, 4, 5, 3), draw(2, 2, 6, 3), draw(2, 2, 6, 3)
    mask = None if kind in ("none", "causal") else seen(kind)
    options = {"causal": kind == "causal", "with_weights": True}
    out, weights = nearest_attention(query, key, value, mask, TopK(k), **options)
    key, value = (t.repeat_interleave(2, 1) for t in (key, value))
    logits = query @ key.transpose(2, 3) * 3**-0.5
    if kind == "causal":
        logits = logits.masked_fill(~torch.ones(5, 6).bool().tril(), -torch.inf)
    elif mask is not None:
        logits = logits.masked_fill(~seen("bool"), -torch.inf)
    chosen = logits.masked_fill(~TopK(k).mask(logits), -torch.inf)
    wanted = chosen.softmax(3).nan_to_num(0)
    torch.testing.assert_close(weights, wanted)
    torch.testing.assert_close(out, (wanted @ value).transpose(1, 2))
