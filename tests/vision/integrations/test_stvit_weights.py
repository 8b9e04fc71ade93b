"""State dicts with the names and shapes of the published STViT-R on Swin."""

from itertools import product

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.functional import adaptive_max_pool2d, batch_norm, conv2d, gelu, hardswish, layer_norm

from graphtheory.vision import models
from graphtheory.vision.integrations.weights import load_stvit_r
from graphtheory.vision.models.stvit_swin import STViTRSwin, stvit_r_swin
from tests.vision.integrations.conftest import refused, unchanged

State = dict[str, Tensor]
DIM, UNITS = 8, 2


def shapes(dim: int, heads: int, units: int, classes: int, *, centers: bool) -> dict[str, tuple]:
    found: dict[str, tuple] = {}

    def pair(name: str, *shape: int) -> None:
        found[f"{name}.weight"], found[f"{name}.bias"] = shape, shape[:1]

    for i, (before, after) in ((0, (3, dim // 2)), (2, (dim // 2, dim))):
        found[f"patch_embed.proj.{i}.c.weight"] = (after, before, 3, 3)
        pair(f"patch_embed.proj.{i}.bn", after)
        for name, shape in (("mean", (after,)), ("var", (after,))):
            found[f"patch_embed.proj.{i}.bn.running_{name}"] = shape
        found[f"patch_embed.proj.{i}.bn.num_batches_tracked"] = ()
    for stage, width in enumerate(dim << i for i in range(4)):
        for i in range(6 * units if stage == 2 else 2):
            at = f"layers.{stage}.blocks.{i}."
            pair(at + "norm1", width)
            pair(at + "norm2", width)
            pair(at + "attn.proj", width, width)
            pair(at + "mlp.fc1", 4 * width, width)
            pair(at + "mlp.fc2", width, 4 * width)
            if stage == 2 and i % 6:
                pair(at + "attn.q", width, width)
                pair(at + "attn.kv", 2 * width, width)
                found[at + "layer_scale_1"] = found[at + "layer_scale_2"] = (width,)
                continue
            pair(at + "attn.qkv", 3 * width, width)
            found[at + "attn.relative_position_bias_table"] = (169, heads << stage)
            found[at + "attn.relative_position_index"] = (49, 49)
            if stage < 2 and i == 1:
                found[at + "attn_mask"] = ((8 >> stage) ** 2, 49, 49)
        if stage < 3:
            pair(f"layers.{stage}.downsample.norm", 4 * width)
            found[f"layers.{stage}.downsample.reduction.weight"] = (2 * width, 4 * width)
    if centers:
        found["layers.2.semantic_token2"] = (1, 36, 4 * dim)
    pair("norm", 8 * dim)
    pair("head", classes, 8 * dim)
    return found


def state(*, centers: bool) -> State:
    draw = torch.Generator().manual_seed(0)
    found = {}
    for name, shape in shapes(DIM, 1, UNITS, 5, centers=centers).items():
        noise = 0.4 * torch.randn(shape, generator=draw)
        factor = name.endswith("running_var") or ("norm" in name and name.endswith("weight"))
        found[name] = 1 + noise.abs() if factor else noise
    return found


def cut(x: Tensor, side: int) -> Tensor:
    """Maps [B, H, W, C] as windows [B, windows, side * side, C], row by row."""
    x = x.unflatten(2, (-1, side)).unflatten(1, (-1, side)).transpose(2, 3)
    return x.flatten(3, 4).flatten(1, 2)


def paste(x: Tensor, side: int) -> Tensor:
    """The reverse, for as many rows of windows as columns."""
    along = round(x.size(1) ** 0.5)
    x = x.unflatten(2, (side, side)).unflatten(1, (along, along)).transpose(2, 3)
    return x.flatten(3, 4).flatten(1, 2)


class Written:
    """The network written out on dense windows, for images of 224 pixels."""

    def __init__(self, given: State) -> None:
        self.given = given

    def norm(self, name: str, x: Tensor) -> Tensor:
        return layer_norm(x, x.shape[-1:], self.given[f"{name}.weight"], self.given[f"{name}.bias"])

    def map(self, name: str, x: Tensor) -> Tensor:
        return F.linear(x, self.given[f"{name}.weight"], self.given.get(f"{name}.bias"))

    def mlp(self, at: str, x: Tensor) -> Tensor:
        return self.map(at + "mlp.fc2", gelu(self.map(at + "mlp.fc1", self.norm(at + "norm2", x))))

    def attend(
        self, at: str, query: Tensor, key_value: Tensor, heads: int, bias: Tensor | None = None
    ) -> Tensor:
        key, value = key_value.chunk(2, -1)
        q, k, v = (t.unflatten(-1, (heads, -1)).transpose(-3, -2) for t in (query, key, value))
        logits = q @ k.mT * q.size(-1) ** -0.5
        out = (logits if bias is None else logits + bias).softmax(-1) @ v
        return self.map(at + "attn.proj", out.transpose(-3, -2).flatten(-2))

    def swin(self, at: str, x: Tensor, heads: int, shift: int) -> Tensor:
        place = torch.cartesian_prod(torch.arange(7), torch.arange(7))
        relative = place[:, None] - place[None] + 6
        table = self.given[at + "attn.relative_position_bias_table"]
        bias = table[relative[..., 0] * 13 + relative[..., 1]].permute(2, 0, 1)
        if shift:  # patches from both ends of the image do not attend to each other
            end = (torch.arange(x.size(1)) >= x.size(1) - shift).long()
            region = cut((2 * end[:, None] + end)[None, ..., None], 7)[0, ..., 0]
            apart = (region[:, None] != region[:, :, None])[:, None]
            bias = bias.masked_fill(apart, -torch.inf)
        windows = cut(self.norm(at + "norm1", x).roll((-shift, -shift), (1, 2)), 7)
        query, key_value = self.map(at + "attn.qkv", windows).tensor_split([x.size(3)], -1)
        branch = paste(self.attend(at, query, key_value, heads, bias), 7)
        x = x + branch.roll((shift, shift), (1, 2))
        return x + self.mlp(at, x)

    def cross(
        self, at: str, x: Tensor, sources: Tensor, heads: int, residual: Tensor | None = None
    ) -> Tensor:
        query, key = (self.norm(at + "norm1", t) for t in (x, sources))
        query, key_value = self.map(at + "attn.q", query), self.map(at + "attn.kv", key)
        branch = self.attend(at, query, key_value, heads)
        x = (x if residual is None else residual) + self.given[at + "layer_scale_1"] * branch
        return x + self.given[at + "layer_scale_2"] * self.mlp(at, x)

    def unit(self, first: int, x: Tensor, heads: int) -> Tensor:
        at = [f"layers.2.blocks.{first + i}." for i in range(6)]
        x = self.swin(at[0], x, heads, 0)
        windows = cut(x, 7)
        maps = windows.flatten(0, 1).mT.unflatten(2, (7, 7))
        pooled = adaptive_max_pool2d(maps, 3).flatten(2).mT.unflatten(0, (len(x), 4))
        near = [x[:, r : r + 10, c : c + 10].flatten(1, 2) for r, c in product((0, 4), (0, 4))]
        sources = torch.cat([pooled, torch.stack(near, 1)], 2)
        tokens = self.cross(at[1], pooled, sources, heads, torch.zeros_like(pooled))
        tokens, patches = paste(tokens, 3).flatten(1, 2), x.flatten(1, 2)  # row by row
        moved = tokens if first else tokens + self.given.get("layers.2.semantic_token2", 0)
        tokens = self.cross(at[2], moved, torch.cat([tokens, patches], 1), heads)
        windows = cut(tokens.unflatten(1, (6, 6)), 3)
        tokens = paste(self.cross(at[3], windows, windows, heads), 3).flatten(1, 2)
        tokens = self.cross(at[4], tokens, tokens, heads)
        return self.cross(at[5], patches, tokens, heads).view_as(x)

    def __call__(self, images: Tensor) -> tuple[list[Tensor], Tensor]:
        """Patches after each stage, and the classes."""
        x, stages = images, []
        for i in (0, 2):
            at = f"patch_embed.proj.{i}."
            x = conv2d(x, self.given[at + "c.weight"], stride=2, padding=1)
            names = ("running_mean", "running_var", "weight", "bias")
            x = hardswish(batch_norm(x, *(self.given[f"{at}bn.{name}"] for name in names)))
        x = x.permute(0, 2, 3, 1)
        for stage in range(4):
            if stage == 2:
                for unit in range(UNITS):
                    x = self.unit(6 * unit, x, 4)
            else:
                for i in range(2):
                    shift = 3 * i if stage < 2 else 0
                    x = self.swin(f"layers.{stage}.blocks.{i}.", x, 1 << stage, shift)
            if stage < 3:
                at = f"layers.{stage}.downsample."
                four = [x[:, row::2, column::2] for column in range(2) for row in range(2)]
                x = self.map(at + "reduction", self.norm(at + "norm", torch.cat(four, 3)))
            stages.append(x.flatten(0, 2))
        return stages, self.map("head", self.norm("norm", x).mean((1, 2)))


def ours(*, centers: bool = False) -> STViTRSwin:
    tokens = 36 if centers else None
    return stvit_r_swin(DIM, 1, units=UNITS, out_channels=5, tokens=tokens).eval()


@torch.no_grad()
@pytest.mark.parametrize("centers", [False, True])
def test_the_published_names_give_the_published_outputs(centers: bool) -> None:
    model, given = ours(centers=centers), state(centers=centers)
    load_stvit_r(model, given)
    coarse = torch.randn(2, 3, 28, 28, generator=torch.Generator().manual_seed(1))
    images = 3 * coarse.repeat_interleave(8, 2).repeat_interleave(8, 3)
    stages, classes = Written(given)(images)
    torch.testing.assert_close(model(images), classes, rtol=1e-4, atol=1e-4)
    found = [patches for patches, _ in model.features(images)]
    torch.testing.assert_close(found, stages, rtol=1e-4, atol=1e-3)
    if centers:
        learned = model.stages[2].units[0].global_centers
        learned.copy_(given["layers.2.semantic_token2"][0])  # not window by window
        assert (model.features(images)[2][0] - stages[2]).abs().max() > 0.01


@pytest.mark.parametrize("centers", [False, True])
@pytest.mark.parametrize(("name", "sizes"), [("small", (96, 3)), ("base", (128, 4))])
def test_every_published_size_has_our_shapes(name: str, sizes: tuple, centers: bool) -> None:
    names = shapes(*sizes, 3, 1000, centers=centers)
    with torch.device("meta"):
        given = {name: torch.empty(shape) for name, shape in names.items()}
        model = getattr(models, f"stvit_r_swin_{name}")(tokens=36 if centers else None)
        load_stvit_r(model, given)
        if name == "small" and not centers:
            with pytest.raises(ValueError, match=r"other shapes: stem\.layers\.0\.weight"):
                load_stvit_r(models.stvit_r_swin_base(), given)


def test_foreign_states_and_centers_of_another_number_are_refused() -> None:
    model, given = ours(), state(centers=False)
    block, centers = "layers.2.blocks.10.", torch.zeros(1, 36, 4 * DIM)
    table = torch.zeros(121, 4)
    refused(
        load_stvit_r, model, given,
        ({block + "attn.kv.bias": None}, r"other shapes: .*units\.1\.blocks\.3\.attention\.qkv"),
        ({block + "mlp.fc1.bias": None}, r"missing: stages\.2\.units\.1\.blocks\.3\.mlp\.fc1"),
        ({block + "attn.relative_position_bias_table": table}, r"unexpected: layers\.2\.blocks"),
        ({"layers.0.blocks.0.layer_scale_1": table}, r"unexpected: layers\.0\.blocks\.0\.layer"),
        ({"layers.2.blocks.7.conv_pos.proj.0.bias": table}, r"unexpected: .*7\.conv_pos\.proj"),
        ({"layers.2.semantic_token2": centers}, r"unexpected: layers\.2\.semantic_token2"),
        ({"layers.2.blocks.12.norm1.bias": table}, r"unexpected: layers\.2\.blocks\.12\.norm1"),
    )  # fmt: skip
    no_state = pytest.raises(TypeError, match=r"expected a state dict.* a dict under 'model'")
    with unchanged(model), no_state:
        load_stvit_r(model, {"model": given, "config": {}})
    given = state(centers=True)
    for shape in ((1, 35, 4 * DIM), (1, 81, 4 * DIM), (4 * DIM,)):
        other = given | {"layers.2.semantic_token2": torch.zeros(shape)}
        with pytest.raises(ValueError, match=r"other shapes: .*global_centers \(.*\) for \(36, 32"):
            load_stvit_r(ours(centers=True), other)
    with pytest.raises(ValueError, match=r"missing: stages\.2\.units\.0\.global_centers"):
        load_stvit_r(ours(centers=True), state(centers=False))
    two = stvit_r_swin(DIM, 1, units=UNITS, out_channels=5, side=2)
    with pytest.raises(ValueError, match=r"model: its units have .*'side': 2.* expected .*: 3"):
        load_stvit_r(two, state(centers=False))
