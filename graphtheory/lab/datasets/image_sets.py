"""Images by name: training images and test images apart, each read when it is asked for.

Nothing is ever downloaded. Raw files are checked against their hashes where these are known, and
what was read of them is kept in the cache of `datasets.graphs`.
"""

import gzip
import io
import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Generator, Tensor

from graphtheory.lab.datasets import catalogue, files, safe_pickle
from graphtheory.lab.datasets.catalogue import DatasetInfo, Root, key, known_seed
from graphtheory.lab.datasets.files import DamagedFileError
from graphtheory.lab.datasets.image_folders import DEEP, GRAY, Files, Listing, flat, listed, opened
from graphtheory.lab.datasets.splits import stratified

Arrays = tuple[np.ndarray, np.ndarray]
_UNSIGNED_BYTES = 8  # idx's code of the type
_GRAY_LEVELS = 16  # of scikit-learn's digits
_TRAINING = {"embedded": 1437, "cifar-pixels": 3200}  # images of sets whose test part is their end
_VALIDATION_SHARE = 0.1


class Images(NamedTuple):
    """Images and the class of each."""

    pixels: Tensor  # uint8 [N, C, H, W]
    y: Tensor  # int64 [N]


@dataclass(frozen=True)
class ImageSet:
    """An image set whose files were found; `load` makes it."""

    info: DatasetInfo
    root: Root = None  # folder with the raw files
    listing: Listing | None = None  # of a folder of images, read as often as they are asked for
    size: int | None = None  # rows and columns that every image of a folder is brought to

    def training(self) -> Images:
        """All images that may be trained on or validated with."""
        if self.listing is not None:
            return self._read(self.listing, self.listing.train + self.listing.val)
        return self._part("train", "images", ("t10k", "test_batch"))

    def test(self) -> Images:
        """The test images, for a final score and nothing else."""
        if self.listing is not None:
            return self._read(self.listing, self.listing.test)
        return self._part("test", "test images", ("train-", "data_batch"))

    def split(self, y: Tensor, seed: int) -> tuple[Tensor, Tensor]:
        """Positions to train on, and to validate with: folder val or a tenth of each class."""
        if self.listing is not None and self.listing.val:
            train, val = torch.arange(len(y)).tensor_split([len(self.listing.train)])
            return train, val
        generator = Generator().manual_seed(known_seed(seed))
        train, val, _ = stratified(y, val=_VALIDATION_SHARE, test=0.0, generator=generator)
        if not len(val):
            what = f"at most {int(y.bincount().max())} of a class, of which a tenth would validate"
            raise ValueError(f"images: {what}; expected 6 or more, or a folder val beside train")
        return train, val

    def _read(self, listing: Listing, files: Files) -> Images:
        (mode, sides), size = listing.mode_and_sides, self.size
        if size is None and (len(sides) > 1 or any(width != height for width, height in sides)):
            least, most = min(sides), max(sides)
            raise ValueError(
                f"images: of {least[0]} x {least[1]} to {most[0]} x {most[1]} pixels, expected "
                "squares of one size, or an image size to bring them to (--image-size 64)"
            )

        def bring(image: Image.Image) -> Image.Image:
            made = flat(image, mode)
            return ImageOps.fit(made, (size, size), Image.Resampling.BILINEAR) if size else made

        pixels = as_pixels([opened(path, bring) for path, _ in files])
        return Images(pixels, torch.tensor([label for _, label in files]))

    def _part(self, part: str, counted: str, other: tuple[str, ...]) -> Images:
        found = (name for name in _present(self.info, self.root) if not name.startswith(other))
        info = replace(self.info, name=f"{self.info.name}-{part}", files=tuple(found))

        def read(private: Path) -> dict[str, Tensor]:
            paths = [private / info.folder / file for file in info.files]
            pixels, y = read_part(info.family, paths, part)
            expected = (("images", dict(info.counts)[counted]),)
            files.verify_counts(replace(info, counts=expected), {"images": len(pixels)})
            pixels = np.ascontiguousarray(pixels)
            return {"pixels": torch.tensor(pixels), "y": torch.tensor(y).long()}

        return Images(**(read(Path()) if info.embedded else files.processed(info, self.root, read)))


def names() -> list[str]:
    """Names of all image sets, the embedded one first."""
    return catalogue.names("image")


def is_folder(name: str) -> bool:
    """Whether an image set is meant by its folder: a folder that is there, and no known name."""
    return key(name) not in map(key, names()) and Path(name).is_dir()


