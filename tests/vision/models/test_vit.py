from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import pytest
import torch
from torch import nn

from graphtheory.graph import Grid
from graphtheory.vision import models
from graphtheory.vision.models import ClassToken, DistilledToken, gpt, swin_pico, vit_pico
from graphtheory.vision.models.resnet import ResidualConv, SmallResNet
from graphtheory.vision.models.stvit import stvit
from graphtheory.vision.models.swin import PatchMerging, swin
from graphtheory.vision.models.vit import depth_rates, vit
from graphtheory.vision.nn import AveragePool, MultiScale, PeriodicPositions, SinusoidalPositions
from graphtheory.vision.nn.patch import from_map
from graphtheory.vision.nn.token_sets import token_causal

# Parameters as published, or counted by the libraries that publish weights.
PUBLISHED = {
    "vit_tiny": 5_717_416, "vit_small": 22_050_664, "vit_base": 86_567_656,
    "deit_tiny": 5_717_416, "deit_small": 22_050_664, "deit_base": 86_567_656,
}  # fmt: skip
DISTILLED = {"deit_tiny": 5_910_800, "deit_small": 22_436_432, "deit_base": 87_338_192}


def size(model: torch.nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def test_named_models_have_the_published_sizes_and_paths_that_drop_deeper() -> None:
    with torch.device("meta"):
        assert {n: size(getattr(models, n)()) for n in PUBLISHED} == PUBLISHED
        found = {n: size(getattr(models, n)(readout=DistilledToken)) for n in DISTILLED}
    assert found == DISTILLED
    with torch.device("meta"):
        model = models.deit_tiny()
    rates = [block.drop_path.p for block in model.blocks]
    assert rates == depth_rates(0.1, 12) and (rates[0], rates[-1]) == (0.0, 0.1)


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        *((partial(vit_pico, readout=readout), (readout.prefix + 63, 64))
          for readout in (ClassToken, DistilledToken, models.MeanToken)),
        (lambda **options: tiny(tokens=9, **options), (9, 8)),
    ],
)  # fmt: skip
def test_images_of_any_size_do_not_see_each_other(make: Callable[..., Any], shape: Any) -> None:
    model, images = make(out_channels=3).eval(), torch.randn(3, 3, 28, 36)
    out = model(images)
    torch.testing.assert_close(model(images[1:2]), out[1:2])
    assert out.shape == (3, 3) and model.tokens(images).shape == (3, *shape)


PICO = pytest.mark.parametrize("network", [vit_pico, models.stvit_pico])


@PICO
def test_attention_runs_on_dense_blocks(network: Callable[..., Any], chosen: list[str]) -> None:
    network()(torch.randn(2, 3, 32, 32))
    assert chosen == ["blocks"] * 4


def test_maps_are_of_each_layer_and_each_reads_its_tokens() -> None:
    model, images = vit_pico(image_size=28), torch.randn(2, 3, 28, 28)
    maps = model.attention_maps(images)
    assert [m.weights.shape for m in maps] == [(2 * 50 * 50, 2)] * 4
    nb = maps[0].neighborhood
    total = torch.zeros(100, 2).index_add(0, nb.targets(), maps[-1].weights)
    torch.testing.assert_close(total, torch.ones(100, 2))
    assert model.training
    tokens = torch.randn(2, 5, 4)
    assert torch.equal(ClassToken()(tokens), tokens[:, 0])
    assert torch.equal(models.MeanToken()(tokens), tokens.mean(1))
    head = DistilledToken.linear(4, 3)
    output, distilled = head.both(tokens)
    torch.testing.assert_close(output, head.output(tokens[:, 0]))
    torch.testing.assert_close(distilled, head.distilled(tokens[:, 1]))
    torch.testing.assert_close(head(tokens), (output + distilled) / 2)
    assert (models.MeanToken.prefix, ClassToken.prefix, DistilledToken.prefix) == (0, 1, 2)


@PICO
def test_it_learns_and_repeats(network: Callable[..., Any], losses) -> None:
    make = partial(network, out_channels=4, drop_path=0.1)
    first = losses(make)
    assert first == losses(make) and first[-1] < 0.5 * first[0]


def test_options_reach_the_blocks_and_bad_ones_are_named() -> None:
    model = vit(8, 2, 2, image_size=8, patch_size=4, in_channels=1, layer_scale=0.1, dropout=0.2)
    assert model.blocks[1].attention.dropout == 0.2 and model.blocks[0].scale1.gamma[0] == 0.1
    assert model(torch.randn(2, 1, 8, 8)).shape == (2, 1000)
    with pytest.raises(ValueError, match="image_size: got 30, expected a multiple of patch_size=4"):
        vit_pico(image_size=30)


