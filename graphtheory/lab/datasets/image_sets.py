"""Images by name: training images and test images apart, each read when it is asked for.

Nothing is ever downloaded. Raw files are checked against their SHA-256 where it is known, and what
was read of them is kept in the cache of `datasets.graphs`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Generator, Tensor

from graphtheory.lab.datasets import catalogue, files
from graphtheory.lab.datasets.cache import processed
from graphtheory.lab.datasets.catalogue import DatasetInfo, key, known_seed
from graphtheory.lab.datasets.image_files import READERS, Listing, listed, read_images
from graphtheory.lab.datasets.splits import stratified

__all__ = [
    "FolderImages",
    "ImageSet",
    "Images",
    "describe",
    "is_folder",
    "load",
    "names",
    "validation_split",
]


class Images(NamedTuple):
    """Images and the class of each.

    Shapes: pixels uint8 [N, C, H, W], 0..255; y int64 [N].
    """

    pixels: Tensor
    y: Tensor


@dataclass(frozen=True)
class ImageSet:
    """An image set whose files were found; `load` makes it.

    The test images of "digits" are the last 360 of 1,797 and those of "cifar10-lossless4000" the
    last 800 of 4,000: these two come without a test part of their own.

    Args:
        info: What is known about it.
        root: Folder with the raw files.
        cache: Folder for what was read of them.
    """

    info: DatasetInfo
    root: str | PathLike[str] | None = None
    cache: str | PathLike[str] | None = None

    def training(self) -> Images:
        """All images that may be trained on or validated with.

        Raises:
            DamagedFileError: A raw file is truncated or altered.
        """
        return self._part("train")

    def test(self) -> Images:
        """The test images, for a final score and nothing else.

        Raises:
            DamagedFileError: A raw file is truncated or altered.
        """
        return self._part("test")

    @property
    def sha256(self) -> str | None:
        """Hash of the names and sizes of the files of a folder of images; None of a set by name."""
        return None

    def split(self, y: Tensor, seed: int) -> tuple[Tensor, Tensor]:
        """Positions of training images to learn from and to validate with; `validation_split`."""
        return validation_split(y, seed)

    @property
    def listing(self) -> Listing | None:
        """Files and names of classes of a folder of images; None of a set by name."""
        return None

    def _part(self, part: str) -> Images:
        expected = dict(self.info.counts)["images" if part == "train" else "test images"]
        other = ("t10k", "test_batch") if part == "train" else ("train-", "data_batch")
        found = [name for name in _present(self.info, self.root) if not name.startswith(other)]
        info = replace(self.info, name=f"{self.info.name}-{part}", files=tuple(found))

        def read(private: Path) -> dict[str, Tensor]:
            pixels, y = READERS[info.family]([private / info.folder / f for f in info.files], part)
            files.verify_counts(
                replace(info, counts=(("images", expected),)), {"images": len(pixels)}
            )
            pixels = np.ascontiguousarray(pixels)
            return {"pixels": torch.tensor(pixels), "y": torch.tensor(y).long()}

        if info.embedded:
            return Images(**read(Path()))
        return Images(**processed(info, self.root, self.cache, read))


@dataclass(frozen=True)
class FolderImages(ImageSet):
    """Images of a folder by class, of which `load` makes it; they are read as often as asked for.

    Args:
        files: What lies there; see `image_files.listed`.
        size: Rows and columns that every image is brought to; None leaves them as they are.
    """

    files: Listing | None = None
    size: int | None = None

    @property
    def listing(self) -> Listing:
        assert self.files is not None
        return self.files

    @property
    def sha256(self) -> str:
        return self.listing.sha256

    def training(self) -> Images:
        return Images(**read_images(self.listing.train + self.listing.val, self.size))

    def test(self) -> Images:
        return Images(**read_images(self.listing.test, self.size))

    def split(self, y: Tensor, seed: int) -> tuple[Tensor, Tensor]:
        """Validation images are those of the folder val, without it drawn by seed."""
        if not self.listing.val:
            return super().split(y, seed)
        return torch.arange(len(y)).tensor_split([len(self.listing.train)])  # type: ignore[return-value]


def names() -> list[str]:
    """Names of all image sets, the embedded one first.

    Example:
        >>> names()[:2]
        ['digits', 'mnist']
    """
    return catalogue.names("image")


def is_folder(name: str) -> bool:
    """Whether an image set is meant by its folder: a folder that is there, and no known name."""
    return key(name) not in map(key, names()) and Path(name).is_dir()


def describe(name: str) -> DatasetInfo:
    """What is known about an image set, without a look into its files.

    Args:
        name: One of `names()`, or a folder of images by class.

    Raises:
        ValueError: If the name is unknown, or the folder has no classes.
    """
    return listed(name).info if is_folder(name) else catalogue.describe(name, task="image")


def load(
    name: str,
    root: str | PathLike[str] | None = None,
    *,
    cache: str | PathLike[str] | None = None,
    size: int | None = None,
) -> ImageSet:
    """Find an image set; its images are read when they are asked for.

    "cifar10" is the published set. "cifar10-jpeg" holds the same images as JPEG of quality 75 and
    "cifar10-lossless4000" the first 4,000 of them: scores on either are not comparable with those
    that were published on CIFAR-10.

    Args:
        name: One of `names()`, whose case does not matter, or a folder of images by class, as
            torchvision's `ImageFolder` takes them; see `image_files.listed`.
        root: Folder that holds `describe(name).folder`; may be read-only; not needed for "digits".
        cache: Folder for processed arrays; None for $GRAPHTHEORY_CACHE or ~/.cache/graphtheory.
        size: Of a folder of images: the rows and columns that each is brought to, of a square
            around its middle. None leaves them as they are.

    Raises:
        ValueError: Unknown name; the message lists the known ones. A size of a set by name, or
            below 1.
        FileNotFoundError: Raw files are missing; the message says which, and where they go.

    Example:
        >>> load("digits").training().pixels.shape
        torch.Size([1437, 1, 8, 8])
    """
    if size is not None and (size < 1 or not is_folder(name)):
        raise ValueError(
            f"size: got {size}, expected 1 or more pixels, of a folder of images alone"
        )
    if is_folder(name):
        found = listed(name)
        return FolderImages(found.info, files=found, size=size)
    info = describe(name)
    if not info.embedded:
        files.locate(replace(info, files=_present(info, root)), root)
    return ImageSet(info, root, cache)


def validation_split(y: Tensor, seed: int, share: float = 0.1) -> tuple[Tensor, Tensor]:
    """Positions to train on and to validate with, of each class in equal shares.

    Args:
        y: Class of each training image.
        seed: 0 or more.
        share: For validation, in (0, 1).

    Shapes: y [N] int64; positions int64.

    Example:
        >>> train, val = validation_split(torch.arange(2).repeat(10), seed=0)
        >>> len(train), len(val)
        (18, 2)
    """
    generator = Generator().manual_seed(known_seed(seed))
    split = stratified(y, val=share, test=0.0, generator=generator)
    return split.train, split.val


def _present(info: DatasetInfo, root: str | PathLike[str] | None) -> tuple[str, ...]:
    """Its files, by the unpacked name of each gzipped file that lies there unpacked alone."""
    folder = Path(root or "") / info.folder

    def name(file: str) -> str:
        plain = file.removesuffix(".gz")
        return plain if not (folder / file).is_file() and (folder / plain).is_file() else file

    return tuple(map(name, info.files))
