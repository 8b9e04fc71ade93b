import pytest
import torch

from graphtheory.vision import models, nn
from graphtheory.vision.models import STViT, stvit_nano
from graphtheory.vision.models.vit import stvit


def tiny(**options: object) -> STViT:
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
        sizes = [
            sum(p.numel() for p in model.parameters())
            for model in (models.stvit_deit_small(), models.deit_small(readout=models.MeanToken))
        ]
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


def test_images_of_any_size_do_not_see_each_other() -> None:
    model = tiny(out_channels=3, tokens=9).eval()
    images = torch.randn(3, 3, 28, 36)
    out = model(images)
    torch.testing.assert_close(model(images[1:2]), out[1:2])
    assert out.shape == (3, 3) and model.tokens(images).shape == (3, 9, 8)


def test_other_centers() -> None:
    parts = [nn.AveragePool(3), nn.AveragePool(4)]
    model = tiny(tokens=nn.MultiScale(parts), semantic=3)
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
    assert stvit_nano().base[0].attention.heads == 4
