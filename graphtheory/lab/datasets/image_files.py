"""Readers of images: published files, a folder of images by class as of `ImageFolder`, arrays."""

from __future__ import annotations

import gzip
import hashlib
import io
import math
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageOps, UnidentifiedImageError
from sklearn.datasets import load_digits
from torch import Generator, Tensor

from graphtheory.lab.datasets.catalogue import DatasetInfo
from graphtheory.lab.datasets.files import DamagedFileError
from graphtheory.lab.datasets.node_readers import read_pickled
from graphtheory.lab.datasets.splits import stratified

Arrays = tuple[np.ndarray, np.ndarray]
Files = tuple[tuple[Path, int], ...]  # with the class of each
_DEEP = {"I", "F", "I;16", "I;16B", "I;16L"}  # PIL's modes of more than 8 bits a channel
_GRAY = {"1", "L"}  # PIL's modes of one channel
_UNSIGNED_BYTES = 8  # idx's code of the type
_GRAY_LEVELS = 16  # of scikit-learn's digits
_TRAINING = {"embedded": 1437, "cifar-pixels": 3200}  # images of the two sets without a test part
_EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
_OTHER_NAMES = ("training", "valid", "validation", "dev", "testing")
_TEST_SHARE = 0.2
_SPLIT = "random-90-10"  # of the training images

# What torchvision checks too. MD5 does not keep a forger out; the reader knows no names that do
# anything but make arrays, whatever the file says.
_CIFAR_MD5 = {
    "data_batch_1": "c99cafc152244af753f735de768cd75f",
    "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
    "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
    "data_batch_4": "634d18415352ddfa80567beed471001a",
    "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
    "test_batch": "40351d587109b95175f43aff81a1287e",
}


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


def read_cifar_batch(path: Path) -> Arrays:
    """Images [N, 3, 32, 32] and labels [N] of a batch of the official python version."""
    found = hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()
    if found != _CIFAR_MD5.get(path.name):
        raise DamagedFileError(
            f"{path}: MD5 {found}, expected {_CIFAR_MD5.get(path.name)}; the file is truncated or "
            "altered"
        )
    batch = read_pickled(path)
    return batch["data"].reshape(-1, 3, 32, 32), np.asarray(batch["labels"], np.uint8)


def read_cifar_jpeg(path: Path, part: str) -> Arrays:
    """Images [N, 3, 32, 32] and labels [N] of "train" or "test", kept as JPEG files in an npz."""
    with np.load(path, allow_pickle=False) as found:
        content, offsets = found[f"{part}_jpeg"].tobytes(), found[f"{part}_offsets"].tolist()
        labels = found[f"{part}_y"]
    files = (io.BytesIO(content[begin:end]) for begin, end in pairwise(offsets))
    images = [np.asarray(Image.open(file)) for file in files]
    return np.stack(images).transpose(0, 3, 1, 2), labels


def read_part(family: str, paths: list[Path], part: str) -> Arrays:
    """Images [N, C, H, W] and labels [N] of "train" or "test" in the files of a family of sets."""
    if family == "idx":
        pixels, y = map(read_idx, paths)
        return pixels[:, None], y
    if family == "cifar-pickles":
        batches = zip(*map(read_cifar_batch, paths), strict=True)
        pixels, y = map(np.concatenate, batches)
        return pixels, y
    if family == "cifar-jpeg":
        return read_cifar_jpeg(paths[0], part)
    if family == "cifar-pixels":
        with np.load(paths[0], allow_pickle=False) as found:
            pixels, y = found["x"].transpose(0, 3, 1, 2), found["y"]
    else:
        gray, y = load_digits(return_X_y=True)
        pixels = np.rint(gray * (255 / _GRAY_LEVELS)).astype(np.uint8).reshape(-1, 1, 8, 8)
    train = _TRAINING[family]
    return (pixels[:train], y[:train]) if part == "train" else (pixels[train:], y[train:])


@dataclass(frozen=True)
class Listing:
    """Files of images and their classes, without a look into any of them."""

    folder: Path
    classes: tuple[str, ...]  # names, sorted; a class is its position
    train: Files
    val: Files  # to validate with; empty where they are drawn from `train`
    test: Files

    @cached_property
    def sha256(self) -> str:
        """The hash of names and sizes of all files, hexadecimal."""
        files = (*self.train, *self.val, *self.test)
        lines = (f"{self._name(path)} {label} {path.stat().st_size}\n" for path, label in files)
        return hashlib.sha256("".join(lines).encode()).hexdigest()

    def test_files(self) -> list[str]:
        """The paths of the test images below the folder."""
        return [self._name(path) for path, _ in self.test]

    def _name(self, path: Path) -> str:
        return path.relative_to(self.folder).as_posix()

    @property
    def info(self) -> DatasetInfo:
        """What the catalogue would say about such a set."""
        images, name, folder = len(self.train) + len(self.val), self.folder.name, str(self.folder)
        counts = {"images": images, "test images": len(self.test), "classes": len(self.classes)}
        known = tuple(counts.items())
        return DatasetInfo(name, "folder", folder, splits=(_SPLIT,), task="image", counts=known)