def describe(name: str) -> DatasetInfo:
    """What is known about an image set or a folder of images, without a look into its files."""
    return listed(name).info if is_folder(name) else catalogue.describe(name, task="image")


def load(name: str, root: Root = None, *, size: int | None = None) -> ImageSet:
    """Find an image set; its images are read when they are asked for.

    "cifar10" is the published set. "cifar10-jpeg" holds the same images as JPEG of quality 75 and
    "cifar10-lossless4000" the first 4,000 of them: scores on either are not comparable with those
    that were published on CIFAR-10.

    A folder holds train/CLASS/... with test/CLASS/..., and val/CLASS/... to validate with; with
    `val` alone, that is the test part, as in ImageNet. Or it holds CLASS/..., as torchvision's
    `ImageFolder` takes them, or `train` alone, of which a fifth of every class is the test part,
    always the same. Parts may be named "Training", "valid", "dev", "tr", "te", "test_set" or, with
    the same word in all, "seg_train"; other images beside parts are refused. Files lie at any depth
    below their class; hidden files and those of systems (__MACOSX, @eaDir) are left out, as are
    images of other formats (GIF, SVG, HEIC) and those in no class, which a warning names; links are
    followed. All images of all parts are gray, or all become RGB; they are turned as their EXIF
    data say. Those with transparent pixels are refused, and files of several pictures (animations,
    TIFF of pages); of the pictures in one JPEG of a camera (MPO), the first counts.

    Args:
        name: One of `names()`, whose case does not matter, or a folder of images by class.
        root: Folder that holds `describe(name).folder`; may be read-only; not needed for "digits".
        size: Rows and columns that each image of a folder is brought to, of a square around its
            middle. None leaves them as they are.

    Example:
        >>> load("digits").training().pixels.shape
        torch.Size([1437, 1, 8, 8])
    """
    if size is not None and (type(size) is not int or size < 1 or not is_folder(name)):
        what = "a whole number of pixels from 1 on, of a folder of images alone"
        raise ValueError(f"size: got {size!r}, expected {what}")
    if is_folder(name):
        found = listed(name)
        return ImageSet(found.info, listing=found, size=size)
    info = describe(name)
    if not info.embedded:
        files.locate(replace(info, files=_present(info, root)), root)
    return ImageSet(info, root)


def _present(info: DatasetInfo, root: Root) -> tuple[str, ...]:
    """Its files, by the unpacked name of each gzipped file that lies there unpacked alone."""
    folder, found = Path(root or "") / info.folder, []
    for file in info.files:
        plain = file.removesuffix(".gz")
        unpacked = not (folder / file).is_file() and (folder / plain).is_file()
        found.append(plain if unpacked else file)
    return tuple(found)


def read_idx(path: Path) -> np.ndarray:
    """The array of bytes in an idx file, gzipped where its name ends in .gz."""
    raw = path.read_bytes()
    if path.suffix == ".gz":
        try:
            raw = gzip.decompress(raw)
        except (EOFError, OSError, zlib.error) as error:
            raise DamagedFileError(f"{path}: truncated or not gzip ({error})") from error
    axes = raw[3] if len(raw) > 3 else 0
    if raw[:3] != bytes((0, 0, _UNSIGNED_BYTES)) or len(raw) < 4 + 4 * axes:
        raise DamagedFileError(
            f"{path}: begins with {raw[:4].hex() or 'nothing'}, expected idx of unsigned bytes"
        )
    shape = np.frombuffer(raw, ">u4", axes, 4).astype(int).tolist()
    expected = 4 + 4 * axes + math.prod(shape)
    if len(raw) != expected:
        raise DamagedFileError(
            f"{path}: {len(raw):,} bytes, expected {expected:,} for an array of shape {shape}; the "
            "file is truncated or altered"
        )
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * axes).reshape(shape)


def read_cifar_jpeg(path: Path, part: str) -> Arrays:
    """Images [N, 3, 32, 32] and labels [N] of "train" or "test", kept as JPEG files in an npz."""
    with np.load(path, allow_pickle=False) as found:
        content, offsets = found[f"{part}_jpeg"].tobytes(), found[f"{part}_offsets"].tolist()
        labels = found[f"{part}_y"]
    files = (io.BytesIO(content[begin:end]) for begin, end in pairwise(offsets))
    images = [opened(path, np.asarray, file) for file in files]
    return np.stack(images).transpose(0, 3, 1, 2), labels


