import math

import pytest
import torch
from torch import Tensor

from graphtheory import bipartite, ops
from graphtheory.graph import Grid
from graphtheory.nn import Attention, Block
from graphtheory.vision.nn import AveragePool, SemanticTokens

IMAGES, SIDE, DIM, HEADS = 2, 4, 6, 2
PATCHES, TOKENS = SIDE**2, 4
GRID = Grid(IMAGES, SIDE, SIDE)
OF_PATCHES = bipartite([TOKENS] * IMAGES, [PATCHES] * IMAGES)
OF_BOTH = bipartite([TOKENS] * IMAGES, [TOKENS + PATCHES] * IMAGES)


def layers(count: int = 2, **options: bool) -> SemanticTokens:
    blocks = [Block(Attention(DIM, HEADS)) for _ in range(count)]
    made = SemanticTokens(AveragePool(2), blocks, **options).double()
    made.reset_parameters(torch.Generator().manual_seed(0))
    return made


def run(made: SemanticTokens, x: Tensor) -> Tensor:
    return made(x, GRID, OF_PATCHES, OF_BOTH)


def plain(block: Block, query: Tensor, sources: Tensor, residual: Tensor) -> Tensor:
    """The layer of section 1.2 in plain torch: [B, M, C] asks [B, K, C]."""
    weight, bias = block.attention.qkv.weight.chunk(3), block.attention.qkv.bias.chunk(3)
    q, k, v = (
        (block.norm1(t) @ w.T + b).unflatten(2, (HEADS, -1)).transpose(1, 2)
        for t, w, b in zip((query, sources, sources), weight, bias, strict=True)
    )
    weights = (q @ k.transpose(2, 3) / math.sqrt(DIM // HEADS)).softmax(3)
    out = residual + block.attention.out((weights @ v).transpose(1, 2).flatten(2))
    return out + block.mlp(block.norm2(out))


@pytest.mark.parametrize("residual_of_centers", [False, True])
def test_equal_to_the_formulas_in_plain_torch(residual_of_centers: bool) -> None:
    made, x = layers(residual_of_centers=residual_of_centers), torch.randn(32, DIM).double()
    patches = x.view(IMAGES, PATCHES, DIM)
    centers = made.centers(x, GRID).view(IMAGES, TOKENS, DIM)
    first = plain(made.blocks[0], centers, patches, centers)
    query = first + made.global_centers
    sources = torch.cat([first, patches], 1)
    wanted = plain(made.blocks[1], query, sources, centers if residual_of_centers else query)
    torch.testing.assert_close(run(made, x), wanted.flatten(0, 1))


def test_global_centers_are_in_the_query_alone() -> None:
    made, seen = layers(), []
    for block in made.blocks:
        block.register_forward_pre_hook(
            lambda _, args, options: seen.append((args[0], options["sources"])), with_kwargs=True
        )
    run(made, torch.randn(32, DIM).double())
    (_, patches), (query, both) = seen
    both = both.view(IMAGES, TOKENS + PATCHES, DIM)
    torch.testing.assert_close(both[:, TOKENS:].flatten(0, 1), patches)
    shift = query.view(IMAGES, TOKENS, DIM) - both[:, :TOKENS]
    torch.testing.assert_close(shift, made.global_centers.expand(IMAGES, -1, -1))


def test_order_of_patches_does_not_matter_once_the_centers_are_given() -> None:
    made, x = layers(3), torch.randn(32, DIM).double()
    centers, order = made.centers(x, GRID), torch.randperm(PATCHES)
    made.centers.forward = lambda x, grid: centers
    moved = x.view(IMAGES, PATCHES, DIM)[:, order].flatten(0, 1)
    torch.testing.assert_close(run(made, moved), run(made, x))
    swapped = x.view(IMAGES, PATCHES, DIM).flip(0).flatten(0, 1)  # of the other image: that matters
    assert not torch.allclose(run(made, swapped), run(made, x))


def test_one_step_of_attention_comes_closer_to_the_means_of_clusters() -> None:
    """Supplement A.7: weights exp(lambda <center, x>), lambda = (log d + log K) / gap."""
    drawn = torch.Generator().manual_seed(0)
    dim, clusters, each = 64, 8, 200
    means = torch.linalg.qr(torch.randn(dim, clusters, generator=drawn))[0].T
    noise = torch.randn(clusters, each, dim, generator=drawn) * 0.5 / math.sqrt(dim)
    x = (means[:, None] + noise).flatten(0, 1)
    start = means + 0.1 * torch.randn(clusters, dim, generator=drawn)
    start = start / start.norm(dim=1, keepdim=True)
    gap = (start @ means.T).diagonal() - (start @ means.T).fill_diagonal_(-1).amax(1)
    scale = (math.log(dim) + math.log(clusters)) / float(gap.min())

    nb = bipartite([clusters], [clusters * each])
    found = ops.attention(start[:, None], x[:, None], x[:, None], nb, scale=scale)[:, 0]
    before, after = (torch.cosine_similarity(c, means).min() for c in (start, found))
    assert before < 0.85 and after > 0.99


def test_bad_layers_are_named() -> None:
    with pytest.raises(ValueError, match="blocks: got 1, expected at least 2"):
        layers(1)
    assert run(layers(1, with_global=False), torch.randn(32, DIM).double()).shape == (8, DIM)
