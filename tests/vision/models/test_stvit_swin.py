import pytest
import torch

from graphtheory.graph import Grid
from graphtheory.lab.metrics import count_macs
from graphtheory.patterns import TopK
from graphtheory.vision import models
from graphtheory.vision.models import STViTSwin, stvit_r_swin_base, stvit_r_swin_small
from graphtheory.vision.models.stvit_swin import stvit_r_swin, stvit_swin
from graphtheory.vision.nn import PatchEmbedding


def test_sizes_and_costs_are_published_but_for_norms() -> None:
    with torch.device("meta"):
        models = [stvit_r_swin_small(), stvit_r_swin_base()]
    sizes = [sum(p.numel() for p in model.parameters()) for model in models]
    assert [round(n / 1e6, 3) for n in sizes] == [49.626, 87.813]  # the log of B says 87.812
    rates = [models[0].stages[2].units[i].blocks[4].drop_path.p for i in range(3)]
    assert rates == [0.3 * i / 23 for i in (9, 15, 21)]
    # 5.826 G in the authors' log, of which 3.312 G in stage 3; their counter counts norms.
    model, image = stvit_r_swin_small().requires_grad_(False), torch.zeros(1, 3, 224, 224)
    found = count_macs(model, image)
    units = sum(found.by_module[f"stages.2.units.{i}"] for i in range(3))
    assert round(units / 1e9, 3) == 3.301
    assert 0.99 * 5.826 < found.total / 1e9 < 5.826


def test_images_of_any_size_have_maps_of_each_layer() -> None:
    model = stvit_r_swin(8, 1, units=2, window=4, side=2, out_channels=3).eval()
    images = torch.randn(2, 3, 100, 130)
    out = model(images)
    assert out.shape == (2, 3)
    torch.testing.assert_close(model(images[1:]), out[1:])
    sizes = [(grid.height, grid.width) for _, grid in model.features(images)]
    assert sizes == [(13, 17), (7, 9), (4, 5), (4, 5)]
    maps = model.attention_maps(images)
    assert len(maps) == 18
    for found in maps:
        nb = found.neighborhood
        total = torch.zeros(nb.num_dst, found.weights.size(1))
        total = total.index_add(0, nb.targets(), found.weights)
        torch.testing.assert_close(total, torch.ones_like(total))
    for make, options in ((stvit_swin, {"semantic": 1}), (stvit_r_swin, {"units": 1})):
        model = make(8, 1, window=2, side=1, pattern=TopK(1), out_channels=3, **options)
        for found in model.attention_maps(torch.randn(1, 3, 32, 32)):
            assert int(
                (found.weights > 0).sum()
            ) == found.neighborhood.num_dst * found.weights.size(1)


