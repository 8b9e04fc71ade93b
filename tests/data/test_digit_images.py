import gzip
from pathlib import Path

import numpy as np
import pytest
import torch

from graphtheory.data import digit_images


def write(folder: Path, part: str, pixels: np.ndarray, y: np.ndarray) -> None:
    for kind, magic, values in (("images-idx3", 2051, pixels), ("labels-idx1", 2049, y)):
        head = np.array([magic, *values.shape], ">i4").tobytes()
        (folder / f"{part}-{kind}-ubyte.gz").write_bytes(gzip.compress(head + values.tobytes()))


def test_idx_files_are_read_part_by_part(tmp_path: Path) -> None:
    folder = tmp_path / "MNIST" / "raw"
    folder.mkdir(parents=True)
    pixels = np.arange(2 * 3 * 4, dtype=np.uint8).reshape(2, 3, 4)
    write(folder, "train", pixels, np.array([7, 1], np.uint8))
    with pytest.raises(FileNotFoundError, match=r"t10k-images-idx3-ubyte.gz is missing"):
        digit_images.load("mnist", tmp_path)
    write(folder, "t10k", pixels[:1], np.array([3], np.uint8))
    found = digit_images.load("MNIST", tmp_path)
    assert torch.equal(found.training().pixels[:, 0], torch.from_numpy(pixels))
    assert found.training().y.tolist() == [7, 1] and found.test().y.tolist() == [3]
    file = folder / "train-images-idx3-ubyte.gz"
    file.write_bytes(gzip.compress(gzip.decompress(file.read_bytes())[:-1]))
    with pytest.raises(ValueError, match="truncated"):
        found.training()


def test_embedded_parts_do_not_overlap() -> None:
    found = digit_images.load("digits")
    assert found.training().pixels.dtype == torch.uint8 and found.training().pixels.max() == 255
    assert len(found.training().y) + len(found.test().y) == 1797
    with pytest.raises(ValueError, match="unknown image set 'letters'"):
        digit_images.load("letters")
