import sys

import pytest
import torch

from graphtheory.lab.train import Augmentation
from graphtheory.lab.train.augment import Augmenter, require_kornia


def augmenter(**options: float) -> Augmenter:
    pytest.importorskip("kornia")
    torch.manual_seed(0)
    return Augmenter(Augmentation(**options), (8, 8), num_classes=3)  # type: ignore[arg-type]


def test_nothing_is_done_by_default_and_kornia_is_not_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "kornia", None)
    nothing = Augmenter(Augmentation(), (8, 8), num_classes=3)
    images, y = torch.rand(4, 1, 8, 8), torch.tensor([0, 1, 2, 0])
    assert nothing.reshape(images) is images
    same, target = nothing.blend(images, y)
    assert same is images and target.argmax(1).equal(y) and target.sum(1).eq(1).all()
    with pytest.raises(ImportError, match=r"install graphtheory\[images\]"):
        require_kornia()


def test_a_crop_is_a_part_of_the_image_with_black_around() -> None:
    images = torch.arange(1, 65.0).view(1, 1, 8, 8).expand(16, -1, -1, -1) / 64
    cropped = augmenter(crop=2).reshape(images)
    around = torch.nn.functional.pad(images[0, 0], (2, 2, 2, 2))
    parts = around.unfold(0, 8, 1).unfold(1, 8, 1).flatten(0, 1)  # [25, 8, 8]
    assert cropped.shape == images.shape
    assert all((parts == image[0]).flatten(1).all(1).any() for image in cropped)
    assert len({tuple(image.flatten().tolist()) for image in cropped}) > 4


def test_about_half_of_the_images_are_mirrored() -> None:
    images = torch.rand(64, 1, 8, 8)
    flipped = augmenter(flip=True).reshape(images)
    mirrored = (flipped == images.flip(3)).flatten(1).all(1)
    assert (mirrored | (flipped == images).flatten(1).all(1)).all()
    assert 16 < int(mirrored.sum()) < 48


def test_the_target_of_a_blend_is_what_the_image_is_made_of() -> None:
    y = torch.arange(3).repeat(8)
    images = torch.nn.functional.one_hot(y, 3).float()[:, :, None, None].expand(-1, -1, 8, 8)
    for options in ({"mixup": 1.0}, {"cutmix": 1.0}):
        blended, target = augmenter(**options).blend(images, y)
        assert torch.allclose(blended.mean((2, 3)), target, atol=1e-5), options
        assert 0.01 < target.max(1).values.min() < 0.99  # some image is made of two classes


def test_erased_pixels_are_the_mean() -> None:
    erased, _ = augmenter(erase=1.0).blend(torch.ones(8, 1, 8, 8), torch.zeros(8).long())
    assert (erased == 0).flatten(1).any(1).all() and set(erased.unique().tolist()) == {0.0, 1.0}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"crop": -1}, "crop: got -1"),
        ({"erase": 1.5}, "erase: got 1.5, expected a probability"),
        ({"mixup": 0.7, "cutmix": 0.7}, "mixup . cutmix: got 1.4"),
    ],
)
def test_numbers_out_of_range(options: dict[str, float], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Augmentation(**options)  # type: ignore[arg-type]