def test_edges_are_between_patches_of_the_grid_and_tokens() -> None:
    model = stvit_r_swin(8, 1, units=1, window=4, side=2, out_channels=3).eval()
    maps = [m.neighborhood for m in model.attention_maps(torch.randn(2, 3, 128, 96))]
    assert maps[0].num_dst == 2 * 32 * 24 and maps[2].num_dst == 2 * 16 * 12
    sent, heard = maps[2].edge_index() % 192  # windows of 4 x 4 of 16 x 12 patches, not shifted
    assert torch.equal(sent // 48, heard // 48) and torch.equal(sent % 12 // 4, heard % 12 // 4)

    inside, near, both, within, among, back = maps[4:10]  # 8 x 6 patches, 4 windows, 16 tokens
    assert inside.num_dst == 96 and (near.num_src, both.num_src) == (2 * 64, 2 * 64)
    sent, heard = near.edge_index()
    assert torch.equal(sent // 64, heard // 16)
    of_first = sent[heard == 16] - 64  # of the second image, the first token of the first window
    rows, columns = (of_first[of_first >= 16] - 16) // 6, (of_first[of_first >= 16] - 16) % 6
    assert of_first[:4].tolist() == [0, 1, 2, 3]
    assert rows.unique().tolist() == list(range(7)) and columns.unique().tolist() == list(range(6))
    assert (within.num_dst, among.num_edges, back.num_edges) == (32, 2 * 16 * 16, 2 * 48 * 16)


def test_gradients_reach_every_parameter_and_images_of_another_size_than_g_are_named() -> None:
    model = stvit_r_swin(8, 1, units=1, window=2, side=1, tokens=4, drop_path=0.0)
    model(torch.randn(2, 3, 64, 64)).sum().backward()
    assert [n for n, p in model.named_parameters() if p.grad is None] == []
    model = stvit_r_swin(8, 1, units=1, window=2, side=1, tokens=4)
    with pytest.raises(ValueError, match="images: of 9 semantic tokens, expected 4 as G has"):
        model(torch.randn(2, 3, 96, 96))


def tokens_only(**options: object) -> STViTSwin:
    return stvit_swin(8, 1, **{"window": 4, "side": 2, "out_channels": 3, **options})


def test_layout_is_that_of_the_supplement() -> None:
    """Table 2; a linear map for 4 norms and a merging, and smaller tables of biases."""
    with torch.device("meta"):
        made = [models.stvit_swin_tiny(), models.stvit_swin_small(), models.stvit_swin_base()]
        patch = PatchEmbedding(96, 4, pad=True, norm=True)
        pair = models.stvit_swin_tiny(stem=patch), models.swin_tiny()
    for model, counts in zip(made, ((2, 2, 2), (10, 2, 6), (10, 2, 6)), strict=True):
        third = model.stages[2]
        found = (len(third.base.blocks), 2, len(third.semantic.blocks) - 2)
        assert found == counts and third.semantic.side == model.stages[3].window == 3
        rates = [m.p for m in model.modules() if type(m).__name__ == "DropPath"]
        assert rates == sorted(rates) and rates[-1] > 0
    assert made[2].stages[2].widen.out_features == 1024
    sizes = [sum(p.numel() for p in model.parameters()) for model in pair]
    merging = 4 * 384 * 2 + 4 * 384 * 768
    linear = 384 * 768 + 768
    biases = 4 * 12 * 169 + 2 * 24 * (169 - 25)  # four blocks have none, two have smaller ones
    assert sizes[1] - sizes[0] == merging - linear + biases


def test_cost_is_less_than_swins_by_the_published_24_percent() -> None:
    image = torch.zeros(1, 3, 224, 224)
    ours, theirs = (
        count_macs(make().requires_grad_(False), image).total
        for make in (models.stvit_swin_tiny, models.swin_tiny)
    )
    assert round(ours / theirs, 2) == 0.76


def test_tokens_are_those_of_the_windows_row_by_row() -> None:
    model = tokens_only().eval()
    images = torch.randn(2, 3, 100, 130)
    out = model(images)
    torch.testing.assert_close(model(images[1:]), out[1:])
    sizes = [(grid.height, grid.width) for _, grid in model.features(images)]
    assert sizes == [(13, 17), (7, 9), (4, 6), (4, 6)]  # 2 x 3 windows of 7 x 9 patches
    stage, x = model.stages[2], torch.randn(8 * 8, 32)
    stage.widen = torch.nn.Identity()
    stage.semantic.tokens = lambda *_, **__: torch.arange(16.0)[:, None]  # window by window
    order = stage(x, Grid(1, 8, 8))[0].flatten().tolist()
    assert order[:8] == [0, 1, 4, 5, 2, 3, 6, 7]


def test_assignment_has_a_row_for_each_token_of_the_last_unit() -> None:
    model, images = tokens_only(tokens=16).eval(), torch.randn(2, 3, 128, 128)
    found = model.assignment(images)  # 2 x 2 windows of 4 x 4 patches, 2 x 2 tokens each
    assert found.shape == (2, 4, 16, 64)
    both = next(m for m in model.attention_maps(images) if m.neighborhood.blocks == (2, 16, 80))
    weights = both.weights.view(2, 16, 80, 4).permute(0, 3, 1, 2)
    torch.testing.assert_close(weights.sum(3), torch.ones(2, 4, 16))
    torch.testing.assert_close(found[:, :, 2], weights[:, :, 4, 16:])  # first of the second window
    model.train()(images).sum().backward()
    assert [n for n, p in model.named_parameters() if p.grad is None] == []
    model = stvit_r_swin(8, 1, units=2, window=4, side=2, out_channels=3).eval()
    images = torch.randn(2, 3, 128, 128)
    maps = [m for m in model.attention_maps(images) if m.neighborhood.blocks == (2, 16, 80)]
    weights = maps[1].weights.view(2, 16, 80, 4).permute(0, 3, 1, 2)
    torch.testing.assert_close(model.assignment(images)[:, :, 2], weights[:, :, 4, 16:])
