"""Folders of images by class: which folder is which part, and which files are images."""

import hashlib
import os
import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import IO, Any

import torch
from PIL import Image, ImageOps
from torch import Generator

from graphtheory.lab.datasets.catalogue import DatasetInfo
from graphtheory.lab.datasets.files import DamagedFileError
from graphtheory.lab.datasets.splits import stratified

Files = tuple[tuple[Path, int], ...]  # with the class of each
DEEP = {"I", "F", "I;16", "I;16B", "I;16L"}  # PIL's modes of more than 8 bits a channel
GRAY = {"1", "L", "LA"}  # PIL's modes of one channel of color
_FORMATS = ("JPEG", "PNG", "PPM", "BMP", "TIFF", "WEBP")  # not EPS, for which PIL runs a program
_EXTENSIONS = ".jpg .jpeg .jfif .png .ppm .bmp .pgm .pbm .pnm .tif .tiff .webp"
_IMAGES = f"{_EXTENSIONS} .gif .svg .heic .heif .avif .ico .jp2 .jxl .tga .psd .raw .dng .nef .cr2"
_PART = "(?:(tr)(?:n|ain|aining)?|(val)(?:id|idation)?|(te)(?:st|sting)?|(dev|tst))(?:set|data)?"
_NAMES = {"tr": "train", "te": "test", "tst": "test", "dev": "val"}
_SHARED = {"set", "data", "dataset", "split", "part", "images", "imgs"}  # say nothing of a part
_UNMEANT = {"__macosx", "@eadir", "$recycle.bin", "lost+found", "__pycache__"}  # of other programs
_TEST_SHARE, _TOLD = 0.2, 4  # files that a warning names
_SPLIT = "random-90-10"  # of the training images


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

    @cached_property
    def mode_and_sides(self) -> tuple[str, set[tuple[int, int]]]:
        """Gray where all images of all parts are, else RGB; and the columns and rows they have."""
        files = (*self.train, *self.val, *self.test)
        kinds = set()
        for path, _ in files:
            mode, side = opened(path, lambda image: (image.mode, image.size))
            if mode in DEEP:
                raise ValueError(f"{path}: PIL mode {mode}, expected 8 bits a channel")
            kinds.add((mode, side))
        return "L" if {mode for mode, _ in kinds} <= GRAY else "RGB", {side for _, side in kinds}

    def test_files(self) -> list[str]:
        """The paths of the test images below the folder."""
        return [self._name(path) for path, _ in self.test]

    def _name(self, path: Path) -> str:
        return path.relative_to(self.folder).as_posix()

    @property
    def info(self) -> DatasetInfo:
        """What the catalogue would say about such a set."""
        name, folder, images = self.folder.name, str(self.folder), len(self.train) + len(self.val)
        counts = ("images", images), ("test images", len(self.test)), ("classes", len(self.classes))
        return DatasetInfo(name, "folder", folder, splits=(_SPLIT,), task="image", counts=counts)


def listed(folder: str | PathLike[str]) -> Listing:
    """The images of a folder by class, in the layouts that `image_sets.load` takes."""
    root = Path(folder).resolve()
    parts = _parts(root)
    train = parts.get("train", root)
    classes = tuple(path.name for path in _folders(train))
    if len(classes) < 2:
        raise ValueError(
            f"{train}: {len(classes)} folders of classes, expected two or more, as in "
            "train/CLASS/image.png or CLASS/image.png"
        )
    left: list[Path] = []
    found = {n: [*_files(p, classes, left)] for n, p in ({"train": train} | parts).items()}
    files, val, test = (tuple(found.get(n, ())) for n in ("train", "val", "test"))
    empty = sorted(set(range(len(classes))) - {label for _, label in files})
    if empty:
        raise ValueError(f"{train / classes[empty[0]]}: no image, expected some of {_EXTENSIONS}")
    if left:
        told = ", ".join(path.relative_to(root).as_posix() for path in left[:_TOLD])
        what = f"{len(left)} images are left out, such as {told}"
        warnings.warn(f"{root}: {what}; expected {_EXTENSIONS} in a class", stacklevel=3)
    if "test" not in parts and "val" in parts:
        val, test = (), val
    elif "test" not in parts:
        y = torch.tensor([label for _, label in files])
        drawn = stratified(y, val=0.0, test=_TEST_SHARE, generator=Generator().manual_seed(0))
        test = tuple(files[i] for i in drawn.test.tolist())
        if not test:
            what = "1 or 2 images of each class, of which a fifth would be the test part"
            raise ValueError(f"{root}: {what}; expected 3 or more of one, or a folder test beside")
        files = tuple(files[i] for i in drawn.train.tolist())
    return Listing(root, classes, files, val, test)


