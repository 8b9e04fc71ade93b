"""Images in one tensor as batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from graphtheory.lab.train.contract import Batches, Source, digest
from graphtheory.lab.train.seeds import derive

_ORDER = 5  # stream of randomness; 0 to 4 are those of graphs
_LEVELS = 256


@dataclass(frozen=True)
class ImageBatch:
    """Images uint8 [B, C, H, W] and their classes int64 [B]."""

    pixels: Tensor
    y: Tensor

    @property
    def count(self) -> int:
        """Images."""
        return len(self.y)

    def to(self, device: torch.device | str) -> ImageBatch:
        """The batch on `device`; nothing is copied where it is there already."""
        return ImageBatch(self.pixels.to(device), self.y.to(device))


class ImageData(Source):
    """Train on shuffled batches of images, validate on others.

    The order of an epoch is a function of (seed, epoch). Images that fill no whole batch wait for
    another epoch; where there is no whole batch, all images are one.

    Args:
        pixels: Every image.
        y: Its class.
        train: Positions to train on.
        val: Positions to validate with; none of `train`.
        name: Of the data, for the record.
        batch_size: Images of a batch.
        seed: Of the order, 0 or more.

    Shapes: pixels uint8 [N, C, H, W]; y int64 [N]; train, val int64.

    Raises:
        TypeError: Pixels or classes of another dtype.
        ValueError: Shapes that do not fit, positions that are none, overlap or do not exist.

    Example:
        >>> pixels, y = torch.zeros(10, 1, 8, 8, dtype=torch.uint8), torch.arange(10) % 2
        >>> data = ImageData(pixels, y, torch.arange(6), torch.arange(6, 10), batch_size=2)
        >>> len(data.order(epoch=0)), data.evaluation_batch().count
        (3, 4)
    """

    def __init__(
        self,
        pixels: Tensor,
        y: Tensor,
        train: Tensor,
        val: Tensor,
        *,
        name: str = "unnamed",
        batch_size: int = 128,
        seed: int = 0,
    ) -> None:
        super().__init__()
        _check(pixels, y, train, val)
        for what, value, least in (("batch_size", batch_size, 1), ("seed", seed, 0)):
            if value < least:
                raise ValueError(f"{what}: got {value}, expected {least} or more")
        self.pixels, self.y, self.train, self.val = pixels, y, train, val
        self.name, self.batch_size, self.seed = name, batch_size, seed

    def check_classes(self, num_classes: int) -> None:
        """Refuse labels outside 0..num_classes-1."""
        bad = ((self.y < 0) | (self.y >= num_classes)).nonzero().flatten()
        if len(bad):
            raise ValueError(
                f"y: {len(bad)} labels out of range, the first is image {int(bad[0])} with "
                f"{int(self.y[bad[0]])}; expected 0..{num_classes - 1}"
            )

    def statistics(self) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation of the training images by channel, of values 0..1, [C]."""
        levels = torch.arange(_LEVELS, dtype=torch.float64) / (_LEVELS - 1)
        used = self.pixels[self.train].transpose(0, 1).flatten(1)
        counts = torch.stack([channel.bincount(minlength=_LEVELS) for channel in used]).double()
        shares = counts / used.size(1)
        mean = shares @ levels
        return mean.float(), (shares @ levels.square() - mean.square()).clamp(min=0).sqrt().float()

    def describe(self) -> dict[str, Any]:
        """What a resumed run must find unchanged."""
        parts = (self.pixels, self.y, self.train, self.val)
        found = {"name": self.name, "sha256": digest(parts)}
        return found | {"batch_size": self.batch_size, "seed": self.seed}

    def order(self, epoch: int) -> list[Tensor]:
        """The positions of each batch of an epoch."""
        generator = torch.Generator().manual_seed(derive(self.seed, _ORDER, epoch))
        shuffled = self.train[torch.randperm(len(self.train), generator=generator)]
        whole = [part for part in shuffled.split(self.batch_size) if len(part) == self.batch_size]
        return whole or [shuffled]

    def train_dataloader(self) -> Batches:
        """One epoch of batches."""
        return Batches(max(len(self.train) // self.batch_size, 1), self._iterate)

    def _iterate(self) -> Iterator[ImageBatch]:
        # A generator, because Lightning asks for an iterator before it knows the epoch.
        for positions in self.order(self.epoch):
            yield ImageBatch(self.pixels[positions], self.y[positions])

    def evaluation_batch(self) -> ImageBatch:
        """All images to validate with."""
        return ImageBatch(self.pixels[self.val], self.y[self.val])

    def val_dataloader(self) -> Batches:
        """One batch of all images to validate with."""
        return Batches(1, lambda: iter([self.evaluation_batch()]))


def _check(pixels: Tensor, y: Tensor, train: Tensor, val: Tensor) -> None:
    for name, found, dtype in (("pixels", pixels, torch.uint8), ("y", y, torch.int64)):
        if not isinstance(found, Tensor) or found.dtype != dtype:
            got = found.dtype if isinstance(found, Tensor) else type(found).__name__
            hint = "; data.pixels.as_pixels makes it of PIL images, arrays and floating numbers"
            raise TypeError(
                f"{name}: got {got}, expected a tensor of {dtype}{hint if name == 'pixels' else ''}"
            )
    if pixels.dim() != 4 or y.shape != pixels.shape[:1]:
        raise ValueError(
            f"pixels, y: shapes {tuple(pixels.shape)} and {tuple(y.shape)}, expected [N, C, H, W] "
            "and [N]"
        )
    chosen = torch.cat([train, val])
    if not len(train) or not len(val):
        raise ValueError(f"train, val: {len(train)} and {len(val)} images, expected some of either")
    if int(chosen.min()) < 0 or int(chosen.max()) >= len(y):
        raise ValueError(f"train, val: positions outside 0..{len(y) - 1}, the images there are")
    if len(chosen.unique()) < len(chosen):
        raise ValueError("train, val: an image is in them twice, expected each once")
