import math
from collections.abc import Callable

import matplotlib.pyplot as plt
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from graphtheory.graph import Grid
from graphtheory.lab import plot
from graphtheory.lab.metrics import count_macs
from graphtheory.nn import Attention, Block, attention_maps
from graphtheory.vision import models
from graphtheory.vision.models import ViG, vig_nano
from graphtheory.vision.models.dumbbell import Dumbbell, WindowTokens, dumbbell_sets
from graphtheory.vision.models.swin import window_block
from graphtheory.vision.models.vig import pyramid_vig, vig
from graphtheory.vision.nn import AttentionMessage, EdgeMessage, SageMessage

# Name -> millions of parameters, and billions of operations, published.
PUBLISHED = {
    "vig_tiny": (7.1, 1.3), "vig_small": (22.7, 4.5), "vig_base": (86.8, 17.7),
    "pyramid_vig_tiny": (10.7, 1.7), "pyramid_vig_small": (27.3, 4.6),
    "pyramid_vig_medium": (51.7, 8.9), "pyramid_vig_base": (82.6, 16.8),
}  # fmt: skip
# Not within the rounding: ours by the released code, which has the published operations.
OTHERS = {"vig_tiny": 7.18, "pyramid_vig_base": 92.98}
TABLES = {"pyramid_vig_medium"}  # fixed tables of places were counted, there alone


def pyramid(**options: object) -> ViG:
    small = {"image_size": 32, "patch_size": 2, "reduce": (2, 1), "head_width": 16}
    return pyramid_vig((8, 16), (1, 2), **{**small, **options})


