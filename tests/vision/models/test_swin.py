import pytest
import torch
from torch import nn

from graphtheory.graph import Grid
from graphtheory.vision import models
from graphtheory.vision.models import swin_pico
from graphtheory.vision.models.swin import PatchMerging, swin
from graphtheory.vision.nn.patch import from_map

PUBLISHED = {"swin_tiny": 28_288_354, "swin_small": 49_606_258, "swin_base": 87_768_224}


def test_named_models_have_the_published_sizes_and_bad_options_are_named() -> None:
    with torch.device("meta"):
        sizes = {n: sum(p.numel() for p in getattr(models, n)().parameters()) for n in PUBLISHED}
    assert sizes == PUBLISHED
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
    assert maps[0].neighborhood.rows(torch.tensor([17])).indices.tolist() == [
        r * 16 + c for r in range(4) for c in range(4)
    ]
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