def listed(folder: str | PathLike[str]) -> Listing:
    """The images of a folder by class, in the layouts that `image_sets.load` takes."""
    root = Path(folder).resolve()
    if not root.is_dir():
        raise FileNotFoundError(f"{folder}: not a folder; expected one with a folder of each class")
    other = [p.name for p in _folders(root) if p.name.lower() in _OTHER_NAMES and _folders(p)]
    if other:
        raise ValueError(f"{root}: parts named {', '.join(other)}, expected train, val and test")
    parts = {name: root / name for name in ("train", "val", "test") if _folders(root / name)}
    train = parts.get("train", root)
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
    val, test = (tuple(_files(parts[n], classes)) if n in parts else () for n in ("val", "test"))
    if "test" not in parts and "val" in parts:
        val, test = (), val
    elif "test" not in parts:
        y = torch.tensor([label for _, label in files])
        drawn = stratified(y, val=0.0, test=_TEST_SHARE, generator=Generator().manual_seed(0))
        test = tuple(files[i] for i in drawn.test.tolist())
        files = tuple(files[i] for i in drawn.train.tolist())
    return Listing(root, classes, files, val, test)


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


def read_images(files: Files, size: int | None) -> tuple[Tensor, Tensor]:
    """Pixels uint8 [N, C, H, W] and classes y int64 [N] of files; RGB unless all are gray.

    Each image is cut to a square around its middle and resized to `size` rows and columns; without
    a size images have to be squares of one size.
    """
    kinds = [_opened(path, lambda image: (image.mode, image.size)) for path, _ in files]
    for (path, _), (mode, _) in zip(files, kinds, strict=True):
        if mode in _DEEP:
            raise ValueError(f"{path}: PIL mode {mode}, expected 8 bits a channel")
    sides = {side for _, side in kinds}
    if size is None and (len(sides) > 1 or any(width != height for width, height in sides)):
        least, most = min(sides), max(sides)
        raise ValueError(
            f"images: of {least[0]} x {least[1]} to {most[0]} x {most[1]} pixels, expected "
            "squares of one size, or an image size to bring them to (--image-size 64)"
        )
    mode = "L" if {kind for kind, _ in kinds} <= _GRAY else "RGB"

    def bring(image: Image.Image) -> Image.Image:
        made = image.convert(mode)
        return made if size is None else ImageOps.fit(made, (size, size), Image.Resampling.BILINEAR)

    pixels = as_pixels([_opened(path, bring) for path, _ in files])
    return pixels, torch.tensor([label for _, label in files])


def _opened(path: Path, look: Callable[[Image.Image], Any]) -> Any:
    try:
        with Image.open(path) as image:
            return look(image)
    except (UnidentifiedImageError, OSError, SyntaxError) as error:
        raise DamagedFileError(f"{path}: {error}; expected an image that is whole") from error


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
        return _from_pil(images)
    tensors = [torch.as_tensor(image) for image in images]
    shapes = {tuple(image.shape) for image in tensors}
    if len(shapes) > 1:
        raise ValueError(f"images: of shapes {sorted(shapes)[:3]}, expected one for all")
    return torch.stack(tensors)


def _from_pil(images: Sequence[Image.Image]) -> Tensor:
    """Stack PIL images into bytes [N, C, H, W], of one channel if all are gray."""
    sizes = sorted({image.size for image in images})
    if len(sizes) > 1:
        raise ValueError(
            f"images: {len(sizes)} sizes, such as {sizes[0]} and {sizes[-1]} pixels, expected one; "
            "PIL.ImageOps.fit makes them equal"
        )
    modes = {image.mode for image in images}
    if modes & _DEEP:
        raise TypeError(f"images: PIL mode {min(modes & _DEEP)}, expected 8 bits a channel")
    mode = "L" if modes <= _GRAY else "RGB"
    pixels = torch.from_numpy(np.stack([np.asarray(image.convert(mode)) for image in images]))
    return pixels[:, None] if mode == "L" else pixels.permute(0, 3, 1, 2).contiguous()


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