@torch.no_grad()  # torch itself warns of the gradients of what a graph break passes on
def test_what_is_compiled_takes_the_cliques_that_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    model, images = vit_pico().eval(), torch.randn(2, 3, 32, 32)
    expected = model(images)
    monkeypatch.delattr("graphtheory.vision.nn.token_sets.cliques")
    torch.testing.assert_close(torch.compile(model, backend="eager")(images), expected)


def tiny(**options: object) -> models.STViT:
    return stvit(8, 4, 2, **{"image_size": 32, "patch_size": 4, "base": 1, **options})


def test_named_models_have_the_layout_and_sizes_of_the_paper() -> None:
    with torch.device("meta"):
        made = [models.stvit_deit_tiny(), models.stvit_deit_small(), models.stvit_deit_base()]
    for model, dim, heads in zip(made, (192, 384, 768), (3, 6, 12), strict=True):
        parts = (model.base, model.semantic.blocks, model.blocks)
        assert [len(p) for p in parts] == [4, 2, 6] and model.embed.prefix.size(0) == 0
        attention = model.semantic.blocks[1].attention
        assert (attention.dim, attention.heads) == (dim, heads)
        assert model.semantic.global_centers.shape == (16, dim)
    rates = [b.drop_path.p for part in parts for b in part]
    assert rates == models.vit.depth_rates(0.1, 12)
    # A DeiT without class token, and G and the mask net: 9C + C, 2C, C.
    with torch.device("meta"):
        networks = (models.stvit_deit_small(), models.deit_small(readout=models.MeanToken))
        sizes = [sum(p.numel() for p in model.parameters()) for model in networks]
    assert sizes[0] - sizes[1] == 16 * 384 + 13 * 384


def test_maps_and_assignment_have_the_shapes_of_the_paper() -> None:
    model = stvit(12, 4, 2, base=1).eval()
    images = torch.randn(2, 3, 224, 224)
    found = model.attention_maps(images)
    shapes = [(196, 196), (16, 196), (16, 212), (16, 16)]
    assert [m.weights.shape for m in found] == [(2 * m * n, 2) for m, n in shapes]
    second = found[2].weights.view(2, 16, 212, 2).permute(0, 3, 1, 2)
    torch.testing.assert_close(second.sum(3), torch.ones(2, 2, 16))
    torch.testing.assert_close(model.assignment(images), second[..., 16:])
    assert model.assignment(images).shape == (2, 2, 16, 196)
    assert tiny(semantic=1, with_global=False).assignment(torch.randn(1, 3, 32, 32)).size(3) == 64


def test_other_centers() -> None:
    parts = [AveragePool(3), AveragePool(4)]
    model = tiny(tokens=MultiScale(parts), semantic=3)
    assert model.tokens(torch.randn(2, 3, 32, 32)).shape == (2, 25, 8)
    assert len(model.blocks) == 0


def test_bad_options_are_named() -> None:
    for options, message in (
        ({"tokens": 15}, "tokens: got 15, expected a square number"),
        ({"base": 3}, r"base: got 3, expected 0\.\.2"),
        ({"image_size": 30}, "image_size: got 30, expected a multiple of patch_size=4"),
    ):
        with pytest.raises(ValueError, match=message):
            tiny(**options)
    assert models.stvit_nano().base[0].attention.heads == 4


SWIN_SIZES = {"swin_tiny": 28_288_354, "swin_small": 49_606_258, "swin_base": 87_768_224}


def test_named_models_have_the_published_sizes_and_bad_options_are_named() -> None:
    with torch.device("meta"):
        sizes = {n: sum(p.numel() for p in getattr(models, n)().parameters()) for n in SWIN_SIZES}
    assert sizes == SWIN_SIZES
    with pytest.raises(ValueError, match="heads: 1 stages, expected 2 as many as depths"):
        swin(8, (1, 1), (2,))


def test_merging_puts_four_patches_side_by_side_and_zeros_where_one_is_missing() -> None:
    merge, maps = PatchMerging(2), torch.randn(2, 2, 3, 5)
    merge.norm, merge.reduction = nn.Identity(), nn.Identity()
    x, grid = merge(*from_map(maps))
    assert grid == Grid(2, 2, 3)
    first = maps[1, :, 0:2, 2:4]  # image 1, row 0, column 1 of the result
    wanted = torch.cat([first[:, 0, 0], first[:, 1, 0], first[:, 0, 1], first[:, 1, 1]])
    assert torch.equal(x[6 + 1], wanted)
    corner = torch.cat([maps[0, :, 2, 4], torch.zeros(6)])
    assert torch.equal(x[5], corner)


