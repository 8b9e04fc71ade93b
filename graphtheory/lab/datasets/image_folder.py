"""A folder of images by class, in the layout of torchvision's `ImageFolder`."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Generator, Tensor

from graphtheory.lab.datasets.catalogue import DatasetInfo
from graphtheory.lab.datasets.files import DamagedFileError
from graphtheory.lab.datasets.splits import stratified

_EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
_TEST, _VALIDATION = "test", "val"
_OTHER_NAMES = ("training", "valid", "validation", "dev", "testing")
_TEST_SHARE = 0.2
_SPLIT = "random-90-10"  # of the training images
_DEEP = ("I", "F", "I;16", "I;16B", "I;16L")


@dataclass(frozen=True)
class Listing:
    """Files of images and their classes, without a look into any of them.

    Attributes:
        folder: Where they lie.
        classes: Names, sorted; a class is its position.
        train: Files to learn from and their classes.
        val: Those to validate with; empty where they are drawn from `train`.
        test: Those for the final score.
    """

    folder: Path
    classes: tuple[str, ...]
    train: tuple[tuple[Path, int], ...]
    val: tuple[tuple[Path, int], ...]
    test: tuple[tuple[Path, int], ...]

    @cached_property
    def sha256(self) -> str:
        """Of names and sizes of all files, hexadecimal."""
        found = hashlib.sha256()
        for path, label in (*self.train, *self.val, *self.test):
            name = path.relative_to(self.folder).as_posix()
            found.update(f"{name} {label} {path.stat().st_size}\n".encode())
        return found.hexdigest()

    def test_files(self) -> list[str]:
        """Paths of the test images below the folder."""
        return [path.relative_to(self.folder).as_posix() for path, _ in self.test]

    @property
    def info(self) -> DatasetInfo:
        """What a catalogue would say about it."""
        images = len(self.train) + len(self.val)
        return DatasetInfo(
            self.folder.name, "folder", folder=str(self.folder), splits=(_SPLIT,), task="image",
            counts=(
                ("images", images), ("test images", len(self.test)), ("classes", len(self.classes))
            ),
        )  # fmt: skip


def listed(folder: str | PathLike[str]) -> Listing:
    """The images of a folder by class.

    Either `folder/train/CLASS/...` with `folder/test/CLASS/...`, and `folder/val/CLASS/...` to
    validate with; with `val` alone, that is the test part, as in ImageNet. Or `folder/CLASS/...`,
    or `train` alone, of which a fifth of every class is the test part, always the same. Files lie
    at any depth below their class; files that are no images by their name are left out.

    Raises:
        FileNotFoundError: If it is no folder.
        ValueError: If there are fewer than two classes, a class without an image, or a class of the
            test part that is not in `train`; or if parts have other names.
    """
    root = Path(folder).resolve()
    if not root.is_dir():
        raise FileNotFoundError(f"{folder}: not a folder; expected one with a folder of each class")
    parts = {name: root / name for name in ("train", _VALIDATION, _TEST) if _folders(root / name)}
    other = [p.name for p in _folders(root) if p.name.lower() in _OTHER_NAMES and _folders(p)]
    if other:
        raise ValueError(f"{root}: parts named {', '.join(other)}, expected train, val and test")
    train = parts.pop("train", root)
    classes = tuple(path.name for path in _folders(train))
    if len(classes) < 2:
        raise ValueError(
            f"{train}: {len(classes)} folders of classes, expected two or more, as in "
            "train/CLASS/image.png or CLASS/image.png"
        )
    files = tuple(_files(train, classes))
    empty = sorted(set(range(len(classes))) - {label for _, label in files})
    if empty:
        raise ValueError(
            f"{train / classes[empty[0]]}: no image, expected some of {' '.join(_EXTENSIONS)}"
        )
    if _TEST not in parts and _VALIDATION in parts:
        parts[_TEST] = parts.pop(_VALIDATION)
    if _TEST not in parts:
        return Listing(root, classes, *_drawn(files))
    val, test = (
        tuple(_files(parts[name], classes)) if name in parts else ()
        for name in (_VALIDATION, _TEST)
    )
    return Listing(root, classes, files, val, test)


def read_images(files: tuple[tuple[Path, int], ...], size: int | None) -> dict[str, Tensor]:
    """Pixels uint8 [N, C, H, W] and classes y int64 [N] of files.

    Gray where all of them are gray, RGB otherwise.

    Args:
        files: Paths and classes.
        size: Rows and columns; each image is cut to a square around its middle and resized. None
            leaves images as they are, which have to be squares of one size then.

    Raises:
        DamagedFileError: If a file is no image, or cut short.
        ValueError: If sizes differ or are no squares without `size`, or an image has more than 8
            bits a channel.
    """
    try:
        kinds = [_kind(path) for path, _ in files]
        sides = {side for _, side in kinds}
        if size is None and (len(sides) > 1 or any(width != height for width, height in sides)):
            least, most = min(sides), max(sides)
            raise ValueError(
                f"images: of {least[0]} x {least[1]} to {most[0]} x {most[1]} pixels, expected "
                "squares of one size, or an image size to bring them to (--image-size 64)"
            )
        mode = "L" if {kind for kind, _ in kinds} <= {"1", "L"} else "RGB"
        arrays = [_array(path, mode, size) for path, _ in files]
    except (UnidentifiedImageError, OSError, SyntaxError) as error:
        raise DamagedFileError(f"{error}; expected an image that is whole") from error
    pixels = torch.from_numpy(np.stack(arrays))
    pixels = pixels[:, None] if mode == "L" else pixels.permute(0, 3, 1, 2).contiguous()
    return {"pixels": pixels, "y": torch.tensor([label for _, label in files])}


def _kind(path: Path) -> tuple[str, tuple[int, int]]:
    with Image.open(path) as image:
        if image.mode in _DEEP:
            raise ValueError(f"{path}: PIL mode {image.mode}, expected 8 bits a channel")
        return image.mode, image.size


def _array(path: Path, mode: str, size: int | None) -> np.ndarray:
    with Image.open(path) as image:
        try:
            made = image.convert(mode)
        except OSError as error:  # which names no file
            raise DamagedFileError(f"{path}: {error}; expected an image that is whole") from error
        if size is not None:
            made = ImageOps.fit(made, (size, size), Image.Resampling.BILINEAR)
        return np.asarray(made)


def _folders(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if path.is_dir() and path.name[0] != ".")


def _files(part: Path, classes: tuple[str, ...]) -> Iterator[tuple[Path, int]]:
    for folder in _folders(part):
        if folder.name not in classes:
            raise ValueError(
                f"{folder}: a class that is not trained on, expected some of {', '.join(classes)}"
            )
        for path in sorted(folder.rglob("*")):
            if path.suffix.lower() in _EXTENSIONS:
                yield path, classes.index(folder.name)


def _drawn(files: tuple[tuple[Path, int], ...]) -> list[tuple[tuple[Path, int], ...]]:
    """Files to learn from, none to validate with, and a fifth of each class for the test."""
    y = torch.tensor([label for _, label in files])
    split = stratified(y, val=0.0, test=_TEST_SHARE, generator=Generator().manual_seed(0))
    chosen = [tuple(files[i] for i in part.tolist()) for part in (split.train, split.test)]
    return [chosen[0], (), chosen[1]]