def _parts(root: Path) -> dict[str, Path]:
    """The folders train, val and test, whatever their names; none where `root` holds classes."""
    folders = _folders(root)
    named = {path: name for path in folders if (name := _part_of(path.name))}
    with_train = {rest for part, rest in named.values() if part == "train"}
    several = {rest for part, rest in named.values() if part != "train" and rest in with_train}
    found = [path for path, (_, rest) in named.items() if not rest or rest in several]
    labeled = [path for path in found if _folders(path)]
    parts = {named[path][0]: path for path in labeled}
    if len({named[path][0] for path in found}) < 2 and not parts:
        return {}  # one class may have such a name
    other = [path for path in folders if path not in parts.values() and any(_images(path))]
    if other or "train" not in parts:
        taken = ", ".join(f"{path.name} as {part}" for part, path in parts.items()) or "no part"
        raise ValueError(
            f"{root}: {taken}, with {', '.join(path.name for path in other) or 'none to train on'} "
            "beside; expected train, perhaps val and test, with the same classes, and no others"
        )
    return parts


def _part_of(name: str) -> tuple[str, tuple[str, ...]] | None:
    """Which part a folder is named after, and the other words of its name."""
    words = [word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+|\d+", name)]
    parts = [found[found.lastindex or 0] for word in words if (found := re.fullmatch(_PART, word))]
    rest = tuple(word for word in words if not re.fullmatch(_PART, word) and word not in _SHARED)
    return (_NAMES.get(parts[0], parts[0]), rest) if len(parts) == 1 else None


def _folders(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_dir() and _meant(path.name))


def _meant(name: str) -> bool:
    """Whether a file or folder is the user's: hidden ones are those of other programs."""
    meant = not name.startswith(".") and name.lower() not in _UNMEANT
    if meant and re.search("[\ud800-\udfff]", name):  # of bytes that are no text
        raise ValueError(f"images: the name {name!r} is not UTF-8, expected one that is; rename it")
    return meant


def _files(part: Path, classes: tuple[str, ...], left: list[Path]) -> Iterator[tuple[Path, int]]:
    loose = sorted(path for path in part.iterdir() if path.is_file() and _meant(path.name))
    left += [path for path in loose if path.suffix.lower() in _IMAGES.split()]
    for folder in _folders(part):
        if folder.name not in classes:
            raise ValueError(
                f"{folder}: a class that is not trained on, expected some of {', '.join(classes)}"
            )
        inner = {name[0] for path in _folders(folder) if (name := _part_of(path.name))}
        if len(inner) > 1:
            found = f"parts {', '.join(sorted(inner))} below a class"
            raise ValueError(f"{folder}: {found}, expected them above, as train/CLASS/image.png")
        for path in _images(folder):
            if path.suffix.lower() in _EXTENSIONS.split():
                yield path, classes.index(folder.name)
            else:
                left.append(path)


def _images(folder: Path, above: tuple[Path, ...] = ()) -> Iterator[Path]:
    """Every image at any depth, in order; links are followed, but for those to a folder above."""
    with os.scandir(folder) as every:
        entries = sorted((e for e in every if _meant(e.name)), key=lambda entry: entry.name)
    for entry in entries:
        path = folder / entry.name
        linked = entry.is_symlink()
        if path.is_dir() if linked else entry.is_dir():
            links = (*above, folder.resolve()) if linked else above  # the folders they lie in
            if linked and any(one.is_relative_to(path.resolve()) for one in links):
                raise ValueError(f"{path}: a link to a folder above it, expected none")
            yield from _images(path, links)
        elif path.suffix.lower() in _IMAGES.split():
            yield path


def opened(path: Path, look: Callable[[Image.Image], Any], file: IO[bytes] | None = None) -> Any:
    """What `look` finds in an image, or in a `file` in it; DamagedFileError where that fails."""
    try:
        with Image.open(file or path, formats=_FORMATS) as image:
            return look(image)
    except Exception as error:  # decoders fail in as many ways as there are formats
        if str(error).startswith(f"{path}: "):
            raise  # of `look`, about an image that is whole
        what = f"{type(error).__name__}, {error}; expected a whole {' or '.join(_FORMATS)}"
        raise DamagedFileError(f"{path}: {what}") from error


def flat(image: Image.Image, mode: str) -> Image.Image:
    """The image as a viewer shows it, turned as its EXIF data say; not transparent, not several."""
    name = getattr(image, "filename", "") or "images"
    try:
        many = getattr(image, "n_frames", 1)
    except ValueError as error:
        what = f"a closed {image.format} whose pictures cannot be counted, expected an open one"
        raise ValueError(f"{name}: {what}, or its image.copy()") from error
    if many > 1 and image.format != "MPO":  # the first of MPO is the photograph itself
        what = f"{many} pictures in one {image.format}, expected one: image.copy() of that one"
        raise ValueError(f"{name}: {what}")
    turned = ImageOps.exif_transpose(image)
    if turned.has_transparency_data:
        turned = turned.convert("RGBA")
        if any(turned.getchannel("A").histogram()[:255]):
            raise ValueError(f"{name}: transparent pixels, expected none; paste it on a background")
    return turned.convert(mode)
