"""State dicts with the names and shapes of the published k-NN vision transformer, KVT."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import conv2d, gelu, layer_norm, linear

from graphtheory.patterns import TopK
from graphtheory.vision.integrations.timm import load_timm
from graphtheory.vision.models.vit import vit

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
