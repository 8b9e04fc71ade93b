"""Images of digits: scikit-learn's, which are embedded, and MNIST from its published files."""

from __future__ import annotations

import gzip
from os import PathLike
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

NAMES = ("digits", "mnist")
_FOLDER = "MNIST/raw"
_EMBEDDED_TRAINING = 1437
_IMAGES, _LABELS = 2051, 2049  # magic numbers of the two kinds of file


class Images(NamedTuple):
    """Images and their classes.

    Shapes: pixels uint8 [N, 1, H, W], 0..255; y int64 [N].
    """

    pixels: Tensor
    y: Tensor


class DigitImages(NamedTuple):
    """A set of images; each part is read when it is asked for.

    The test images of "digits" are the last 360 of 1,797: that set comes without a test part.
    """

    name: str
    root: Path | None

    def training(self) -> Images:
        """All images that may be trained on or validated with."""
        return _digits(slice(_EMBEDDED_TRAINING)) if self.root is None else self._idx("train")

    def test(self) -> Images:
        """The test images, for a final score and nothing else."""
        return _digits(slice(_EMBEDDED_TRAINING, None)) if self.root is None else self._idx("t10k")

    def _idx(self, part: str) -> Images:
        assert self.root is not None
        pixels = _read(self.root / f"{part}-images-idx3-ubyte.gz", _IMAGES, 3)
        return Images(pixels[:, None], _read(self.root / f"{part}-labels-idx1-ubyte.gz", _LABELS, 1)
                      .long())  # fmt: skip


def load(name: str, root: str | PathLike[str] | None = None) -> DigitImages:
    """Find a set of images.

    Args:
        name: "digits" (8 x 8) or "mnist" (28 x 28); case does not matter.
        root: Folder that holds MNIST/raw with the four gzipped files; not needed for "digits".

    Raises:
        ValueError: Unknown name, or a file that is not in the published format.
        FileNotFoundError: A file is missing; the message says which. Nothing is downloaded.

    Example:
        >>> load("digits").training().pixels.shape
        torch.Size([1437, 1, 8, 8])
    """
    if name.lower() not in NAMES:
        raise ValueError(f"name: unknown image set {name!r}; known: {', '.join(NAMES)}")
    if name.lower() == "digits":
        return DigitImages("digits", None)
    folder = Path(root or "") / _FOLDER
    for part in ("train", "t10k"):
        for kind in ("images-idx3", "labels-idx1"):
            if not (folder / f"{part}-{kind}-ubyte.gz").is_file():
                raise FileNotFoundError(
                    f"mnist: {part}-{kind}-ubyte.gz is missing in {folder}; give the root that "
                    f"has {_FOLDER}, nothing is downloaded"
                )
    return DigitImages("mnist", folder)


def _digits(rows: slice) -> Images:
    from sklearn.datasets import load_digits

    pixels, y = load_digits(return_X_y=True)
    images = np.rint(pixels * (255 / 16)).astype(np.uint8).reshape(-1, 1, 8, 8)
    return Images(torch.from_numpy(images)[rows], torch.from_numpy(y).long()[rows])


def _read(path: Path, magic: int, axes: int) -> Tensor:
    """The bytes of an idx file as uint8 [N, ...]."""
    content = gzip.decompress(path.read_bytes())
    head = np.frombuffer(content, ">i4", 1 + axes)
    if int(head[0]) != magic or int(np.prod(head[1:])) != len(content) - head.nbytes:
        raise ValueError(f"{path}: not an idx file of kind {magic}, or truncated")
    body = np.frombuffer(content, np.uint8, offset=head.nbytes)
    return torch.from_numpy(body.reshape(head[1:].tolist()).copy())