def read_part(family: str, paths: list[Path], part: str) -> Arrays:
    """Images [N, C, H, W] and labels [N] of "train" or "test" in the files of a family of sets."""
    if family == "idx":
        pixels, y = map(read_idx, paths)
        return pixels[:, None], y
    if family == "cifar-pickles":
        batches = [safe_pickle.read(path, safe_pickle.MATRICES) for path in paths]
        y = np.concatenate([np.asarray(batch["labels"], np.uint8) for batch in batches])
        return np.concatenate([batch["data"].reshape(-1, 3, 32, 32) for batch in batches]), y
    if family == "cifar-jpeg":
        return read_cifar_jpeg(paths[0], part)
    if family == "cifar-pixels":
        with np.load(paths[0], allow_pickle=False) as found:
            pixels, y = found["x"].transpose(0, 3, 1, 2), found["y"]
    else:
        from sklearn.datasets import load_digits

        gray, y = load_digits(return_X_y=True)
        pixels = np.rint(gray * (255 / _GRAY_LEVELS)).astype(np.uint8).reshape(-1, 1, 8, 8)
    train = _TRAINING[family]
    return (pixels[:train], y[:train]) if part == "train" else (pixels[train:], y[train:])


def as_pixels(images: Any) -> Tensor:
    """Images as bytes [N, C, H, W], 1 or 3 channels, of one size.

    They are a tensor or an array [N, C, H, W], [N, H, W, C] or [N, H, W], or a sequence of PIL
    images, or of tensors or arrays without the first axis. Bytes are taken as they are, floating
    numbers 0..1 are multiplied by 255 and rounded. Where two axes could be the channels, the first
    one is. PIL images of 8 bits become gray where all of them are gray, and RGB otherwise.
    """
    if isinstance(images, Image.Image):
        raise TypeError("images: got one PIL image, expected a sequence, such as [image]")
    if isinstance(images, Sequence) and not isinstance(images, str):
        images = _stacked(images)
    if isinstance(images, np.ndarray):
        images = torch.from_numpy(np.ascontiguousarray(images))
    if not isinstance(images, Tensor):
        raise TypeError(
            f"images: got {type(images).__name__}, expected a tensor, an array, or a sequence of "
            "PIL images, tensors or arrays"
        )
    shape, images = tuple(images.shape), _bytes(images)
    if len(shape) == 3:
        images = images.unsqueeze(1)
    if images.dim() != 4 or not len(images):
        raise ValueError(f"images: shape {shape}, expected [N, C, H, W], [N, H, W, C] or [N, H, W]")
    if images.size(1) not in (1, 3) and images.size(3) not in (1, 3):
        raise ValueError(
            f"images: shape {shape}, expected 1 or 3 channels in the second or last axis"
        )
    return images if images.size(1) in (1, 3) else images.permute(0, 3, 1, 2).contiguous()


def _stacked(images: Sequence[Any]) -> Tensor:
    if not images:
        raise ValueError("images: got none, expected one or more")
    if all(isinstance(image, Image.Image) for image in images):
        modes = {image.mode for image in images}
        if modes & DEEP:
            raise TypeError(f"images: PIL mode {min(modes & DEEP)}, expected 8 bits a channel")
        mode = "L" if modes <= GRAY else "RGB"
        rows = (np.array(flat(image, mode)) for image in images)
        images = [np.moveaxis(np.atleast_3d(one), 2, 0) for one in rows]
    tensors = [torch.as_tensor(image) for image in images]
    shapes = sorted({tuple(image.shape) for image in tensors})
    if len(shapes) > 1:
        raise ValueError(
            f"images: {len(shapes)} sizes, such as {shapes[0]} and {shapes[-1]}, expected one for "
            "all; PIL.ImageOps.fit makes PIL images equal"
        )
    return torch.stack(tensors)


def _bytes(images: Tensor) -> Tensor:
    if images.dtype == torch.uint8:
        return images
    if not images.is_floating_point():
        raise TypeError(f"images: dtype {images.dtype}, expected uint8, or floating 0..1")
    if images.numel() and not bool(((images >= 0) & (images <= 1)).all()):
        raise ValueError(
            f"images: floating numbers from {float(images.min()):g} to {float(images.max()):g}, "
            "expected 0..1; images that were normalized have to be taken before that"
        )
    return (images * 255).round().to(torch.uint8)
