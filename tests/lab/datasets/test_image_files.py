import gzip
import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from graphtheory.lab.datasets.files import DamagedFileError
from graphtheory.lab.datasets.image_files import (
    read_cifar_batch,
    read_cifar_jpeg,
    read_cifar_pixels,
    read_idx,
)


def idx(array: np.ndarray) -> bytes:
    sizes = np.array(array.shape, ">u4").tobytes()
    return bytes((0, 0, 8, array.ndim)) + sizes + array.tobytes()


ARRAY = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)


@pytest.mark.parametrize("name", ["images", "images.gz"])
def test_idx_gzipped_or_not(tmp_path: Path, name: str) -> None:
    content = idx(ARRAY)
    path = tmp_path / name
    path.write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    assert np.array_equal(read_idx(path), ARRAY)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a", idx(ARRAY)[:-1], r"39 bytes, expected 40 for an array of shape \[2, 3, 4\]"),
        ("a", idx(ARRAY) + b"0", "41 bytes, expected 40"),
        ("a", idx(ARRAY)[:9], "begins with 00000803, expected idx"),
        ("a", b"", "begins with nothing"),
        ("a", bytes((0, 0, 13, 1)) + bytes(8), "expected idx of unsigned bytes"),
        ("a.gz", gzip.compress(idx(ARRAY), mtime=0)[:-12], "truncated or not gzip"),
        ("a.gz", idx(ARRAY), "truncated or not gzip"),
    ],
    ids=["cut", "too long", "no shape", "empty", "not bytes", "cut gzip", "no gzip"],
)
def test_a_damaged_idx_is_refused(tmp_path: Path, name: str, content: bytes, said: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(DamagedFileError, match=said):
        read_idx(path)


def test_a_batch_that_is_not_the_published_one_is_not_unpickled(tmp_path: Path) -> None:
    path = tmp_path / "data_batch_1"
    path.write_bytes(b"cos\nsystem\n(S'true'\ntR.")
    with pytest.raises(DamagedFileError, match="expected c99cafc152244af753f735de768cd75f"):
        read_cifar_batch(path)


def test_jpeg_and_pixels_give_images_channel_first(tmp_path: Path) -> None:
    x = np.zeros((2, 32, 32, 3), np.uint8)
    x[1, :, :, 2] = 200  # the second is blue
    buffers = []
    for image in x:
        buffers.append(io.BytesIO())
        Image.fromarray(image).save(buffers[-1], "jpeg")
    parts = [buffer.getvalue() for buffer in buffers]
    path = tmp_path / "images.npz"
    np.savez(
        path, x=x, y=np.array([3, 5], np.uint8), test_y=np.array([3, 5], np.uint8),
        test_jpeg=np.frombuffer(b"".join(parts), np.uint8),
        test_offsets=np.cumsum([0, *map(len, parts)]),
    )  # fmt: skip
    for pixels, y in (read_cifar_jpeg(path, "test"), read_cifar_pixels(path)):
        assert pixels.shape == (2, 3, 32, 32) and y.tolist() == [3, 5]
        assert pixels[0].max() < 5 and (abs(pixels[1, 2].astype(int) - 200) < 5).all()
        assert pixels[1, 0].max() < 5
