import gzip
from pathlib import Path

import pytest
import torch

from graphtheory.lab.datasets import image_sets
from graphtheory.lab.datasets.files import DamagedFileError


def test_digits_are_cut_once_and_for_all() -> None:
    found = image_sets.load("digits")
    train, test = found.training(), found.test()
    assert train.pixels.shape == (1437, 1, 8, 8) and test.pixels.shape == (360, 1, 8, 8)
    assert train.pixels.dtype == torch.uint8 and train.pixels.max() == 255
    assert train.y.dtype == torch.int64 and train.y.unique().tolist() == list(range(10))


def test_validation_is_drawn_by_seed_in_equal_shares() -> None:
    y = torch.arange(10).repeat(100)
    train, val = image_sets.load("digits").split(y, seed=1)
    assert torch.cat([train, val]).sort().values.equal(torch.arange(1000))
    assert y[val].bincount().tolist() == [10] * 10
    assert image_sets.load("digits").split(y, seed=1)[1].equal(val)
    assert not image_sets.load("digits").split(y, seed=2)[1].equal(val)


def test_a_missing_file_is_named_with_its_place(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="mnist does not come with the package"):
        image_sets.load("mnist")
    with pytest.raises(FileNotFoundError, match=r"4 of 4 .*train-images-idx3-ubyte.gz.*MNIST/raw"):
        image_sets.load("mnist", tmp_path)
    with pytest.raises(FileNotFoundError, match=r"data_batch_1.*cifar-10-batches-py"):
        image_sets.load("cifar10", tmp_path)


def test_a_truncated_file_is_refused(tmp_path: Path, data_root: Path) -> None:
    raw = tmp_path / "MNIST/raw"
    raw.mkdir(parents=True)
    for file in (data_root / "MNIST/raw").iterdir():
        content = file.read_bytes()
        (raw / file.name).write_bytes(content[:-1] if "t10k-images" in file.name else content)
    found = image_sets.load("mnist", tmp_path)
    assert len(found.training().y) == 60_000  # the damaged file is not opened for these
    with pytest.raises(DamagedFileError, match=r"t10k-images.*truncated or altered"):
        found.test()


def test_unpacked_files_are_the_same_images(
    tmp_path: Path, data_root: Path, untouched: None
) -> None:
    raw = tmp_path / "MNIST/raw"
    raw.mkdir(parents=True)
    for file in (data_root / "MNIST/raw").iterdir():
        (raw / file.stem).write_bytes(gzip.decompress(file.read_bytes()))
    one, other = (image_sets.load("mnist", root).test() for root in (data_root, tmp_path))
    assert one.pixels.equal(other.pixels) and one.y.equal(other.y)
    assert one.y[:5].tolist() == [7, 2, 1, 0, 4] and one.pixels.shape == (10_000, 1, 28, 28)


def test_the_lossless_images_are_in_their_published_order(data_root: Path) -> None:
    found = image_sets.load("cifar10-lossless4000", data_root).training()
    assert found.pixels.shape == (3200, 3, 32, 32)
    assert found.y[:10].tolist() == [6, 9, 9, 4, 1, 1, 2, 7, 8, 3]
