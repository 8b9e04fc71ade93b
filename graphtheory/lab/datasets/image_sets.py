"""Images by name: training images and test images apart, each read when it is asked for.

Nothing is ever downloaded. Raw files are checked against their SHA-256 where it is known, and what
was read of them is kept in the cache of `datasets.graphs`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Generator, Tensor

from graphtheory.lab.datasets import catalogue, files
from graphtheory.lab.datasets.catalogue import DatasetInfo, Root, key, known_seed
from graphtheory.lab.datasets.image_files import Listing, listed, read_images, read_part
from graphtheory.lab.datasets.splits import stratified

__all__ = ["ImageSet", "Images", "describe", "is_folder", "load", "names"]

_VALIDATION_SHARE = 0.1


class Images(NamedTuple):
    """Images and the class of each."""

    pixels: Tensor  # uint8 [N, C, H, W]
    y: Tensor  # int64 [N]


@dataclass(frozen=True)
class ImageSet:
    """An image set whose files were found; `load` makes it.

    "digits" and "cifar10-lossless4000" have no test part of their own: it is their last fifth.
    """

    info: DatasetInfo
    root: Root = None  # folder with the raw files
    cache: Root = None  # folder for what was read of them
    listing: Listing | None = None  # of a folder of images, read as often as they are asked for
    size: int | None = None  # rows and columns that every image of a folder is brought to

    def training(self) -> Images:
        """All images that may be trained on or validated with."""
        if self.listing is not None:
            return Images(*read_images(self.listing.train + self.listing.val, self.size))
        return self._part("train", "images", ("t10k", "test_batch"))

    def test(self) -> Images:
        """The test images, for a final score and nothing else."""
        if self.listing is not None:
            return Images(*read_images(self.listing.test, self.size))
        return self._part("test", "test images", ("train-", "data_batch"))

    @property
    def sha256(self) -> str | None:
        """Hash of the names and sizes of the files of a folder of images; None of a set by name."""
        return None if self.listing is None else self.listing.sha256

    def split(self, y: Tensor, seed: int) -> tuple[Tensor, Tensor]:
        """Positions of training images to learn from and to validate with.

        The latter are those of the folder val, or else a tenth of each class, drawn by the seed.
        """
        if self.listing is not None and self.listing.val:
            train, val = torch.arange(len(y)).tensor_split([len(self.listing.train)])
            return train, val
        generator = Generator().manual_seed(known_seed(seed))
        return stratified(y, val=_VALIDATION_SHARE, test=0.0, generator=generator)[:2]

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

        if info.embedded:
            return Images(**read(Path()))
        return Images(**files.processed(info, self.root, self.cache, read))


def names() -> list[str]:
    """Names of all image sets, the embedded one first."""
    return catalogue.names("image")


def is_folder(name: str) -> bool:
    """Whether an image set is meant by its folder: a folder that is there, and no known name."""
    return key(name) not in map(key, names()) and Path(name).is_dir()


def describe(name: str) -> DatasetInfo:
    """What is known about an image set or a folder of images, without a look into its files."""
    return listed(name).info if is_folder(name) else catalogue.describe(name, task="image")


def load(name: str, root: Root = None, *, cache: Root = None, size: int | None = None) -> ImageSet:
    """Find an image set; its images are read when they are asked for.

    "cifar10" is the published set. "cifar10-jpeg" holds the same images as JPEG of quality 75 and
    "cifar10-lossless4000" the first 4,000 of them: scores on either are not comparable with those
    that were published on CIFAR-10.

    A folder holds train/CLASS/... with test/CLASS/..., and val/CLASS/... to validate with; with
    `val` alone, that is the test part, as in ImageNet. Or it holds CLASS/..., as torchvision's
    `ImageFolder` takes them, or `train` alone, of which a fifth of every class is the test part,
    always the same. Files lie at any depth below their class; files that are no images by their
    name are left out.

    Args:
        name: One of `names()`, whose case does not matter, or a folder of images by class.
        root: Folder that holds `describe(name).folder`; may be read-only; not needed for "digits".
        cache: Folder for processed arrays; None for $GRAPHTHEORY_CACHE or ~/.cache/graphtheory.
        size: Of a folder of images: the rows and columns that each is brought to, of a square
            around its middle. None leaves them as they are.

    Raises:
        ValueError: Unknown name; the message lists the known ones. A size of a set by name, or
            below 1. A folder with fewer than two classes, a class without an image, a class of the
            test part that is not in `train`, or parts of other names.
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
        return ImageSet(found.info, listing=found, size=size)
    info = describe(name)
    if not info.embedded:
        files.locate(replace(info, files=_present(info, root)), root)
    return ImageSet(info, root, cache)


def _present(info: DatasetInfo, root: Root) -> tuple[str, ...]:
    """Its files, by the unpacked name of each gzipped file that lies there unpacked alone."""
    folder, found = Path(root or "") / info.folder, []
    for file in info.files:
        plain = file.removesuffix(".gz")
        unpacked = not (folder / file).is_file() and (folder / plain).is_file()
        found.append(plain if unpacked else file)
    return tuple(found)
