import pytest
import torch

from graphtheory.lab.train import ImageData


def make(**options: int) -> ImageData:
    pixels = torch.randint(256, (20, 3, 4, 4), generator=torch.Generator().manual_seed(0))
    y, order = torch.arange(20) % 4, torch.arange(20)
    return ImageData(pixels.to(torch.uint8), y, order[:13], order[13:], batch_size=4, **options)


def test_an_epoch_is_a_shuffle_by_seed_and_epoch() -> None:
    data = make()
    first = torch.cat(data.order(0))
    assert [len(part) for part in data.order(0)] == [4, 4, 4]
    assert len(first.unique()) == 12 and int(first.max()) < 13
    assert torch.cat(make().order(0)).equal(first)
    assert not torch.cat(data.order(1)).equal(first)
    assert not torch.cat(make(seed=1).order(0)).equal(first)


def test_batches_hold_the_images_of_their_positions() -> None:
    data = make()
    loader = data.train_dataloader()
    assert len(loader) == 3
    for positions, batch in zip(data.order(0), loader, strict=True):
        assert batch.pixels.equal(data.pixels[positions]) and batch.y.equal(data.y[positions])
        assert batch.count == 4
    assert data.evaluation_batch().y.equal(data.y[13:])


def test_fewer_images_than_a_batch_are_one_batch() -> None:
    data = ImageData(
        torch.zeros(4, 1, 2, 2, dtype=torch.uint8), torch.tensor([0, 1, 0, 1]),
        torch.tensor([0, 1, 2]), torch.tensor([3]),
    )  # fmt: skip
    assert [len(part) for part in data.order(0)] == [3] and len(data.train_dataloader()) == 1


def test_statistics_are_those_of_the_training_images() -> None:
    data = make()
    values = data.pixels[:13].double() / 255
    mean, std = data.statistics()
    assert torch.allclose(mean.double(), values.mean((0, 2, 3)), atol=1e-6)
    assert torch.allclose(std.double(), values.std((0, 2, 3), correction=0), atol=1e-6)


def test_the_record_tells_data_apart() -> None:
    described = make().describe()
    assert described == make().describe()
    assert described != make(seed=1).describe()
    other = make()
    other.pixels[0, 0, 0, 0] += 1
    assert described["sha256"] != other.describe()["sha256"]


def test_wrong_images_are_refused() -> None:
    pixels, y = torch.zeros(4, 1, 2, 2, dtype=torch.uint8), torch.tensor([0, 1, 0, 1])
    few, rest = torch.tensor([0, 1]), torch.tensor([2, 3])
    with pytest.raises(
        TypeError, match=r"pixels: got torch.float32, expected a tensor of torch.uint8; .*as_pixels"
    ):
        ImageData(pixels.float(), y, few, rest)
    with pytest.raises(ValueError, match="pixels, y: shapes"):
        ImageData(pixels, y[:3], few, rest)
    with pytest.raises(ValueError, match="expected some of either"):
        ImageData(pixels, y, few, rest[:0])
    with pytest.raises(ValueError, match=r"positions outside 0\.\.3"):
        ImageData(pixels, y, few, rest + 1)
    with pytest.raises(ValueError, match="in them twice"):
        ImageData(pixels, y, few, few)
    with pytest.raises(ValueError, match="batch_size: got 0"):
        ImageData(pixels, y, few, rest, batch_size=0)
    with pytest.raises(ValueError, match="2 labels out of range, the first is image 1 with 1"):
        ImageData(pixels, y, few, rest).check_classes(1)
