"""Images pasted on backgrounds: patches of the image carry the label, the others do not."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Generator, Tensor
from torch.nn.functional import interpolate

_RELEVANT, _RANKS = 255, 200  # levels of the last channel: of the image, and below it the others
_OCTAVES, _SPREAD = (2, 5), 45.0  # blotches along a side of a texture, and their deviation


@dataclass(frozen=True)
class Pasted:
    r"""A square image at a random place of a larger canvas, at multiples of the patch.

    A patch then belongs to the image or to the background, and of all tokens the share
    :math:`\alpha_* = (\text{region} / \text{size})^2` is label-relevant. The pictures have one more
    channel than the images, the rank of each patch for an oracle: 255 for the image, and for the
    background one of 0..199, drawn for each patch. Removing the tokens of least rank thus removes
    background at random before anything else.

    Source:
        Li (2024), section 2.4.2: CIFAR-10 images in regions of 26 x 26 pixels of ImageNet plants of
        32 x 32. Differs: textures that are drawn in place of photographs of plants, and regions
        that the patch divides.

    Example:
        >>> canvas = Pasted(10, 8, 2)
        >>> pictures = canvas(torch.zeros(3, 1, 8, 8, dtype=torch.uint8), Generator())
        >>> pictures.shape, canvas.tokens, canvas.relevant
        (torch.Size([3, 2, 10, 10]), 25, 16)
    """

    size: int  # rows and columns of the canvas, in pixels
    region: int  # those of the image
    patch: int  # those of a patch; divides both

    def __post_init__(self) -> None:
        for name in ("size", "region"):
            value = getattr(self, name)
            if value < 1 or self.patch < 1 or value % self.patch:
                raise ValueError(f"{name}: got {value}, expected a multiple of {self.patch} pixels")
        if self.region > self.size:
            raise ValueError(f"region: got {self.region}, expected at most {self.size} pixels")

    @property
    def tokens(self) -> int:
        """Patches of a picture."""
        return (self.size // self.patch) ** 2

    @property
    def relevant(self) -> int:
        """Patches of its image."""
        return (self.region // self.patch) ** 2

    def alpha_star(self, kept: int) -> float:
        """Share of the image's patches among `kept` that stay, background going first."""
        return min(self.relevant, kept) / kept

    def __call__(
        self, images: Tensor, generator: Generator, textured: Tensor | None = None
    ) -> Tensor:
        """The pictures, uint8 [N, C + 1, size, size], of images uint8 [N, C, H, W].

        Backgrounds of those that are not `textured` [N] are black; None is all.
        """
        count, channels = images.shape[:2]
        canvas = textures(count, channels, self.size, generator)
        if textured is not None:
            canvas[~textured] = 0
        side = self.size // self.patch
        rank = torch.randint(_RANKS, (count, 1, side, side), generator=generator)
        ranks = rank.to(torch.uint8).repeat_interleave(self.patch, 2)
        pictures = torch.cat([canvas, ranks.repeat_interleave(self.patch, 3)], 1)
        rows, columns = self._inside(count, generator)
        scene = torch.cat([self._resized(images), self._marks(count)], 1)
        every = torch.arange(count)[:, None, None]
        # Indices apart bring their axes to the front: [N, region, region, C + 1].
        pictures[every, :, rows, columns] = scene.permute(0, 2, 3, 1)
        return pictures

    def _inside(self, count: int, generator: Generator) -> tuple[Tensor, Tensor]:
        """Rows [N, region, 1] and columns [N, 1, region] of the images."""
        places = (self.size - self.region) // self.patch + 1
        corner = self.patch * torch.randint(places, (2, count, 1), generator=generator)
        rows, columns = corner + torch.arange(self.region)
        return rows[:, :, None], columns[:, None]

    def _marks(self, count: int) -> Tensor:
        return torch.full((count, 1, self.region, self.region), _RELEVANT, dtype=torch.uint8)

    def _resized(self, images: Tensor) -> Tensor:
        if images.shape[2:] == (self.region, self.region):
            return images
        size = (self.region, self.region)
        small = interpolate(images.float(), size, mode="bilinear", antialias=True)
        return small.round().clamp(0, 255).to(torch.uint8)


def textures(count: int, channels: int, size: int, generator: Generator) -> Tensor:
    """Blotches of two sizes and grain around a color of each picture, uint8 [N, C, size, size]."""
    total = 128 + _SPREAD * torch.randn(count, channels, 1, 1, generator=generator)
    for blotches in (*_OCTAVES, size):
        noise = torch.randn(count, channels, blotches, blotches, generator=generator)
        total = total + _SPREAD * interpolate(noise, (size, size), mode="bilinear")
    return total.round().clamp(0, 255).to(torch.uint8)
