import pytest
import torch
from torch import Generator

from graphtheory.lab.datasets.image_sets import Images
from graphtheory.papers.shallow_vit import backgrounds as scenes
from graphtheory.papers.shallow_vit.backgrounds import Pasted, ScoredViT, textures
from graphtheory.vision.models import ReducedViT, vit_pico
from graphtheory.vision.nn import Keep
from graphtheory.vision.nn.reduce import Oracle

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


def test_backgrounds_are_smooth_textures_or_black(generator: Generator) -> None:
    images = torch.full((4, 1, 16, 16), 7, dtype=torch.uint8)
    textured = torch.tensor([True, False, True, False])
    pictures = CANVAS(images, generator, textured)
    for own, picture in zip(textured, pictures, strict=True):
        outside = picture[0][picture[1] < 255]
        assert bool(outside.any()) == bool(own)
        assert set(picture[0][picture[1] == 255].tolist()) == {7}  # resized
    drawn = textures(50, 3, 20, generator).float()
    beside = (drawn[..., 1:] - drawn[..., :-1]).square().mean()
    apart = (drawn[..., 10:] - drawn[..., :10]).square().mean()
    assert beside < 0.6 * apart and drawn.mean((1, 2, 3)).std() > 15


def test_alpha_star_is_1_once_the_background_is_gone() -> None:
    assert [CANVAS.alpha_star(k) for k in (9, 8, 4, 2)] == [0.444, 0.5, 1.0, 1.0]
    with pytest.raises(ValueError, match="region: got 26, expected a multiple of 4"):
        Pasted(32, 26, 4)
    with pytest.raises(ValueError, match="region: got 16, expected at most 12"):
        Pasted(12, 16, 4)


SCENE = scenes.SCENES["digits"]


def test_classes_are_numbered_as_given_and_backgrounds_agree_as_often_as_said(
    generator: Generator,
) -> None:
    given = Images(torch.arange(6, dtype=torch.uint8).view(6, 1, 1, 1), torch.tensor([2, 0, 1] * 2))
    found = scenes.of_classes(given, (1, 2))
    assert found.pixels.flatten().tolist() == [0, 2, 3, 5] and found.y.tolist() == [1, 0, 1, 0]
    y = torch.arange(4000) % 2
    textured = scenes.backgrounds(y, 0.9, generator).float()
    assert float(textured[y == 0].mean()) == pytest.approx(0.9, abs=0.03)
    assert float(textured[y == 1].mean()) == pytest.approx(0.1, abs=0.03)


def test_a_network_sees_no_background_where_only_the_image_stays(generator: Generator) -> None:
    model = scenes.network(SCENE, 1, 10, SCENE.canvas.relevant, 0).eval()
    whole = scenes.network(SCENE, 1, 10, SCENE.canvas.tokens, 0).eval()
    image = torch.randint(256, (3, 1, 8, 8), generator=generator).to(torch.uint8)
    textured, black = (
        SCENE.canvas(image, Generator().manual_seed(1), torch.full((3,), on)).float() / 255
        for on in (True, False)
    )
    assert not torch.equal(textured[:, :1], black[:, :1])
    torch.testing.assert_close(model(textured), model(black))
    assert not torch.allclose(whole(textured), whole(black), atol=1e-3)


def test_a_start_is_all_but_the_head() -> None:
    one, other = (scenes.network(SCENE, 1, classes, 25, seed) for classes, seed in ((8, 0), (2, 1)))
    scenes.begun_from(other, one)
    same = {
        n for n, v in one.state_dict().items()
        if v.shape == other.state_dict()[n].shape and torch.equal(v, other.state_dict()[n])
    }  # fmt: skip
    weights = {n for n in one.state_dict() if "head" not in n}
    assert weights <= same and "vit.head.linear.weight" not in same


def test_the_last_channel_decides_which_patches_are_seen(generator: torch.Generator) -> None:
    torch.manual_seed(0)
    vit = ReducedViT(vit_pico(out_channels=5, image_size=16), {0: Keep(6, Oracle())})
    images = torch.randn(3, 4, 16, 16, generator=generator)
    rank = torch.rand(3, 16, generator=generator).argsort(1).view(3, 1, 4, 4).float()
    images[:, 3:] = rank.repeat_interleave(4, 2).repeat_interleave(4, 3)
    model = ScoredViT(vit).eval()
    score = model.score(images)
    assert score.shape == (3, 17) and bool((score[:, 0] == 0).all())
    torch.testing.assert_close(score[:, 1:], rank.flatten(1))
    torch.testing.assert_close(model(images), vit.head(vit.tokens(images[:, :3], score=score)))
    kept = torch.zeros(3, 17).scatter(1, 1 + score[:, 1:].topk(6, 1).indices, 1)[:, 1:]
    seen = kept.view(3, 1, 4, 4).repeat_interleave(4, 2).repeat_interleave(4, 3).bool()
    hidden = images.clone()
    hidden[:, :3][~seen.expand(-1, 3, -1, -1)] = 9.0
    torch.testing.assert_close(model(hidden), model(images))
