import pytest
import torch
from torch import nn
from torch.nn import functional as F

from graphtheory.graph import Grid
from graphtheory.vision.nn import (
    AveragePool,
    Centers,
    LearnedCenters,
    MaskPool,
    MaxPool,
    MultiScale,
    OverlapPool,
)
from graphtheory.vision.nn.centers import _cut

KINDS = [
    MaskPool(4, 6), OverlapPool(3, 6), AveragePool(4), MaxPool(5), LearnedCenters(7, 6),
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


def test_windows_are_cut_as_documented() -> None:
    assert [_cut(14, g, False).size(1) for g in (4, 5, 6, 7, 8, 10)] == [4, 3, 3, 2, 2, 3]
    assert _cut(14, 4, False)[[0, 3]].tolist() == [[-1, 0, 1, 2], [11, 12, 13, -1]]
    assert _cut(14, 5, False)[[0, 4]].tolist() == [[0, 1, 2], [12, 13, -1]]
    assert _cut(7, 3, False).tolist() == [[-1, 0, 1], [2, 3, 4], [5, 6, -1]]
    assert _cut(14, 5, True)[[0, 1, 4]].tolist() == [
        list(range(6)), list(range(2, 8)), list(range(8, 14))
    ]  # fmt: skip
    for side in range(1, 17):
        rows = _cut(14, side, False)
        assert set(rows.unique().tolist()) - {-1} == set(range(14))
        assert bool((rows >= 0).any(1).all())  # nobody stands for padding alone


def test_one_window_does_not_see_the_next() -> None:
    pool, x = MaskPool(2, 6), torch.randn(36, 6)
    moved = x.view(6, 6, 6).clone()
    moved[:3, 3] += 1
    change = (pool(moved.view(36, 6), Grid(1, 6, 6)) - pool(x, Grid(1, 6, 6))).abs().amax(1)
    assert (change > 0).tolist() == [False, True, False, False]


def test_bad_input_is_named() -> None:
    with pytest.raises(ValueError, match=r"x: shape \(8, 6\), expected \[9, dim\]"):
        AveragePool(2)(torch.randn(8, 6), Grid(1, 3, 3))
    with pytest.raises(ValueError, match="side: got 0"):
        MaxPool(0)
    with pytest.raises(ValueError, match="parts: none"):
        MultiScale([])
    with pytest.raises(ValueError, match="grid: 3 patches on a side, expected 4"):
        OverlapPool(4, 6)(torch.randn(18, 6), Grid(1, 3, 6))
    with pytest.raises(ValueError, match="tokens: 16 semantic tokens of 9 patches, expected no"):
        AveragePool(4)(torch.randn(9, 6), Grid(1, 3, 3))
