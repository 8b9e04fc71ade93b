import pytest
import torch
from torch import Generator

from graphtheory.papers.shallow_vit.backgrounds import Pasted, textures

CANVAS = Pasted(12, 8, 4)


def test_an_image_lies_whole_on_patches_and_is_marked(generator: Generator) -> None:
    images = torch.randint(256, (20, 3, 8, 8), generator=generator).to(torch.uint8)
    pictures = CANVAS(images, generator)
    assert pictures.shape == (20, 4, 12, 12) and pictures.dtype == torch.uint8
    corners = set()
    for image, picture in zip(images, pictures, strict=True):
        rows, columns = (picture[3] == 255).nonzero(as_tuple=True)
        top, left = int(rows.min()), int(columns.min())
        corners.add((top, left))
        assert torch.equal(picture[:3, top : top + 8, left : left + 8], image)
        ranks = picture[3].view(3, 4, 3, 4).transpose(1, 2).flatten(2)
        assert bool((ranks == ranks[..., :1]).all())
        assert int((ranks[..., 0] == 255).sum()) == CANVAS.relevant == 4
    assert corners == {(0, 0), (0, 4), (4, 0), (4, 4)}


def test_backgrounds_are_textured_or_black(generator: Generator) -> None:
    images = torch.full((4, 1, 16, 16), 7, dtype=torch.uint8)
    textured = torch.tensor([True, False, True, False])
    pictures = CANVAS(images, generator, textured)
    for own, picture in zip(textured, pictures, strict=True):
        outside = picture[0][picture[1] < 255]
        assert bool(outside.any()) == bool(own)
        assert set(picture[0][picture[1] == 255].tolist()) == {7}  # resized


def test_textures_are_smooth_but_differ(generator: Generator) -> None:
    drawn = textures(50, 3, 20, generator).float()
    beside = (drawn[..., 1:] - drawn[..., :-1]).square().mean()
    apart = (drawn[..., 10:] - drawn[..., :10]).square().mean()
    assert beside < 0.6 * apart and drawn.mean((1, 2, 3)).std() > 15


def test_alpha_star_is_1_once_the_background_is_gone() -> None:
    assert [CANVAS.alpha_star(k) for k in (9, 8, 4, 2)] == [4 / 9, 0.5, 1.0, 1.0]
    with pytest.raises(ValueError, match="region: got 26, expected a multiple of 4"):
        Pasted(32, 26, 4)
    with pytest.raises(ValueError, match="region: got 16, expected at most 12"):
        Pasted(12, 16, 4)
