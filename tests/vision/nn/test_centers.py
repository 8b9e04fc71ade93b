import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from graphtheory import bipartite, ops
from graphtheory.graph import Grid
from graphtheory.nn import Attention, Block
from graphtheory.vision.nn import (
    AveragePool,
    Centers,
    LearnedCenters,
    MaskPool,
    MaxPool,
    MultiScale,
    SemanticTokens,
)
from graphtheory.vision.nn.centers import _cut
from tests.vision.models.test_dumbbell import plain

KINDS = [
    MaskPool(4, 6), AveragePool(4), MaxPool(5), LearnedCenters(7, 6),
    MultiScale([AveragePool(3), MaskPool(4, 6)]),
]  # fmt: skip


@pytest.mark.parametrize("centers", KINDS, ids=lambda c: type(c).__name__)
def test_centers_are_as_many_for_every_grid_and_of_their_image_alone(centers: Centers) -> None:
    for grid in (Grid(2, 14, 14), Grid(3, 7, 5), Grid(1, 4, 9)):
        x = torch.randn(grid.num_nodes, 6)
        found = centers(x, grid)
        assert found.shape == (grid.count * centers.tokens, 6)
        last = centers(x[-grid.size :], Grid(1, grid.height, grid.width))
        torch.testing.assert_close(found[-centers.tokens :], last)


def test_mask_pool_is_the_published_formula() -> None:
    """14 x 14 patches, 16 centers: windows of 4 with stride 4 and padding 1."""
    pool, x = MaskPool(4, 6), torch.randn(3 * 196, 6)
    maps = x.view(3, 14, 14, 6).permute(0, 3, 1, 2)
    ones = torch.ones(3, 1, 14, 14)
    cut, real = (F.unfold(m, 4, stride=4, padding=1).transpose(1, 2) for m in (maps, ones))
    windows = cut.reshape(48, 6, 4, 4)
    seen = nn.functional.gelu(pool.norm(pool.depthwise(windows).permute(0, 2, 3, 1)))
    logits = (seen @ pool.score.weight.T).flatten(1) - 1e9 * (1 - real.reshape(48, 16))
    wanted = (logits.softmax(1)[:, :, None] * windows.flatten(2).transpose(1, 2)).sum(1)
    torch.testing.assert_close(pool(x, Grid(3, 14, 14)), wanted)


@pytest.mark.parametrize(("side", "patches"), [(4, 14), (5, 14), (6, 14), (8, 14), (10, 14)])
def test_padding_has_no_weight(side: int, patches: int) -> None:
    """A weighted mean of equal patches is that patch, unless zeros around them count."""
    x = torch.randn(1, 6).expand(patches**2, 6)
    found = MaskPool(side, 6)(x, Grid(1, patches, patches))
    torch.testing.assert_close(found, x[:1].expand(side**2, 6))


def test_windows_are_cut_as_documented_and_do_not_see_each_other() -> None:
    assert [_cut(14, g).size(1) for g in (4, 5, 6, 7, 8, 10)] == [4, 3, 3, 2, 2, 3]
    assert _cut(14, 4)[[0, 3]].tolist() == [[-1, 0, 1, 2], [11, 12, 13, -1]]
    assert _cut(14, 5)[[0, 4]].tolist() == [[0, 1, 2], [12, 13, -1]]
    assert _cut(7, 3).tolist() == [[-1, 0, 1], [2, 3, 4], [5, 6, -1]]
    for side in range(1, 17):
        rows = _cut(14, side)
        assert set(rows.unique().tolist()) - {-1} == set(range(14))
        assert bool((rows >= 0).any(1).all())  # nobody stands for padding alone
    pool, x = MaskPool(2, 6), torch.randn(36, 6)
    moved = x.view(6, 6, 6).clone()
    moved[:3, 3] += 1
    change = (pool(moved.view(36, 6), Grid(1, 6, 6)) - pool(x, Grid(1, 6, 6))).abs().amax(1)
    assert (change > 0).tolist() == [False, True, False, False]


def test_bad_input_and_bad_layers_are_named() -> None:
    with pytest.raises(ValueError, match=r"x: shape \(8, 6\), expected \[9, dim\]"):
        AveragePool(2)(torch.randn(8, 6), Grid(1, 3, 3))
    with pytest.raises(ValueError, match="side: got 0"):
        MaxPool(0)
    with pytest.raises(ValueError, match="parts: none"):
        MultiScale([])
    with pytest.raises(ValueError, match="tokens: 16 semantic tokens of 9 patches, expected no"):
        AveragePool(4)(torch.randn(9, 6), Grid(1, 3, 3))
    with pytest.raises(ValueError, match="blocks: got 1, expected at least 2"):
        layers(1)
    assert run(layers(1, with_global=False), torch.randn(32, DIM).double()).shape == (8, DIM)


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


def test_equal_to_the_formulas_in_plain_torch() -> None:
    made, x = layers(), torch.randn(32, DIM).double()
    patches = x.view(IMAGES, PATCHES, DIM)
    centers = made.centers(x, GRID).view(IMAGES, TOKENS, DIM)
    first = plain(made.blocks[0], centers, patches, centers)
    query = first + made.global_centers
    sources = torch.cat([first, patches], 1)
    wanted = plain(made.blocks[1], query, sources, query)
    torch.testing.assert_close(run(made, x), wanted.flatten(0, 1))


def test_centers_are_in_the_query_alone_and_the_order_of_patches_does_not_matter() -> None:
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
