"""Readers of image files: one file in, bytes of pixels and labels out."""

from __future__ import annotations

import gzip
import hashlib
import io
import math
import zlib
from itertools import pairwise
from pathlib import Path

import numpy as np
from PIL import Image

from graphtheory.lab.datasets.files import DamagedFileError
from graphtheory.lab.datasets.node_readers import read_pickled

_UNSIGNED_BYTES = 8  # idx's code of the type

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
    """The array of bytes in an idx file, gzipped where its name ends in .gz.

    Raises:
        DamagedFileError: Truncated, not gzip, not idx, or of another type than bytes.
    """
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


def read_cifar_batch(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Images [N, 3, 32, 32] and labels [N] of a batch of the official python version.

    Raises:
        DamagedFileError: Not, by its MD5, the published file.
    """
    found = hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()
    if found != _CIFAR_MD5.get(path.name):
        raise DamagedFileError(
            f"{path}: MD5 {found}, expected {_CIFAR_MD5.get(path.name)}; the file is truncated or "
            "altered"
        )
    batch = read_pickled(path)
    return batch["data"].reshape(-1, 3, 32, 32), np.asarray(batch["labels"], np.uint8)


def read_cifar_jpeg(path: Path, part: str) -> tuple[np.ndarray, np.ndarray]:
    """Images [N, 3, 32, 32] and labels [N] of "train" or "test", kept as JPEG files in an npz.

    Image i is the JPEG file in bytes offsets[i] to offsets[i + 1] of `<part>_jpeg`.
    """
    with np.load(path, allow_pickle=False) as found:
        content, offsets = found[f"{part}_jpeg"].tobytes(), found[f"{part}_offsets"].tolist()
        labels = found[f"{part}_y"]
    spans = (slice(*ends) for ends in pairwise(offsets))
    images = [np.asarray(Image.open(io.BytesIO(content[span]))) for span in spans]
    return np.stack(images).transpose(0, 3, 1, 2), labels


def read_cifar_pixels(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Images [N, 3, 32, 32] and labels [N], kept as pixels `x` [N, 32, 32, 3] and `y` in an npz."""
    with np.load(path, allow_pickle=False) as found:
        return found["x"].transpose(0, 3, 1, 2), found["y"]
