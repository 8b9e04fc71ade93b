import gzip
import io
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from graphtheory.lab.datasets import image_sets
from graphtheory.lab.datasets.files import DamagedFileError
from graphtheory.lab.datasets.image_sets import as_pixels, read_cifar_jpeg, read_idx, read_part


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


@pytest.mark.parametrize(("name", "content", "said"), [
    ("a", idx(ARRAY)[:-1], r"39 bytes, expected 40 for an array of shape \[2, 3, 4\]"),
    ("a", idx(ARRAY) + b"0", "41 bytes, expected 40"),
    ("a", idx(ARRAY)[:9], "begins with 00000803, expected idx"),
    ("a", b"", "begins with nothing"),
    ("a", bytes((0, 0, 13, 1)) + bytes(8), "expected idx of unsigned bytes"),
    ("a.gz", gzip.compress(idx(ARRAY), mtime=0)[:-12], "truncated or not gzip"),
    ("a.gz", idx(ARRAY), "truncated or not gzip"),
], ids=["cut", "too long", "no shape", "empty", "not bytes", "cut gzip", "no gzip"])  # fmt: skip
def test_a_damaged_idx_is_refused(tmp_path: Path, name: str, content: bytes, said: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(DamagedFileError, match=said):
        read_idx(path)


def test_a_batch_that_is_not_the_published_one_is_not_unpickled(tmp_path: Path) -> None:
    (tmp_path / "cifar-10-batches-py").mkdir()
    for name in image_sets.describe("cifar10").files:
        (tmp_path / "cifar-10-batches-py" / name).write_bytes(b"cos\nsystem\n(S'true'\ntR.")
    with pytest.raises(DamagedFileError, match="expected c99cafc152244af753f735de768cd75f"):
        image_sets.load("cifar10", tmp_path).training()


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
    for pixels, y in (read_cifar_jpeg(path, "test"), read_part("cifar-pixels", [path], "train")):
        assert pixels.shape == (2, 3, 32, 32) and y.tolist() == [3, 5]
        assert pixels[0].max() < 5 and (abs(pixels[1, 2].astype(int) - 200) < 5).all()
        assert pixels[1, 0].max() < 5


@pytest.mark.parametrize("content", [b"", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 32 32\n"])
def test_what_is_no_jpeg_in_an_npz_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    jpeg, offsets = np.frombuffer(content, np.uint8), np.array([0, len(content)])
    np.savez(tmp_path / "a.npz", test_jpeg=jpeg, test_offsets=offsets, test_y=np.zeros(1))
    with pytest.raises(DamagedFileError, match=r"a\.npz: UnidentifiedImageError, .* whole JPEG"):
        read_cifar_jpeg(tmp_path / "a.npz", "test")


def fill(folder: Path, count: int, *, mode: str = "RGB", size: tuple[int, int] = (8, 8)) -> None:
    """Folders of two classes, dark cats and bright dogs."""
    for label, name in enumerate(("cat", "dog")):
        (folder / name).mkdir(parents=True)
        red = 20 + 200 * label
        for i in range(count):
            color = red if mode == "L" else (red, i, 0)
            Image.new(mode, size, color).save(folder / name / f"{i}.png")


def test_parts_of_the_layout_are_taken_as_they_are(tmp_path: Path) -> None:
    for part, count in (("train", 5), ("val", 2), ("test", 3)):
        fill(tmp_path / part, count)
    (tmp_path / "train/cat/notes.txt").write_text("no image")
    found = image_sets.load(str(tmp_path))
    pixels, y = found.training()
    train, val = found.split(y, seed=3)
    assert pixels.shape == (14, 3, 8, 8) and pixels.dtype == torch.uint8
    assert y[train].bincount().tolist() == [5, 5] and y[val].bincount().tolist() == [2, 2]
    assert (pixels[:, 0, 0, 0] == 20 + 200 * y).all()
    assert found.test().y.bincount().tolist() == [3, 3]
    assert dict(found.info.counts) == {"images": 14, "test images": 6, "classes": 2}
    assert found.listing.classes == ("cat", "dog")
    assert found.listing.test_files()[0] == "test/cat/0.png"


def test_a_test_part_is_drawn_once_where_there_is_none(tmp_path: Path) -> None:
    fill(tmp_path / "all", 20, mode="L")
    one, again = (image_sets.load(str(tmp_path / "all")) for _ in range(2))
    assert one.training().pixels.shape == (32, 1, 8, 8)
    assert one.test().y.bincount().tolist() == [4, 4]
    assert one.test().pixels.equal(again.test().pixels)
    assert one.listing.sha256 == again.listing.sha256
    fill(tmp_path / "two/train", 5)
    fill(tmp_path / "two/val", 2)  # ImageNet's layout: val is the final score
    assert len(image_sets.load(str(tmp_path / "two")).test().y) == 4


def test_images_of_several_sizes_need_one(tmp_path: Path) -> None:
    fill(tmp_path / "train", 2)
    fill(tmp_path / "test", 2, size=(12, 8))
    found = image_sets.load(str(tmp_path))
    for part in (found.training, found.test):  # before anything is trained
        with pytest.raises(ValueError, match=r"8 x 8 to 12 x 8 pixels.*--image-size 64"):
            part()
    assert image_sets.load(str(tmp_path), size=6).test().pixels.shape == (4, 3, 6, 6)
    for name, size in (("digits", 6), (str(tmp_path), 1.5), (str(tmp_path), True)):
        with pytest.raises(ValueError, match=f"size: got {size}, expected a whole number of pix"):
            image_sets.load(name, size=size)


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="0 folders of classes"):
        image_sets.load(str(tmp_path))
    fill(tmp_path, 5)
    whole = (tmp_path / "dog/1.png").read_bytes()
    (tmp_path / "dog/1.png").write_bytes(b"none")
    with pytest.raises(DamagedFileError, match=r"1\.png.*whole"):
        image_sets.load(str(tmp_path)).training(), image_sets.load(str(tmp_path)).test()
    (tmp_path / "dog/1.png").write_bytes(whole)
    Image.new("I;16", (8, 8)).save(tmp_path / "dog/1.png")
    with pytest.raises(ValueError, match=r"1\.png: PIL mode I;16, expected 8 bits"):
        image_sets.load(str(tmp_path)).training(), image_sets.load(str(tmp_path)).test()
    (tmp_path / "bird").mkdir()
    with pytest.raises(ValueError, match=r"bird: no image, expected some of .jpg"):
        image_sets.load(str(tmp_path))


def test_every_form_of_the_same_images_is_the_same_tensor() -> None:
    wanted = torch.randint(256, (4, 3, 5, 6), generator=torch.Generator().manual_seed(0)).byte()
    rows = wanted.permute(0, 2, 3, 1).numpy()
    forms = (
        wanted, wanted.numpy(), rows, rows.astype(np.float32) / 255, list(rows),
        [Image.fromarray(row) for row in rows], wanted.double() / 255,
    )  # fmt: skip
    for form in forms:
        assert as_pixels(form).equal(wanted)
    assert as_pixels(wanted) is wanted
    gray = [Image.fromarray(row[..., 0]) for row in rows]
    assert as_pixels(gray).equal(wanted[:, :1])


@pytest.mark.parametrize(("images", "kind", "match"), [
    (Image.new("L", (2, 2)), TypeError, "got one PIL image, expected a sequence"),
    ([Image.new("L", (2, 2)), Image.new("L", (2, 3))], ValueError, "2 sizes.*expected one"),
    ([Image.new("I;16", (2, 2))], TypeError, "PIL mode I;16, expected 8 bits"),
    ([], ValueError, "got none"),
    ("cat.png", TypeError, "got str, expected a tensor"),
    (torch.zeros(2, 3, 4, 4).long(), TypeError, "dtype torch.int64, expected uint8"),
    (torch.full((2, 3, 4, 4), -1.5), ValueError, "from -1.5 to -1.5, expected 0..1"),
    (torch.zeros(2, 5, 4, 5), ValueError, "expected 1 or 3 channels"),
    (torch.zeros(4), ValueError, r"shape \(4,\), expected"),
    ([np.zeros((2, 2)), np.zeros((3, 2))], ValueError, "expected one for all"),
])  # fmt: skip
def test_what_are_no_images(images: object, kind: type[Exception], match: str) -> None:
    with pytest.raises(kind, match=match):
        as_pixels(images)


def test_digits_are_cut_once_and_validation_is_drawn_by_seed_in_equal_shares() -> None:
    found = image_sets.load("digits")
    train, test = found.training(), found.test()
    assert train.pixels.shape == (1437, 1, 8, 8) and test.pixels.shape == (360, 1, 8, 8)
    assert train.pixels.dtype == torch.uint8 and train.pixels.max() == 255
    assert train.y.dtype == torch.int64 and train.y.unique().tolist() == list(range(10))
    y = torch.arange(10).repeat(100)
    (train, val), again, other = (found.split(y, seed=seed) for seed in (1, 1, 2))
    assert torch.cat([train, val]).sort().values.equal(torch.arange(1000))
    assert y[val].bincount().tolist() == [10] * 10
    assert again[1].equal(val) and not other[1].equal(val)


def test_a_missing_file_is_named_with_its_place(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="mnist does not come with the package"):
        image_sets.load("mnist")
    with pytest.raises(FileNotFoundError, match=r"4 of 4 .*train-images-idx3-ubyte.gz.*MNIST/raw"):
        image_sets.load("mnist", tmp_path)
    with pytest.raises(FileNotFoundError, match=r"data_batch_1.*cifar-10-batches-py"):
        image_sets.load("cifar10", tmp_path)


def test_unpacked_files_are_the_same_images_and_a_truncated_one_is_refused(
    tmp_path: Path, data_root: Path, untouched: None
) -> None:
    raw, packed = tmp_path / "MNIST/raw", sorted((data_root / "MNIST/raw").iterdir())
    raw.mkdir(parents=True)
    for file in packed:
        (raw / file.stem).write_bytes(gzip.decompress(file.read_bytes()))
    one, other = (image_sets.load("mnist", root).test() for root in (data_root, tmp_path))
    assert one.pixels.equal(other.pixels) and one.y.equal(other.y)
    assert one.y[:5].tolist() == [7, 2, 1, 0, 4] and one.pixels.shape == (10_000, 1, 28, 28)
    for file in packed:
        (raw / file.stem).unlink()
        content = file.read_bytes()
        (raw / file.name).write_bytes(content[:-1] if "t10k-images" in file.name else content)
    found = image_sets.load("mnist", tmp_path)
    assert len(found.training().y) == 60_000  # the damaged file is not opened for these
    with pytest.raises(DamagedFileError, match=r"t10k-images.*truncated or altered"):
        found.test()


def test_the_lossless_images_are_in_their_published_order(data_root: Path) -> None:
    found = image_sets.load("cifar10-lossless4000", data_root).training()
    assert found.pixels.shape == (3200, 3, 32, 32)
    assert found.y[:10].tolist() == [6, 9, 9, 4, 1, 1, 2, 7, 8, 3]
