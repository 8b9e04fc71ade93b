"""Convolutions in place of patches: nodes that overlap."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from graphtheory.graph import Grid
from graphtheory.graph.grid import check_floating
from graphtheory.vision.nn.patch import from_map


class ConvStem(nn.Module):
    """Convolutions of 3 x 3, each with a norm over the batch, place by place of the last a node.

    Args:
        widths: Features after each convolution.
        strides: Of each convolution; their product is the distance of two nodes, in pixels.
        in_channels: Channels of an image.
        activation: Between two convolutions.
        activate_last: Whether it follows the last one, too.

    Shapes:
        images [B, in_channels, H, W] of any size -> nodes [B * h * w, dim] and the `Grid` (B, h,
        w); a stride of 2 makes ceil(H / 2) rows of H.

    Raises:
        ValueError: Not as many strides as widths; no images, or other axes or channels.

    Example:
        >>> import torch
        >>> x, grid = ConvStem((4, 8), (2, 2))(torch.randn(2, 3, 9, 16))
        >>> x.shape, grid
        (torch.Size([24, 8]), Grid(count=2, height=3, width=4))
    """

    def __init__(
        self,
        widths: Sequence[int],
        strides: Sequence[int],
        in_channels: int = 3,
        *,
        activation: type[nn.Module] = nn.GELU,
        activate_last: bool = False,
    ) -> None:
        super().__init__()
        if not widths or len(strides) != len(widths):
            raise ValueError(
                f"strides: {len(strides)} for {len(widths)} widths, expected as many, at least one"
            )
        self.in_channels = in_channels
        layers: list[nn.Module] = []
        before = in_channels
        for width, stride in zip(widths, strides, strict=True):
            convolution = nn.Conv2d(before, width, 3, stride, padding=1)
            layers += [convolution, nn.BatchNorm2d(width), activation()]
            before = width
        self.layers = nn.Sequential(*(layers if activate_last else layers[:-1]))

    def forward(self, images: Tensor) -> tuple[Tensor, Grid]:
        """Nodes, and the grid on which they lie."""
        check_floating(images)
        if images.dim() != 4 or images.size(1) != self.in_channels or not len(images):
            expected = f"expected [1 or more, {self.in_channels}, H, W]"
            raise ValueError(f"images: shape {tuple(images.shape)}, {expected}")
        return from_map(self.layers(images))