def test_images_of_any_size_stay_apart_and_windows_shift_unless_one_covers_the_grid() -> None:
    model, images = swin_pico(out_channels=3).eval(), torch.randn(3, 3, 27, 38)
    out = model(images)
    torch.testing.assert_close(model(images[1:2]), out[1:2])
    assert model.tokens(images).shape == (3, 7 * 10, 64)
    model, device = swin_pico(), torch.device("cpu")
    plain, shifted = model.stages[0].windows(Grid(1, 16, 16), device)
    assert plain.neighborhood.blocks == (16, 16, 16)
    assert shifted.neighborhood.sets.dst[0] == 4
    for grid in (Grid(1, 4, 4), Grid(1, 4, 12)):
        assert model.stages[0].windows(grid, device)[1].neighborhood.blocks is not None


def test_a_patch_sees_its_window_and_through_the_shift_the_next() -> None:
    model = swin_pico(drop_path=0.0)
    stage, images = model.stages[0], torch.randn(1, 3, 32, 32, requires_grad=True)
    stage.merge = None

    def seen_by(row: int, column: int) -> torch.Tensor:
        out, grid = stage(*model.patch(images))
        (grad,) = torch.autograd.grad(out[row * grid.width + column].sum(), images)
        return grad[0].abs().sum(0).view(16, 2, 16, 2).sum((1, 3)) > 0

    wanted = torch.zeros(16, 16, dtype=torch.bool)
    wanted[:4, :4] = True  # the first shifted window lies in the first window
    assert torch.equal(seen_by(0, 0), wanted)
    wanted[:8, :8] = True  # the next one, of rows and columns 2 to 5, lies in four
    assert torch.equal(seen_by(2, 2), wanted)


def test_maps_name_the_patches_of_their_grid() -> None:
    model, images = swin_pico(), torch.randn(2, 3, 32, 32)
    nn.init.normal_(model.stages[0].blocks[1].attention.bias.table)
    maps = model.attention_maps(images)
    assert [m.neighborhood.num_dst for m in maps] == [512, 512, 128, 128]
    heard = maps[0].neighborhood.rows(torch.tensor([17])).indices.tolist()
    assert heard == [r * 16 + c for r in range(4) for c in range(4)]
    shifted, weights = maps[1]
    total = torch.zeros(512, 2).index_add(0, shifted.targets(), weights)
    torch.testing.assert_close(total, torch.ones(512, 2))
    # An image of one color leaves the bias alone to tell patches apart.
    plain = model.attention_maps(torch.zeros(1, 3, 32, 32))[1]
    row = plain.neighborhood.rows(torch.tensor([2 * 16 + 3]))  # at (2, 3) of window rows 2..5
    table = model.stages[0].blocks[1].attention.bias.table
    sources = row.indices
    relative = (2 - sources // 16 + 3) * 7 + (3 - sources % 16 + 3)
    expected = table[relative].softmax(0)
    torch.testing.assert_close(plain.weights[row.perm], expected.detach())


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("vit_pico", "vit"), ("deit_base", "vit"), ("swin_nano", "swin"), ("vig_tiny", "vig"),
        ("pyramid_vig_medium", "vig"), ("stvit_deit_small", "stvit"), ("stvit_micro", "stvit"),
        ("stvit_swin_tiny", "stvit_swin"), ("stvit_r_swin_small", "stvit_swin"),
    ],
)  # fmt: skip
def test_networks_of_named_sizes_come_from_their_modules(name: str, module: str) -> None:
    family = import_module(f"graphtheory.vision.models.{module}")
    assert getattr(models, name) is getattr(family, name)


@pytest.mark.parametrize("name", ["vit_huge", "resnet_tiny", "vit_other_tiny"])
def test_unknown_names_are_attribute_errors(name: str) -> None:
    with pytest.raises(AttributeError, match=name):
        getattr(models, name)


def test_named_sizes_are_listed() -> None:
    listed = dir(models)
    assert {"vit_small", "stvit_deit_small", "pyramid_vig_tiny", "GPT"} <= set(listed)
    assert all(hasattr(models, name) for name in listed)