@pytest.mark.parametrize("name", PUBLISHED)
def test_size_and_cost_are_published(name: str) -> None:
    """Their counter counts an operation for each entry of a norm; it decides two roundings."""
    with torch.device("meta"):
        model, image = getattr(models, name)(), torch.zeros(1, 3, 224, 224)
    entries: list[int] = []
    for part in model.modules():
        if isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d):
            part.register_forward_hook(lambda *call: entries.append(call[2].numel()))
    cost = count_macs(model, image).total + sum(entries)
    size = sum(p.numel() for p in model.parameters())
    if name in TABLES:
        nodes = [(56**2, 4, 2), (28**2, 2, 2), (14**2, 1, 16), (7**2, 1, 2)]
        size += sum(blocks * n * n // r**2 for n, r, blocks in nodes)
    wanted, operations = PUBLISHED[name]
    assert round(cost / 1e9, 1) == operations
    if name in OTHERS:
        assert round(size / 1e6, 2) == OTHERS[name]
    else:
        assert abs(size / 1e6 - wanted) <= 0.051


def test_neighbors_grow_over_the_blocks() -> None:
    with torch.device("meta"):
        flat, steep = models.vig_tiny(), models.pyramid_vig_base()
    near = [block.grapher.nearest for block in flat.stages[0].blocks]
    assert [n.k for n in near] == [int(k) for k in torch.linspace(9, 18, 12)]
    assert [n.dilation for n in near] == [1] * 4 + [2] * 4 + [3] * 4
    blocks = [block.grapher for stage in steep.stages for block in stage.blocks]
    assert {b.nearest.k for b in blocks} == {9}
    assert [b.nearest.dilation for b in blocks] == [min(i // 4 + 1, 5) for i in range(24)]
    assert [b.reduce for b in blocks] == [4, 4, 2, 2, *[1] * 20]


@pytest.mark.parametrize("make", [vig_nano, pyramid])
def test_images_of_any_size_do_not_see_each_other(make: type[ViG]) -> None:
    model = make(out_channels=3).eval()
    nn.init.normal_(model.position.table)
    for size in ((32, 32), (28, 28), (9, 50), (1, 3)):
        images = torch.randn(3, 3, *size)
        out = model(images)
        assert out.shape == (3, 3)
        torch.testing.assert_close(model(images[1:2]), out[1:2], atol=1e-5, rtol=1e-4)
    graph = model.graphs(images)[-1]
    assert graph.neighborhood.edge_index().tolist() == 2 * [[0, 1, 2]]  # a node is its own


@pytest.mark.parametrize("message", [EdgeMessage, SageMessage, AttentionMessage])
def test_other_messages_take_the_place(message: type) -> None:
    model = pyramid(message=message, out_channels=3)
    model(torch.randn(2, 3, 16, 24)).sum().backward()
    assert [n for n, p in model.named_parameters() if p.grad is None] == []
    found = model.attention_maps(torch.randn(2, 3, 16, 24))
    assert [m.weights.size(1) for m in found] == [4 if message is AttentionMessage else 1] * 3
    kept = attention_maps(model, torch.randn(2, 3, 16, 24))
    assert len(kept) == (3 if message is AttentionMessage else 0)


def test_the_graph_of_each_block_is_returned_and_drawn() -> None:
    model = pyramid().train()
    images = torch.rand(2, 3, 32, 48)
    graphs = model.graphs(images)
    assert model.training and [g.reduce for g in graphs] == [2, 1, 1]
    sizes = [(g.neighborhood.num_dst, g.neighborhood.num_src) for g in graphs]
    assert sizes == [(2 * 16 * 24, 2 * 8 * 12), *[(2 * 8 * 12, 2 * 8 * 12)] * 2]
    assert graphs[1].neighborhood.edge_index().shape == (2, 192 * 9)
    for graph in graphs[:2]:
        drawing = graph.drawing(1, 32, 48)
        figure = plot.image_graph(images[1], **drawing, target=40)
        (lines,) = (c for c in figure.axes[0].collections if len(c.get_paths()) > 1)
        assert len(lines.get_segments()) >= 8  # of 9, one of which may be the node itself
        plt.close(figure)


def test_it_learns_and_repeats(losses: Callable[..., list[float]]) -> None:
    def make() -> ViG:
        return vig(16, 2, image_size=16, patch_size=4, neighbors=3, out_channels=4, drop_path=0.1)

    first = losses(make, 16, 8)
    assert first == losses(make, 16, 8) and first[-1] < 0.5 * first[0]


def test_bad_options_are_named() -> None:
    for make, options, message in (
        (vig_nano, {"patch_size": 6}, "patch_size: got 6, expected a power of 2"),
        (vig_nano, {"image_size": 30}, "image_size: got 30, expected a multiple of patch_size=4"),
        (pyramid, {"reduce": (1,)}, "reduce: 1 stages, expected 2 as many as dims"),
    ):
        with pytest.raises(ValueError, match=message):
            make(**options)


DIM, HEADS = 6, 2
CPU = torch.device("cpu")


def unit(**options: object) -> Dumbbell:
    blocks = [Block(Attention(DIM, HEADS), layer_scale=0.5) for _ in range(5)]
    made = Dumbbell(window_block(DIM, HEADS, options.get("window", 7)), blocks, **options)
    made.reset_parameters(torch.Generator().manual_seed(0))
    return made


def plain(block: Block, query: Tensor, sources: Tensor, residual: Tensor | float) -> Tensor:
    """[B, M, C] asks [B, K, C]."""
    weight, bias = block.attention.qkv.weight.chunk(3), block.attention.qkv.bias.chunk(3)
    parts = zip((query, sources, sources), weight, bias, strict=True)
    q, k, v = (
        (block.norm1(t) @ w.T + b).unflatten(2, (HEADS, -1)).transpose(1, 2) for t, w, b in parts
    )
    weights = (q @ k.transpose(2, 3) / math.sqrt(DIM // HEADS)).softmax(3)
    branch = block.attention.out((weights @ v).transpose(1, 2).flatten(2))
    out = residual + block.scale1(branch)
    return out + block.scale2(block.mlp(block.norm2(out)))


def windows_of(maps: Tensor, size: int, stride: int) -> Tensor:
    """[B, C, h, w] as [B * windows, size * size, C]."""
    cut = F.unfold(maps, size, stride=stride).view(len(maps), DIM, size**2, -1)
    return cut.permute(0, 3, 2, 1).flatten(0, 1)


@pytest.mark.parametrize("shortcut", [False, True])
def test_equal_to_the_formulas_in_plain_torch(shortcut: bool) -> None:
    """14 x 14 patches: 4 windows of 7 x 7, each within a region of 10 x 10 cut with stride 4."""
    made, grid = unit(tokens=36, shortcut=shortcut), Grid(2, 14, 14)
    start = torch.randn(392, DIM)
    x = made.swin(start, grid)[0].view(2, 196, DIM)
    maps = x.view(2, 14, 14, DIM).permute(0, 3, 1, 2)
    own = windows_of(maps, 7, 7).transpose(1, 2).reshape(8, DIM, 7, 7)
    centers = F.adaptive_max_pool2d(own, 3).flatten(2).transpose(1, 2)
    near = torch.cat([centers, windows_of(maps, 10, 4)], 1)
    a, b, c, d, e = made.blocks
    tokens = plain(a, centers, near, centers if shortcut else 0.0).view(2, 36, DIM)
    query = tokens + made.global_centers
    tokens = plain(b, query, torch.cat([tokens, x], 1), query).view(8, 9, DIM)
    tokens = plain(c, tokens, tokens, tokens).view(2, 36, DIM)
    tokens = plain(d, tokens, tokens, tokens)
    wanted = plain(e, x, tokens, x).flatten(0, 1)
    torch.testing.assert_close(made(start, grid), wanted, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("grid", [Grid(2, 14, 14), Grid(2, 9, 16), Grid(1, 3, 30)], ids=str)
def test_any_grid_comes_back_and_images_do_not_see_each_other(grid: Grid) -> None:
    made, x = unit(), torch.randn(grid.num_nodes, DIM)
    out = made(x, grid)
    assert out.shape == x.shape
    one = made(x[-grid.size :], Grid(1, grid.height, grid.width))
    torch.testing.assert_close(out[-grid.size :], one)


def test_sets_are_those_of_the_paper_of_as_many_blocks() -> None:
    sets = dumbbell_sets(Grid(2, 14, 14), 7, 3, 3, CPU)
    assert sets is dumbbell_sets(Grid(2, 14, 14), 7, 3, 3, CPU)
    found = [nb.blocks for nb in sets[2:]]
    assert found == [(8, 9, 109), (2, 36, 232), (8, 9, 9), (2, 36, 36), (2, 196, 36)]
    larger = dumbbell_sets(Grid(1, 21, 21), 7, 3, 3, CPU).of_near
    assert larger.degree()[::9].tolist() == [109, 139, 109, 139, 178, 139, 109, 139, 109]
    with pytest.raises(ValueError, match="blocks: got 0, expected 5"):
        Dumbbell(window_block(DIM, HEADS, 7), [])


def test_smaller_windows_are_padded_ones_with_masked_rows_and_columns() -> None:
    """9 x 10 patches filled up to 14 x 14: nothing of the fill is pooled, asked or weighed."""
    grid, blocks = Grid(1, 9, 10), [Block(Attention(DIM, HEADS)) for _ in range(2)]
    made = WindowTokens(blocks, window=7, side=1, shortcut=True)
    x = torch.randn(90, DIM)
    maps = F.pad(x.view(9, 10, DIM), (0, 0, 0, 4, 0, 5), value=100.0)  # [14, 14, C]
    real = F.pad(torch.ones(9, 10), (0, 4, 0, 5)).bool()
    lowest = maps.masked_fill(~real[..., None], -torch.inf)
    own = [lowest[r : r + 7, c : c + 7].flatten(0, 1).amax(0) for r in (0, 7) for c in (0, 7)]
    corners = [(r, c) for r in (0, 4) for c in (0, 4)]  # regions of 10 x 10
    tokens = []
    for center, (r, c) in zip(own, corners, strict=True):
        near = maps[r : r + 10, c : c + 10][real[r : r + 10, c : c + 10]]
        sources = torch.cat([center[None], near])[None]
        tokens.append(plain(blocks[0], center[None, None], sources, center)[0])
    first = torch.cat(tokens)[None]
    wanted = plain(blocks[1], first, torch.cat([first, x[None]], 1), first)[0]
    torch.testing.assert_close(made(x, grid), wanted, atol=1e-5, rtol=1e-5)
