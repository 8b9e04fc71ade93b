"""Images as nodes: patches or convolutions, their positions, and the way back to a map."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from graphtheory.graph import Grid
from graphtheory.graph.grid import check_floating


class PatchConv2d(nn.Conv2d):
    """A convolution by square windows side by side.

    On a GPU it is one product: of three channels cuDNN's convolution took a tenth of a pass of
    DeiT-S on an H100.
    """

    def __init__(self, in_channels: int, out_channels: int, patch_size: int) -> None:
        super().__init__(in_channels, out_channels, patch_size, stride=patch_size)

    def forward(self, images: Tensor) -> Tensor:
        """Maps [B, out_channels, h, w] of images [B, C, h * p, w * p]."""
        return self.by_product(images) if images.is_cuda else super().forward(images)

    def by_product(self, images: Tensor) -> Tensor:
        """The same as a linear map of every window."""
        side = self.kernel_size[0]
        windows = images.unflatten(3, (-1, side)).unflatten(2, (-1, side))
        patches = windows.permute(0, 2, 4, 1, 3, 5).flatten(3)  # [B, h, w, C * p * p]
        found = nn.functional.linear(patches, self.weight.flatten(1), self.bias)
        return found.permute(0, 3, 1, 2)


class PatchEmbedding(nn.Module):
    """A linear map of every patch of an image, patch by patch a node.

    Args:
        dim: Features of a node.
        patch_size: Rows and columns of a patch, in pixels.
        in_channels: Channels of an image.
        pad: Fill up with zeros, right and below, an image whose sides the patch does not divide;
            otherwise such an image is an error.
        norm: Normalize the features of each node.

    Shapes:
        images [B, in_channels, H, W] -> nodes [B * h * w, dim] and the `Grid` (B, h, w).

    Raises:
        TypeError: Something else than a floating tensor, or of another type than the weights
            without autocast.
        ValueError: No images, other axes or channels, or a size that does not fit.

    Example:
        >>> x, grid = PatchEmbedding(8, patch_size=4)(torch.randn(2, 3, 8, 12))
        >>> x.shape, grid
        (torch.Size([12, 8]), Grid(count=2, height=2, width=3))
    """

    def __init__(
        self,
        dim: int,
        patch_size: int,
        in_channels: int = 3,
        *,
        pad: bool = False,
        norm: bool = False,
    ) -> None:
        super().__init__()
        if patch_size < 1:
            raise ValueError(f"patch_size: got {patch_size}, expected at least 1 pixel")
        self.patch_size, self.in_channels, self.pad = patch_size, in_channels, pad
        self.projection = PatchConv2d(in_channels, dim, patch_size)
        self.norm = nn.LayerNorm(dim) if norm else nn.Identity()

    @property
    def dim(self) -> int:
        """Number of features of a node."""
        return self.projection.out_channels

    def forward(self, images: Tensor) -> tuple[Tensor, Grid]:
        x, grid = from_map(self.projection(self._whole_patches(images)))
        return self.norm(x), grid

    def _whole_patches(self, images: Tensor) -> Tensor:
        _check_images(images, self.in_channels)
        own = self.projection.weight.dtype
        if images.dtype != own and not torch.is_autocast_enabled(images.device.type):
            raise TypeError(f"images: {images.dtype}, expected {own} as the weights are")
        height, width = images.shape[2:]
        below, right = -height % self.patch_size, -width % self.patch_size
        if not below and not right:
            return images
        if not self.pad:
            raise ValueError(
                f"images: {height} x {width} pixels, expected multiples of "
                f"patch_size={self.patch_size}; pad=True fills up with zeros"
            )
        return nn.functional.pad(images, (0, right, 0, below))


def from_map(maps: Tensor) -> tuple[Tensor, Grid]:
    """Maps [B, dim, h, w] as nodes [B * h * w, dim] and their grid."""
    count, _, height, width = maps.shape
    return maps.permute(0, 2, 3, 1).flatten(0, 2), Grid(count, height, width)


def check_nodes(x: Tensor, grid: Grid) -> None:
    """Raise ValueError unless there is a row for each node of a grid."""
    if x.dim() != 2 or x.size(0) != grid.num_nodes:
        raise ValueError(f"x: shape {tuple(x.shape)}, expected [{grid.num_nodes}, dim] for {grid}")


def to_map(x: Tensor, grid: Grid) -> Tensor:
    """Nodes [B * h * w, dim] as maps [B, dim, h, w]."""
    check_nodes(x, grid)
    return x.view(grid.count, grid.height, grid.width, -1).permute(0, 3, 1, 2)


class PositionEmbedding(nn.Module):
    """A learned vector for each place of a grid, resized bicubically for another grid.

    Args:
        dim: Features of a node.
        height: Rows of the grid that is learned.
        width: Its columns.
        prefix: Vectors before those of the grid, for tokens without a place; never resized.

    Shapes:
        a grid (B, h, w) -> [prefix + h * w, dim], the same for every image.

    Example:
        >>> PositionEmbedding(8, 2, 2, prefix=1)(Grid(5, 3, 4)).shape
        torch.Size([13, 8])
    """

    def __init__(self, dim: int, height: int, width: int, prefix: int = 0) -> None:
        super().__init__()
        self.grid, self.prefix = Grid(1, height, width), prefix
        self.table = nn.Parameter(torch.zeros(prefix + self.grid.size, dim))

    def forward(self, grid: Grid) -> Tensor:
        if (grid.height, grid.width) == (self.grid.height, self.grid.width):
            return self.table
        learned = to_map(self.table[self.prefix :], self.grid)
        resized = nn.functional.interpolate(
            learned, size=(grid.height, grid.width), mode="bicubic", align_corners=False
        )
        return torch.cat([self.table[: self.prefix], from_map(resized)[0]])


class PatchTokens(nn.Module):
    """Patches with their positions, after tokens that every image has: class, distillation.

    Shapes:
        images [B, C, H, W] -> nodes [B * (prefix + h * w), dim], image by image, and the grid of
        the patches.
    """

    def __init__(self, patch: PatchEmbedding, position: PositionEmbedding) -> None:
        super().__init__()
        self.patch, self.position = patch, position
        self.prefix = nn.Parameter(torch.zeros(position.prefix, patch.dim))

    def forward(self, images: Tensor) -> tuple[Tensor, Grid]:
        x, grid = self.patch(images)
        prefix = self.prefix.expand(grid.count, -1, -1)
        tokens = torch.cat([prefix, x.view(grid.count, grid.size, -1)], 1)  # [B, T, dim]
        return (tokens + self.position(grid)).flatten(0, 1), grid


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
        _check_images(images, self.in_channels)
        return from_map(self.layers(images))


def _check_images(images: Tensor, channels: int) -> None:
    check_floating(images)
    if images.dim() != 4 or images.size(1) != channels or not len(images):
        expected = f"expected [1 or more, {channels}, H, W]"
        raise ValueError(f"images: shape {tuple(images.shape)}, {expected}")
