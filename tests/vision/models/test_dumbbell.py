import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from graphtheory.graph import Grid
from graphtheory.nn import Attention, Block
from graphtheory.vision.models.dumbbell import Dumbbell, WindowTokens, dumbbell_sets
from graphtheory.vision.models.swin import window_block

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
    q, k, v = (
        (block.norm1(t) @ w.T + b).unflatten(2, (HEADS, -1)).transpose(1, 2)
        for t, w, b in zip((query, sources, sources), weight, bias, strict=True)
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