def test_shapes_of_any_size_and_stages_that_halve() -> None:
    model = SmallResNet(5, in_channels=1).eval()
    for size in (8, 28, 31):
        assert model(torch.randn(2, 1, size, size)).shape == (2, 5)
    model = SmallResNet(5, in_channels=3, depth=2).eval()
    x, shapes = model.stem(torch.randn(1, 3, 32, 32)), []
    for block in model.blocks:
        x = block(x)
        shapes.append(tuple(x.shape[1:]))
    assert shapes == [(16, 32, 32)] * 2 + [(32, 16, 16)] * 2 + [(64, 8, 8)] * 2


@pytest.mark.parametrize("stride", [1, 2])
def test_a_block_is_its_way_and_its_branch(stride: int) -> None:
    block = ResidualConv(4, 4 * stride, stride).eval()
    x = torch.randn(2, 4, 6, 6)
    assert block(x).equal((block.way(x) + block.branch(x)).relu())
    assert (stride == 1) == isinstance(block.way, torch.nn.Identity)


def test_it_has_the_published_size_and_parts_can_be_left_out() -> None:
    with torch.device("meta"):
        assert sum(p.numel() for p in models.gpt2_small().parameters()) == 124_439_808
    model = gpt(8, 1, 2, in_channels=8, norm=False, mlp_ratio=0)
    names = {name.split(".")[0] for name, _ in model.named_parameters()}
    assert names == {"embed", "position", "blocks", "head"}
    maps = model.attention_maps(torch.randn(2, 5, 8))
    assert maps[0].neighborhood is token_causal((5, 5), torch.device("cpu"))


@pytest.mark.parametrize(
    "position", [None, SinusoidalPositions(8), PeriodicPositions(torch.eye(3, 8))]
)
def test_a_token_hears_those_before_it_alone(position: torch.nn.Module | None) -> None:
    model = gpt(8, 2, 2, vocabulary=11, length=9, position=position)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    ids = torch.randint(11, (2, 9))
    later = ids.clone()
    later[:, 5:] = (ids[:, 5:] + 1) % 11
    out, other = model(ids), model(later)
    torch.testing.assert_close(out[:, :5], other[:, :5])
    assert (out[:, 5:] - other[:, 5:]).abs().amin(0).max() > 1e-3
    swapped = ids[:, [1, 0, *range(2, 9)]]  # tells places apart
    assert (model(swapped)[:, 2] - out[:, 2]).abs().max() > 1e-3


def test_padding_is_nobody_and_a_mask_may_hold_any_numbers() -> None:
    model = gpt(8, 2, 2, in_channels=3, out_channels=2, length=9)
    rows = [torch.randn(n, 3) for n in (9, 4, 1)]
    alone = [model(row[None])[0] for row in rows]
    for left in (False, True):
        inputs, mask = torch.full((3, 9, 3), torch.nan), torch.zeros(3, 9, dtype=torch.int64)
        for i, row in enumerate(rows):
            where = slice(9 - len(row), 9) if left else slice(len(row))
            inputs[i, where], mask[i, where] = row, 1
        out = model(inputs, mask)
        torch.testing.assert_close(out[mask.bool()], torch.cat(alone))
        assert not out[~mask.bool()].any()
    model, inputs = gpt(8, 1, 2, in_channels=3, length=9), torch.randn(2, 3, 3)
    mask = torch.tensor([[1, 1, 0], [1, 1, 1]])
    torch.testing.assert_close(model(inputs, 2.5 * mask), model(inputs, mask.bool()))
    maps = model.attention_maps(inputs, 7 * mask)
    assert maps[0].neighborhood.num_dst == 5


def test_what_does_not_fit_is_named() -> None:
    with pytest.raises(ValueError, match="vocabulary: got vocabulary=None"):
        gpt(8, 1, 2)
    model = gpt(8, 1, 2, vocabulary=5, length=4)
    with pytest.raises(IndexError, match="longer than the 4 learned places"):
        model(torch.zeros(1, 5, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"inputs: torch\.float32 of shape"):
        model(torch.zeros(1, 4))
    with pytest.raises(ValueError, match="mask: shape"):
        model(torch.zeros(1, 4, dtype=torch.int64), torch.ones(1, 3))
    for shape in ((0, 4), (2, 0)):
        with pytest.raises(ValueError, match=r"inputs: shape .* expected a sequence and a token"):
            model(torch.zeros(shape, dtype=torch.int64))
    for name in ("vocabulary", "in_channels"):
        with pytest.raises(ValueError, match=f"{name}: got 0, expected at least 1"):
            gpt(8, 1, 2, **{name: 0})
